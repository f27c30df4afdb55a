//! Builds a plan step by step, with what the maps would hold after each step.

use std::{borrow::Cow, fmt::Display, iter, net::IpAddr};

use bytemuck::Zeroable;
use mcs_common::{
    Address, BackendRecord, BackendState, Extent, FrontendKey, FrontendState, VipMode,
    select::Tables as _,
};

use super::{
    Deferred, Plan, Planned, Pruning, Shortage,
    frontend_change::{FrontendChange, Origin, Placement},
};
use crate::core::{
    model::{self, DesiredState},
    tables::{
        NameMap, NameRecord, Realized, Step,
        contents::{self, attributes, backend_address},
    },
};

/// Runs of released entries after which a plan waits for readers, though there is room: every plan
/// copies the runs, and only free entries fill holes.
const MOST_RELEASED_RUNS: usize = 256;

/// A plan in the making, and what the maps would hold after it.
pub(super) struct PlanBuilder<'a> {
    desired: &'a DesiredState,
    pub(super) pruning: Pruning,
    /// After the steps so far. Copied at the first step.
    pub(super) realized: Cow<'a, Realized>,
    pub(super) plan: Plan,
    /// Steps after which the plan ends.
    most_steps: usize,
}

impl<'a> PlanBuilder<'a> {
    pub(super) fn new(
        desired: &'a DesiredState,
        realized: &'a Realized,
        pruning: Pruning,
        most_steps: usize,
    ) -> Self {
        let (realized, plan) = (Cow::Borrowed(realized), Plan::default());
        Self { desired, pruning, realized, plan, most_steps }
    }

    /// Whether the plan is full: the next plan has the remaining steps.
    pub(super) const fn ends_here(&mut self) -> bool {
        self.plan.is_part = self.plan.steps.len() >= self.most_steps;
        self.plan.is_part
    }

    pub(super) fn finish(mut self) -> Planned {
        if !self.plan.steps.is_empty()
            && self.realized.allocations().released_runs() > MOST_RELEASED_RUNS
        {
            self.keep_or_retire();
            self.push(Step::WaitForReaders);
        }
        Planned { plan: self.plan, realized: self.realized.into_owned() }
    }

    /// Clears entry 0 of the maps of names, which stands for "no name".
    pub(super) fn clear_no_name(&mut self) {
        for map in NameMap::ALL {
            self.write_name(map, 0, NameRecord::zeroed());
        }
    }

    /// Keeps or retires the backends that no slot names any more. This comes before any wait: a program would
    /// still follow a remembered choice of an active backend, so its id must not become free.
    pub(super) fn keep_or_retire(&mut self) {
        for id in self.realized.undecided().clone() {
            let step =
                if self.keeps(id) { Step::KeepBackend { id } } else { Step::RetireBackend { id } };
            self.push(step);
        }
    }

