use std::{borrow::Cow, collections::BTreeSet};

use bytemuck::Zeroable;
use mcs_common::{
    Address, BackendRecord, BackendState, ClusterRecord, Extent, FrontendKey, FrontendState,
    ServiceRecord,
};

use super::{
    Deferred, Plan, Shortage, Subject,
    room::Room,
    target::{Source, Target},
};
use crate::{
    model,
    reconcile::{
        Realized, Step,
        convert::{attributes, cluster_record, service_record},
    },
};

/// Pieces in limbo after which readers are waited for, though there is room: every plan copies them, and
/// holes are filled once they are free.
const MOST_IN_LIMBO: usize = 256;

/// A plan in the making, and what the maps would hold after it.
pub(super) struct Draft<'a> {
    /// Copied at the first step.
    realized: Cow<'a, Realized>,
    plan: Plan,
}

impl<'a> Draft<'a> {
    pub(super) fn new(realized: &'a Realized) -> Self {
        Self { realized: Cow::Borrowed(realized), plan: Plan::default() }
    }

    /// What the maps hold after the steps so far.
    pub(super) fn realized(&self) -> &Realized {
        &self.realized
    }

    pub(super) fn finish(mut self) -> Plan {
        if !self.plan.steps.is_empty() && self.realized.ledger().limbo_pieces() > MOST_IN_LIMBO {
            self.retire();
            self.push(Step::WaitForReaders);
        }
        self.plan
    }

    /// Makes "no name" say nothing, whatever was found there.
    pub(super) fn clear_no_name(&mut self) {
        if self.realized.cluster(0) != ClusterRecord::zeroed() {
            self.push(Step::WriteCluster { id: 0, record: ClusterRecord::zeroed().into() });
        }
        if self.realized.service(0) != ServiceRecord::zeroed() {
            self.push(Step::WriteService { id: 0, record: ServiceRecord::zeroed().into() });
        }
    }

    /// Retires what no frontend refers to any more. Before any wait: an index or id must not become
    /// free while a choice remembered of it would still be followed.
    pub(super) fn retire(&mut self) {
        for id in self.realized.stale().clone() {
            self.push(Step::RetireBackend { id });
        }
    }

    /// Deletes all VIPs but these.
    pub(super) fn delete_vips(&mut self, wanted: &BTreeSet<Address>) {
        let gone: Vec<Address> = self.realized.tables().vips.difference(wanted).copied().collect();
        for vip in gone {
            self.push(Step::DeleteVip(vip));
        }
    }

    /// Deletes the frontends that are not wanted, and all that are damaged: to refuse is better than
    /// to send anywhere.
    pub(super) fn delete_frontends(&mut self, is_gone: impl Fn(&FrontendKey) -> bool) {
        let damaged = self.realized.damaged().iter().copied();
        let gone = self.realized.frontends().filter(is_gone);
        for key in damaged.chain(gone).collect::<Vec<_>>() {
            self.push(Step::DeleteFrontend(key));
        }
    }

    /// Writes again what failed writes have left open: from here on the maps are as believed.
    pub(super) fn reaffirm(&mut self) {
        for key in self.realized.doubted_frontends().clone() {
            let Some(index) = self.realized.index(&key) else { continue };
            let FrontendState { extent, service, flags, affinity_seconds, .. } =
                self.realized.state(index);
            self.push(Step::Flip { index, extent });
            self.push(Step::UpdateAttributes { index, service, flags, affinity_seconds });
            self.push(Step::InsertFrontend { key, index });
        }
        self.retire();
    }

    /// Inserts the VIPs that are missing, and those of which a failed write has left open whether
    /// they are.
    pub(super) fn insert_vips(&mut self, wanted: &BTreeSet<Address>) {
        for vip in self.realized.doubted_vips().clone() {
            self.push(Step::InsertVip(vip));
        }
        let missing: Vec<Address> =
            wanted.difference(&self.realized.tables().vips).copied().collect();
        for vip in missing {
            let vips = self.realized.tables().vips.len();
            if vips < self.realized.capacity().frontends as usize {
                self.push(Step::InsertVip(vip));
            } else {
                self.defer(Subject::Vip(vip.to_ip()), Shortage::Vips);
            }
        }
    }

    /// Makes a frontend what it is to become, if there is room.
    pub(super) fn realize(&mut self, target: &Target<'_>) {
        match self.room(target) {
            Ok(room) if target.is_new() => self.create(target, room),
            Ok(room) => self.update(target, room),
            Err(shortage) => self.defer(Subject::Frontend(*target.id), shortage),
        }
    }

