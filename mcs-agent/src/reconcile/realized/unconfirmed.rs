//! Writes that failed and may have taken effect nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use bytemuck::Zeroable;
use mcs_common::{Address, BackendRecord, BackendState, Extent, FrontendKey, FrontendState};

use super::Realized;
use crate::reconcile::Step;

/// What failed writes may have changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Unconfirmed {
    /// In the map or not. The model has them.
    pub(super) vips: BTreeSet<Address>,
    /// In the map or not, with new or former attributes and extents. The model has them with the new ones.
    pub(super) frontends: BTreeSet<FrontendKey>,
    /// Former extents, by index, that a reader may still find.
    pub(super) extents: BTreeMap<u32, BTreeSet<Extent>>,
    /// Former services, by index, that a reader may still find.
    pub(super) services: BTreeMap<u32, BTreeSet<u32>>,
}

impl Realized {
    /// Updates the model after a step that failed and may have taken effect nevertheless. The next plan
    /// repeats the step or reverses it.
    pub(in crate::reconcile) fn record_failure(&mut self, step: &Step) {
        match *step {
            Step::DeleteVip(vip) => {
                self.unconfirmed.vips.insert(vip);
            }
            Step::InsertVip(vip) | Step::SetVipMode { vip, .. } => {
                self.record_success(step);
                self.unconfirmed.vips.insert(vip);
            }
            Step::DeleteFrontend(key) => {
                self.unconfirmed.frontends.insert(key);
            }
            Step::InsertFrontend { key, .. } => {
                self.record_success(step);
                self.unconfirmed.frontends.insert(key);
            }
            Step::UpdateAttributes { index, service, .. } => {
                let FrontendState { key, service: former, .. } = self.state(index);
                self.refer(index, service);
                self.contents.write(step);
                self.unconfirmed.services.entry(index).or_default().insert(former);
                self.unconfirmed.frontends.insert(key);
            }
            Step::Flip { index, extent } => {
                let FrontendState { key, extent: former, .. } = self.state(index);
                self.reach(index, extent);
                self.contents.write(step);
                self.unconfirmed.extents.entry(index).or_default().insert(former);
                self.unconfirmed.frontends.insert(key);
            }
            Step::RetireBackend { id } => {
                if self.stop_keeping(id) {
                    self.undecided.insert(id);
                }
            }
            Step::ResumeBackend { .. } => self.record_success(step),
            Step::KeepBackend { .. } | Step::RepairHint { .. } | Step::WaitForReaders => {}
            Step::WriteService { .. }
            | Step::WriteCluster { .. }
            | Step::WriteBackend { .. }
            | Step::WriteSlots { .. }
            | Step::WriteState { .. } => self.contents.write(&unlike(step)),
        }
    }
}

/// A write to the same place of a value that no plan wants there, so that the next plan writes it again.
/// The generation of a backend stays used.
fn unlike(step: &Step) -> Step {
    match *step {
        Step::WriteService { id, .. } => {
            Step::WriteService { id, record: Box::new(Zeroable::zeroed()) }
        }
        Step::WriteCluster { id, .. } => {
            Step::WriteCluster { id, record: Box::new(Zeroable::zeroed()) }
        }
        Step::WriteBackend { id, backend: BackendRecord { generation, .. } } => {
            let state = BackendState::FREE;
            Step::WriteBackend {
                id,
                backend: BackendRecord { generation, state, ..Zeroable::zeroed() },
            }
        }
        Step::WriteSlots { block, ref ids } => Step::WriteSlots { block, ids: vec![0; ids.len()] },
        Step::WriteState { index, .. } => {
            Step::WriteState { index, state: Box::new(Zeroable::zeroed()) }
        }
        ref other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Capacity, ObjectKey},
        reconcile::convert::{cluster_record, service_record},
    };

    fn service(name: &str) -> Step {
        Step::WriteService { id: 1, record: service_record(&ObjectKey::new("demo", name)).into() }
    }

    fn cluster(name: &str) -> Step {
        Step::WriteCluster { id: 1, record: cluster_record(name).into() }
    }

    fn backend(generation: u32) -> Step {
        let state = BackendState::ACTIVE;
        Step::WriteBackend {
            id: 1,
            backend: BackendRecord { state, generation, ..Zeroable::zeroed() },
        }
    }

    fn slots(id: u32) -> Step {
        Step::WriteSlots { block: 3, ids: vec![id, id + 1] }
    }

    fn state(port: u16) -> Step {
        let vip = std::net::Ipv4Addr::new(10, 0, 0, 1).into();
        let key = FrontendKey::new(vip, port, 6);
        Step::WriteState { index: 1, state: FrontendState { key, ..Zeroable::zeroed() }.into() }
    }

    #[test]
    fn after_a_failed_write_neither_value_counts_as_written() {
        let cases = [
            (service("former"), service("new")),
            (cluster("former"), cluster("new")),
            (backend(1), backend(2)),
            (slots(1), slots(3)),
            (state(80), state(81)),
        ];
        for (former, new) in cases {
            let mut realized = Realized::empty(Capacity::default());
            realized.record_success(&former);
            assert!(realized.holds(&former));
            realized.record_failure(&new);
            assert!(!realized.holds(&former), "{former}");
            assert!(!realized.holds(&new), "{new}");
        }
    }

    #[test]
    fn a_generation_that_may_have_been_written_counts_as_used() {
        let mut realized = Realized::empty(Capacity::default());
        realized.record_success(&backend(1));
        realized.record_failure(&backend(2));
        assert_eq!(realized.backend(1).generation, 2);
        assert_eq!(realized.backend(1).state, BackendState::FREE);
    }
}
