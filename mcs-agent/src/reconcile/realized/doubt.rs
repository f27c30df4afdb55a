use std::collections::{BTreeMap, BTreeSet};

use bytemuck::Zeroable;
use mcs_common::{Address, Backend, BackendState, Extent, FrontendKey, FrontendState};

use super::Realized;
use crate::reconcile::Step;

/// What failed writes have left open: each may have taken effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt {
    /// May be in the map or not. The copy of the maps has them.
    pub(super) vips: BTreeSet<Address>,
    /// May be in the map or not, their attributes and extents new or former. The copy of the maps
    /// has them, and new.
    pub(super) frontends: BTreeSet<FrontendKey>,
    /// Former extents, by index, that a reader may yet come to.
    pub(super) extents: BTreeMap<u32, BTreeSet<Extent>>,
}

impl Realized {
    /// Takes note that a step has failed, and may have taken effect all the same. The next plan
    /// does it again, or the contrary.
    pub(in crate::reconcile) fn doubt(&mut self, step: &Step) {
        match *step {
            Step::DeleteVip(vip) => {
                self.doubt.vips.insert(vip);
            }
            Step::InsertVip(vip) => {
                self.advance(step);
                self.doubt.vips.insert(vip);
            }
            Step::DeleteFrontend(key) => {
                self.doubt.frontends.insert(key);
            }
            Step::InsertFrontend { key, .. } => {
                self.advance(step);
                self.doubt.frontends.insert(key);
            }
            Step::UpdateAttributes { index, .. } => {
                self.advance(step);
                self.doubt.frontends.insert(self.state(index).key);
            }
            Step::Flip { index, extent } => {
                let FrontendState { key, extent: former, .. } = self.state(index);
                self.reach(index, extent);
                self.tables.write(step);
                self.doubt.extents.entry(index).or_default().insert(former);
                self.doubt.frontends.insert(key);
            }
            Step::RetireBackend { .. } | Step::WaitForReaders => {}
            Step::WriteService { .. }
            | Step::WriteCluster { .. }
            | Step::WriteBackend { .. }
            | Step::WriteSlots { .. }
            | Step::WriteState { .. } => self.tables.write(&unlike(step)),
        }
    }
}

/// A write to the same place of what no plan wants there, so that the next one writes it anew. The
/// generation of a backend stays used.
fn unlike(step: &Step) -> Step {
    match *step {
        Step::WriteService { id, .. } => Step::WriteService { id, record: Zeroable::zeroed() },
        Step::WriteCluster { id, .. } => Step::WriteCluster { id, record: Zeroable::zeroed() },
        Step::WriteBackend { id, backend: Backend { generation, .. } } => {
            let state = BackendState::FREE;
            Step::WriteBackend { id, backend: Backend { generation, state, ..Zeroable::zeroed() } }
        }
        Step::WriteSlots { block, ref ids } => Step::WriteSlots { block, ids: vec![0; ids.len()] },
        Step::WriteState { index, .. } => Step::WriteState { index, state: Zeroable::zeroed() },
        ref other => other.clone(),
    }
}