    /// Finds room; waits for readers, or even moves blocks, where that makes it.
    fn room(&mut self, target: &Target<'_>) -> Result<Room, Shortage> {
        let endpoints = i64::from(self.realized.endpoints()) + target.growth();
        if target.growth() > 0 && endpoints > i64::from(self.realized.capacity().endpoints) {
            return Err(Shortage::Endpoints);
        }
        if let Ok(room) = Room::find(&self.realized, self.realized.ledger(), target) {
            return Ok(room);
        }
        let mut settled = self.realized.ledger().clone();
        settled.settle();
        match Room::find(&self.realized, &settled, target) {
            Ok(_) => self.push(Step::WaitForReaders),
            Err(Shortage::Slots) => self.compact(),
            Err(shortage) => return Err(shortage),
        }
        Room::find(&self.realized, self.realized.ledger(), target)
    }

    /// Moves blocks down, until none fits into a free run below it.
    ///
    /// Then each run between blocks is shorter than the block above it, so that all blocks and runs
    /// take less than twice the endpoints. `slots` has room for twice the endpoints and twice what is
    /// spare: that much at least is left above, in one piece.
    fn compact(&mut self) {
        loop {
            self.push(Step::WaitForReaders);
            let mut extents: Vec<(Extent, u32)> = self
                .realized
                .frontends()
                .filter_map(|key| self.realized.index(&key))
                .map(|index| (self.realized.state(index).extent, index))
                .collect();
            extents.sort_unstable_by(|a, b| b.cmp(a));
            let before = self.plan.steps.len();
            for (former, index) in extents {
                let block = self.realized.ledger().blocks.find(former.count);
                let Some(block) = block.filter(|&block| block < former.block) else { continue };
                let ids = self.realized.ids(former).collect();
                self.write(Step::WriteSlots { block, ids });
                self.push(Step::Flip { index, extent: Extent { block, ..former } });
            }
            if self.plan.steps.len() == before {
                break;
            }
        }
    }

    fn create(&mut self, target: &Target<'_>, room: Room) {
        let (flags, affinity_seconds) = attributes(target.frontend);
        let (key, index, service) = (target.key, room.index, room.service);
        self.write_service(target, service);
        let extent = self.write_block(target, room);
        let state =
            FrontendState { key, extent, service, flags, affinity_seconds, ..Zeroable::zeroed() };
        self.write(Step::WriteState { index, state: state.into() });
        self.push(Step::InsertFrontend { key, index });
    }

    fn update(&mut self, target: &Target<'_>, room: Room) {
        let (index, service) = (room.index, room.service);
        if target.changes_backends() {
            let extent = self.write_block(target, room);
            self.push(Step::Flip { index, extent });
        }
        if target.changes_attributes(&self.realized) {
            self.write_service(target, service);
            let (flags, affinity_seconds) = attributes(target.frontend);
            self.push(Step::UpdateAttributes { index, service, flags, affinity_seconds });
        }
        self.retire();
    }

    fn write_service(&mut self, target: &Target<'_>, id: u32) {
        self.write(Step::WriteService {
            id,
            record: service_record(&target.frontend.import).into(),
        });
    }

    /// Writes the backends added and a block that names all.
    fn write_block(&mut self, target: &Target<'_>, room: Room) -> Extent {
        for (&name, &id) in &room.clusters {
            self.write(Step::WriteCluster { id, record: ClusterRecord { name }.into() });
        }
        let mut free = room.ids.into_iter();
        let mut ids = Vec::with_capacity(target.members.len());
        for member in &target.members {
            match member.source {
                Source::Kept(id) => ids.push(id),
                Source::Added(backend) => {
                    let Some(id) = free.next() else { continue };
                    let name = cluster_record(&backend.cluster).name;
                    let cluster = room.clusters.get(&name).copied().unwrap_or(0);
                    self.write_backend(id, backend, room.index, cluster);
                    ids.push(id);
                }
            }
        }
        let extent = Extent { block: room.block, count: target.count() };
        if !ids.is_empty() {
            self.write(Step::WriteSlots { block: room.block, ids });
        }
        extent
    }

    /// Writes a backend at a free id, with a generation that was never used there.
    ///
    /// A plan that stopped short may have written the very same, which nobody has seen: a free id is
    /// active only then.
    fn write_backend(&mut self, id: u32, wanted: &model::Backend, frontend: u32, cluster: u32) {
        let former = self.realized.backend(id);
        let same = BackendRecord {
            addr: wanted.address.ip().into(),
            port: wanted.address.port(),
            state: BackendState::ACTIVE,
            pad: 0,
            frontend,
            cluster,
            generation: former.generation,
        };
        if same != former {
            let backend = BackendRecord { generation: former.generation.wrapping_add(1), ..same };
            self.push(Step::WriteBackend { id, backend });
        }
    }

    /// Pushes a write of what no reader can reach, unless that stands there already.
    fn write(&mut self, step: Step) {
        if !self.realized.holds(&step) {
            self.push(step);
        }
    }

    fn push(&mut self, step: Step) {
        self.realized.to_mut().advance(&step);
        self.plan.steps.push(step);
    }

    fn defer(&mut self, subject: Subject, shortage: Shortage) {
        self.plan.deferred.push(Deferred { subject, shortage });
    }
}