    /// Retires the kept backends of these frontends that no longer serve.
    pub(super) fn retire_kept<'k>(&mut self, frontends: impl Iterator<Item = &'k FrontendKey>) {
        if self.realized.kept_backends() == 0 {
            return;
        }
        let indices = frontends.filter_map(|key| self.realized.index(key));
        let kept = indices.flat_map(|index| self.realized.kept_of(index));
        let gone: Vec<u32> = kept.filter(|id| !self.keeps(*id)).collect();
        for id in gone {
            self.push(Step::RetireBackend { id });
        }
    }

    /// Whether the UDP clients of this backend stay with it.
    ///
    /// A frontend that is not desired is in the maps only until everything has been read.
    fn keeps(&self, id: u32) -> bool {
        let address = backend_address(&self.realized.backend(id));
        self.realized
            .udp_frontend_of(id)
            .is_some_and(|frontend| !self.pruning.is_on() || self.desired.keeps(&frontend, address))
    }

    /// Whether new clients are to get this backend.
    fn is_desired(&self, id: u32) -> bool {
        let backend = self.realized.backend(id);
        let frontend =
            self.realized.udp_frontend_of(id).and_then(|id| self.desired.frontends.get(&id));
        let desired = frontend.and_then(|frontend| frontend.backend(backend_address(&backend)));
        desired.is_some_and(|desired| {
            self.realized.name(NameMap::Clusters, backend.cluster).is_cluster(&desired.cluster)
        })
    }

    /// Retires `count` kept backends, first backends that no longer serve. Backends that are about to get new clients
    /// again stay.
    fn retire_kept_for_room(&mut self, count: usize) {
        let kept = self.realized.kept().filter(|id| !self.is_desired(*id));
        let (serving, gone): (Vec<u32>, Vec<u32>) = kept.partition(|id| self.keeps(*id));
        for id in gone.into_iter().chain(serving).take(count) {
            self.push(Step::RetireBackend { id });
        }
    }

    /// Deletes those of these VIPs in the maps that are neither desired nor departed, and sets the mode of the departed ones.
    /// Without pruning, served VIPs stay served.
    pub(super) fn withdraw_vips(&mut self, vips: impl Iterator<Item = (Address, u32)>) {
        let departed = |vip: &Address| self.desired.departed.get(&vip.to_ip());
        let may_change = |mode| self.pruning.is_on() || mode != VipMode::SERVED;
        let steps: Vec<Step> = vips
            .filter(|(vip, mode)| may_change(*mode) && !self.desired.vips.contains(&vip.to_ip()))
            .filter_map(|(vip, mode)| match departed(&vip).copied().map(contents::mode) {
                Some(wanted) if wanted == mode => None,
                Some(mode) => Some(Step::SetVipMode { vip, mode }),
                None => Some(Step::DeleteVip(vip)),
            })
            .collect();
        for step in steps {
            self.push(step);
        }
    }

    /// Deletes frontends that are not desired, or damaged: a refusal is better than a wrong backend.
    pub(super) fn delete_frontends(&mut self, gone: impl Iterator<Item = FrontendKey>) {
        gone.for_each(|key| self.push(Step::DeleteFrontend(key)));
    }

    /// Inserts those of these VIPs that are missing, unless the plan is full.
    pub(super) fn insert_vips<'v>(&mut self, vips: impl IntoIterator<Item = &'v IpAddr>) {
        if self.plan.is_part {
            return;
        }
        for vip in vips.into_iter().map(|ip| Address::from(*ip)) {
            let contents = self.realized.contents();
            let has_room = contents.vips.len() < self.realized.capacity().vips as usize;
            match contents.vip(&vip) {
                Some(VipMode::SERVED) => {}
                Some(_) => self.push(Step::SetVipMode { vip, mode: VipMode::SERVED }),
                None if has_room => self.push(Step::InsertVip(vip)),
                None => self.defer(&vip.to_ip(), Shortage::Vips),
            }
        }
    }

    /// Adds the steps of a change, or defers it if there is no room.
    pub(super) fn realize(&mut self, change: &FrontendChange<'_>) {
        match self.find_room(change) {
            Ok(placement) if change.is_new() => self.create(change, placement),
            Ok(placement) => self.update(change, placement),
            Err(shortage) => self.defer(change.id, shortage),
        }
    }

    /// Finds room. Retires kept backends, waits for readers, or moves blocks, if that makes room.
    fn find_room<'c>(&mut self, change: &FrontendChange<'c>) -> Result<Placement<'c>, Shortage> {
        let slots = i64::from(self.realized.slots()) + change.growth();
        if change.growth() > 0 && slots > i64::from(self.realized.capacity().endpoints) {
            return Err(Shortage::Endpoints);
        }
        if let Ok(placement) = Placement::find(&self.realized, self.realized.allocations(), change)
        {
            return Ok(placement);
        }
        let mut after_wait = self.realized.allocations().after_wait();
        match Placement::find(&self.realized, &after_wait, change) {
            Err(Shortage::Endpoints) => {
                let added = change.added().count();
                let free = after_wait.backends.each().take(added).count();
                self.retire_kept_for_room(added - free);
                after_wait = self.realized.allocations().after_wait();
            }
            Err(Shortage::Clusters) => {
                self.retire_kept_for_room(usize::MAX);
                after_wait = self.realized.allocations().after_wait();
            }
            _ => {}
        }
        match Placement::find(&self.realized, &after_wait, change) {
            Ok(_) => self.push(Step::WaitForReaders),
            Err(Shortage::Slots) => self.compact(),
            Err(shortage) => return Err(shortage),
        }
        Placement::find(&self.realized, self.realized.allocations(), change)
    }

    /// Moves blocks down, until none fits into a free run below it.
    ///
    /// Then each run between blocks is shorter than the block above it, so that all blocks and runs
    /// take less than twice the endpoints. `slots` has room for twice the endpoints and twice the spare
    /// ones: twice the spare ones at least are free above, in one piece.
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
                let block = self.realized.allocations().blocks.find(former.count);
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

    fn create(&mut self, change: &FrontendChange<'_>, placement: Placement<'_>) {
        let (flags, affinity_seconds) = attributes(change.frontend);
        let (key, index, service) = (change.key, placement.index, placement.service);
        self.write_service(change, service);
        let extent = self.write_block(change, placement);
        let state =
            FrontendState { key, extent, service, flags, affinity_seconds, ..Zeroable::zeroed() };
        self.write(Step::WriteState { index, state: state.into() });
        self.push(Step::InsertFrontend { key, index });
    }

    fn update(&mut self, change: &FrontendChange<'_>, placement: Placement<'_>) {
        let (index, service) = (placement.index, placement.service);
        if change.changes_backends() {
            let extent = self.write_block(change, placement);
            self.push(Step::Flip { index, extent });
        }
        if change.changes_attributes(&self.realized) {
            self.write_service(change, service);
            let (flags, affinity_seconds) = attributes(change.frontend);
            self.push(Step::UpdateAttributes { index, service, flags, affinity_seconds });
        }
        self.keep_or_retire();
    }

    fn write_service(&mut self, change: &FrontendChange<'_>, id: u32) {
        self.write_name(NameMap::Services, id, NameRecord::of_import(&change.frontend.import));
    }

    fn write_name(&mut self, map: NameMap, id: u32, name: NameRecord) {
        self.write(Step::WriteName { map, id, record: name.into() });
    }

    /// Writes the added backends and a block with the ids of all.
    fn write_block(&mut self, change: &FrontendChange<'_>, placement: Placement<'_>) -> Extent {
        for (name, &id) in &placement.clusters {
            self.write_name(NameMap::Clusters, id, NameRecord::of_cluster(name));
        }
        let mut free = placement.ids.into_iter();
        let mut ids = Vec::with_capacity(change.count() as usize);
        for planned in &change.backends {
            let id = match planned.origin {
                Origin::Own { id, .. } => id,
                Origin::Kept(id) => {
                    self.push(Step::ResumeBackend { id });
                    id
                }
                Origin::Added(backend) => {
                    let Some(id) = free.next() else { continue };
                    let cluster = placement.clusters.get(&*backend.cluster).copied().unwrap_or(0);
                    self.write_backend(id, backend, placement.index, cluster);
                    id
                }
            };
            ids.extend(iter::repeat_n(id, planned.slots as usize));
        }
        let extent = Extent { block: placement.block, count: change.count() };
        if !ids.is_empty() {
            self.write(Step::WriteSlots { block: placement.block, ids });
        }
        extent
    }

    /// Writes a backend at a free id, with a generation that was never used there.
    ///
    /// A plan that ended early may have written the same backend already. No slot named it, so its generation is still
    /// unused.
    fn write_backend(&mut self, id: u32, wanted: &model::Backend, frontend: u32, cluster: u32) {
        let former = self.realized.backend(id);
        let same = BackendRecord {
            addr: wanted.address.ip().into(),
            port: wanted.address.port(),
            state: BackendState::ACTIVE,
            column: 0,
            frontend,
            cluster,
            generation: former.generation,
        };
        if same != former {
            let backend = BackendRecord { generation: former.generation.wrapping_add(1), ..same };
            self.push(Step::WriteBackend { id, backend });
        }
    }

    /// Adds a write to a place that no reader can reach, unless the map holds the same there.
    fn write(&mut self, step: Step) {
        if !self.realized.holds(&step) {
            self.push(step);
        }
    }

    fn push(&mut self, step: Step) {
        self.realized.to_mut().record(&step);
        self.plan.steps.push(step);
    }

    fn defer(&mut self, subject: &dyn Display, shortage: Shortage) {
        self.plan.deferred.push(Deferred { subject: subject.to_string(), shortage });
    }
}
