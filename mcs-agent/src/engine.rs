//! The engine: takes batches of objects, applies the rules, plans, and writes the maps. It retries
//! what fails, and moves to larger maps before the maps are full.
//!
//! It does no I/O of its own and reads no clock: the maps and the time are arguments. So tests drive
//! the same code as the agent.

mod departed;
mod maps;
mod mirror;
mod pace;
mod pending;
mod retry;
mod round;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod throttle;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;

use self::{departed::DepartedVips, pace::Pace, retry::Retry, throttle::Throttle};
pub use self::{
    departed::REFUSED_FOR,
    maps::GrowableMaps,
    mirror::Mirror,
    pending::PendingChanges,
    round::{Move, Outcome, RoundSummary, Taken},
    usage::Usage,
};
use crate::{
    desired::{Rules, Totals},
    model::{
        AdoptableGroup, AdoptableObjects, Capacity, Departure, DesiredChanges, DesiredState,
        EventBatch, Kind, NodeContext, NodeFacts, Protocol, SourceProblem, SourceStatus,
    },
    reconcile::{
        DamagedFrontend, Foreseen, MapError, MapReader as _, Plan, Pruning, Realized, Step,
        Subject, apply, plan_within,
    },
    store::{Change, ChangeKind, DirtyObjects, ObjectStore},
};

/// A full round, or a round during growth, is followed by a rest of so many times its duration:
/// changes that come one by one are evaluated some at a time.
const RESTS_AFTER_ROUND: u32 = 3;
const LONGEST_REST: Duration = Duration::from_secs(1);
/// During growth every round plans everything. A change still has to reach the maps within a second.
const LONGEST_REST_IN_GROWTH: Duration = Duration::from_millis(500);

/// Steps after which a plan ends, and another follows once they are written: these take 20 MiB.
const PART: usize = 1 << 19;

/// From batches of objects to the maps.
#[derive(Debug)]
pub struct Engine {
    store: ObjectStore,
    /// What is known of the node without the source.
    configured: NodeContext,
    /// What the source says of the node.
    learned: Arc<NodeFacts>,
    /// Both: what is configured takes precedence.
    node: NodeContext,
    /// Triggers before this are not the agent's latency.
    began: SystemTime,
    rules: Rules,
    /// What the maps contained at the start. The rules respect it until the source is synced.
    found: DesiredState,
    /// Where the maps may differ from the desired state.
    unplanned: DesiredChanges,
    realized: Realized,
    departed: DepartedVips,
    synced: bool,
    changes: PendingChanges,
    pending: Vec<String>,
    retry: Retry,
    /// When larger maps are made that could not be made before, while there is still room.
    growth_retry: Retry,
    /// Steps after which a plan ends.
    part: usize,
    pace: Pace,
    full_rounds: Throttle,
    growth_rounds: Throttle,
    /// When the move to larger maps began that is under way.
    growing_since: Option<Instant>,
}

impl Engine {
    /// Adopts the maps as an earlier agent left them. Returns the damaged frontends too: the first
    /// round repairs them.
    ///
    /// `node` is what is known of the node without the source, and `node.capacity` is what the maps
    /// may grow to. `began` is when the agent started.
    pub fn start(
        maps: &impl GrowableMaps,
        node: NodeContext,
        began: SystemTime,
    ) -> Result<(Self, Vec<DamagedFrontend>), MapError> {
        let (realized, findings) = Realized::restore(maps.reader().read_all()?, maps.capacity());
        let engine = Self {
            store: ObjectStore::default(),
            configured: node.clone(),
            learned: Arc::default(),
            node,
            began,
            rules: Rules::default(),
            departed: DepartedVips::restore(&realized.departed()),
            found: realized.in_force(),
            unplanned: DesiredChanges::Everything,
            realized,
            synced: false,
            changes: PendingChanges::default(),
            pending: Vec::new(),
            retry: Retry::default(),
            growth_retry: Retry::default(),
            part: PART,
            pace: Pace::default(),
            full_rounds: Throttle::new(RESTS_AFTER_ROUND, LONGEST_REST),
            growth_rounds: Throttle::new(RESTS_AFTER_ROUND, LONGEST_REST_IN_GROWTH),
            growing_since: None,
        };
        Ok((engine, findings))
    }

    /// Lets rounds that follow from batches begin at least `period` apart. Without this call they may follow at once.
    pub const fn set_min_sync_period(&mut self, period: Duration) {
        self.pace.set_period(period);
    }

    /// Lets a plan end after fewer steps than it would.
    #[cfg(any(test, feature = "testing"))]
    pub const fn set_part(&mut self, steps: usize) {
        self.part = steps;
    }

    /// Takes a batch into the store. A round is due, see [`Engine::gather_until`].
    pub fn take(&mut self, batch: EventBatch) -> Taken {
        let (known, now) = (Arc::clone(self.store.source()), Arc::clone(&batch.status));
        if batch.node != self.learned {
            self.learned = Arc::clone(&batch.node);
            self.combine_facts();
        }
        let changes = self.store.apply(batch);
        let imports = self.note(&changes);
        let taken = Taken { changes, imports, ..Taken::default() };
        if Arc::ptr_eq(&known, &now) {
            return taken;
        }
        let is_new = |problem: &&SourceProblem| !known.problems.contains(problem);
        let problems = now.problems.iter().filter(is_new).cloned().collect();
        let is_new = |objects: &&AdoptableObjects| {
            known.adoptable.iter().all(|one| one.controller != objects.controller)
        };
        let adoptable = now.adoptable.iter().filter(is_new).cloned().collect();
        let is_new = |group: &&AdoptableGroup| !known.adoptable_groups.contains(group);
        let adoptable_groups = now.adoptable_groups.iter().filter(is_new).cloned().collect();
        Taken { problems, adoptable, adoptable_groups, ..taken }
    }

    /// Adds to the pending changes. Returns how many are of ServiceImports.
    fn note(&mut self, changes: &[Change]) -> usize {
        let objects = self.store.snapshot();
        let before = self.changes.imports();
        for Change { object, kind } in changes {
            match object.kind {
                Kind::ServiceImport | Kind::Service => self.changes.add_import(),
                Kind::EndpointSlice if *kind == ChangeKind::Removed => {
                    self.changes.add_deletion(&object.key);
                }
                Kind::EndpointSlice => {
                    let trigger = objects.slice(&object.key).and_then(|slice| slice.trigger_time);
                    let trigger = trigger.filter(|trigger| *trigger > self.began);
                    self.changes.add_slice(&object.key, trigger);
                }
            }
        }
        self.changes.imports() - before
    }

    /// Until when to take more batches before the next round: one that would follow another too soon waits, and a full
    /// round, or a round during growth, waits longer. `None`: no longer than batches are there already.
    pub fn gather_until(&self) -> Option<Instant> {
        let growth = self.growth_rounds.next().filter(|_| self.growing_since.is_some());
        let until = self.pace.next().max(growth);
        // Whether the round is full takes a while to find out, and most of the time the rest after a full round is over.
        let full = self.full_rounds.next().filter(|full| Some(*full) > until);
        let is_full =
            |_: &Instant| self.rules.needs_full_round(&self.store.snapshot(), self.store.dirty());
        full.filter(is_full).max(until)
    }

    /// Replaces the addresses of the node's interfaces. Returns whether a round is due.
    pub fn set_node_addresses(&mut self, addresses: BTreeSet<IpAddr>) -> bool {
        let is_new = addresses != self.configured.node_addresses;
        if is_new {
            self.set_node(NodeContext { node_addresses: addresses, ..self.configured.clone() });
        }
        is_new
    }

    /// Replaces what is known of the node without the source. A round is due.
    pub fn set_node(&mut self, configured: NodeContext) {
        self.configured = configured;
        self.combine_facts();
    }

    fn combine_facts(&mut self) {
        self.node.clone_from(&self.configured);
        self.node.learn(self.configured.facts().or(NodeFacts::clone(&self.learned)));
    }

    /// Evaluates the objects and writes what differs. `clock` returns the time.
    ///
    /// Due after batches, when [`Engine::retry_at`] is reached, when larger maps are made, and when a switch to them
    /// is complete.
    pub fn reconcile(
        &mut self,
        maps: &mut impl GrowableMaps,
        clock: impl Fn() -> Instant,
    ) -> RoundSummary {
        let mut round = RoundSummary::begin(clock());
        let was_growing = self.growing_since.is_some();
        if !self.synced && self.store.synced() && self.growing_since.is_none() {
            self.prepare_for_lists(maps);
        }
        let is_full = self.evaluate(&mut round);
        let settled = self.write(maps, &clock, &mut round);
        let ended = clock();
        round.took = ended.duration_since(round.started);
        if is_full {
            self.full_rounds.worked(ended, round.took);
        }
        self.conclude(&mut round, settled, ended);
        // A round that made maps need not delay the changes after it, and one after which nothing waits is short.
        if was_growing && round.moves.is_empty() && !self.pending.is_empty() {
            self.growth_rounds.worked(ended, round.took);
        }
        round
    }

    /// Lets larger maps be made for the first lists before the rules say how large. They are the right ones if the rules
    /// use what is listed.
    fn prepare_for_lists(&self, maps: &mut impl GrowableMaps) {
        let (have, listed) = (maps.capacity(), self.store.snapshot().listed());
        let capacity = have.grown(listed.with_headroom(), self.node.capacity);
        if capacity != have {
            maps.prepare(capacity, self.realized.contents());
        }
    }

    /// Applies the rules to what has changed. Returns whether it was a full round.
    fn evaluate(&mut self, round: &mut RoundSummary) -> bool {
        let dirty = self.store.take_dirty();
        // A round that no object asked for delays none.
        if dirty != DirtyObjects::default() {
            self.pace.began(round.started);
        }
        let found = (!self.synced).then_some(&self.found);
        let evaluated = self.rules.evaluate(&self.store.snapshot(), &dirty, &self.node, found);
        round.rejected = evaluated.new_rejections;
        let is_full = evaluated.changes == DesiredChanges::Everything;
        self.unplanned.extend(evaluated.changes);
        if is_full {
            self.note_departures(evaluated.departures);
        }
        is_full
    }

    /// Notes which VIPs are not served any more, and which are served again. Those that are have precedence over those
    /// that were.
    fn note_departures(&mut self, departures: BTreeMap<IpAddr, Departure>) {
        // Missing is not empty: until the source is synced, the import of a VIP may not have been read yet.
        if self.store.synced() {
            for (ip, departure) in departures {
                self.departed.add(ip, departure);
            }
        }
        for ip in self.rules.taken(self.departed.gone(), &self.store.snapshot()) {
            self.departed.add(ip, Departure::HandedBack);
        }
        let served = &self.rules.desired().vips;
        self.departed.remove_served(served);
        let room = self.node.capacity.frontends.max(self.realized.capacity().frontends) as usize;
        self.departed.limit(room.saturating_sub(served.len()));
        self.rules.set_departed(self.departed.departures());
    }

    /// Ends what is over for VIPs that are not served any more: `in_use` has the VIPs that flows used at some time after
    /// `looked_from`. Returns whether a round is due.
    pub fn note_flows(
        &mut self,
        in_use: &BTreeSet<IpAddr>,
        looked_from: Instant,
        now: Instant,
    ) -> bool {
        let changed = self.departed.expire(in_use, looked_from, now);
        if changed {
            self.rules.set_departed(self.departed.departures());
            self.unplanned = DesiredChanges::Everything;
        }
        changed
    }

    /// Writes what differs, after a move to larger maps if there is no room. Returns whether no move
    /// is under way.
    fn write(
        &mut self,
        maps: &mut impl GrowableMaps,
        clock: &impl Fn() -> Instant,
        round: &mut RoundSummary,
    ) -> bool {
        let need = self.usage().capacity().at_least(self.realized.used());
        let mut ahead = None;
        let mut growth = self.settle(maps, clock, round);
        if matches!(growth, Ok(Growth::Settled)) {
            growth = self.make_room(need, maps, clock, round, &mut ahead);
        }
        let is_settled = loop {
            let mut next = ahead.take().unwrap_or_else(|| self.foresee());
            if matches!(growth, Ok(Growth::Settled)) {
                // What the maps contain and what is desired may not fit at the same time, or not in
                // contiguous slots.
                let moves = round.moves.len();
                let need = shortage(&next.plan, maps.capacity());
                growth = self.make_room(need, maps, clock, round, &mut ahead);
                if round.moves.len() > moves {
                    drop(next);
                    next = ahead.take().unwrap_or_else(|| self.foresee());
                }
            }
            let is_settled = !matches!(growth, Ok(Growth::Making | Growth::Switching));
            if !self.write_part(next, is_settled, maps, round) {
                break is_settled;
            }
        };
        let is_making = matches!(growth, Ok(Growth::Making));
        let is_filled = round.failures.is_empty() && self.store.synced() && !is_making;
        let filled = if is_filled { maps.filled() } else { Ok(()) };
        round.failures.extend(filled.err());
        match growth {
            Ok(Growth::NotMade(error)) if round.deferred.is_empty() => {
                round.not_grown = Some((error, self.growth_retry.fail(clock())));
            }
            Ok(Growth::NotMade(error)) | Err(error) => round.failures.push(error),
            Ok(Growth::Settled | Growth::Making | Growth::Switching) => {}
        }
        is_settled
    }

    /// Carries out a plan. Returns whether there is more to plan: this one was only a part.
    fn write_part(
        &mut self,
        mut foreseen: Foreseen,
        is_settled: bool,
        maps: &mut impl GrowableMaps,
        round: &mut RoundSummary,
    ) -> bool {
        if !is_settled {
            omit_incomplete_vips(&mut foreseen, &self.realized);
        }
        let plan = &mut foreseen.plan;
        round.may_leave_stale_udp |= may_leave_stale_udp(plan, &self.realized);
        round.planned += plan.steps.len();
        round.deferred = std::mem::take(&mut plan.deferred);
        let is_part = plan.is_part;
        let applied = apply(foreseen, maps, &mut self.realized);
        let has_more = is_part && applied.is_ok();
        round.failures.extend(applied.err().map(anyhow::Error::from));
        has_more
    }

    /// Continues a move to larger maps.
    fn settle(
        &mut self,
        maps: &mut impl GrowableMaps,
        clock: &impl Fn() -> Instant,
        round: &mut RoundSummary,
    ) -> anyhow::Result<Growth> {
        match maps.finish_making(!self.synced) {
            Ok(true) => {}
            Ok(false) => return Ok(Growth::Making),
            Err(error) => {
                self.growing_since = None;
                return Ok(Growth::NotMade(error.context("cannot make larger maps")));
            }
        }
        if !maps.finish_switch().context("cannot switch to larger maps")? {
            return Ok(Growth::Switching);
        }
        let capacity = maps.capacity();
        if capacity != self.realized.capacity() {
            self.realized.enlarge(capacity);
            self.growth_retry.succeed();
            let now = clock();
            let began = self.growing_since.take().unwrap_or(now);
            round.moves.push(Move { capacity, took: now.duration_since(began) });
        }
        Ok(Growth::Settled)
    }

    /// Begins a move to larger maps if there is no room for `need` and some more, and more is allowed. While there is room
    /// for `need` itself, what failed before is tried again only when [`Engine::growth_retry`] says so.
    ///
    /// No change waits before the first lists are in the maps, and these need the room: then the move is awaited, and
    /// `ahead` becomes the plan for the larger maps, which is made meanwhile.
    fn make_room(
        &mut self,
        need: Capacity,
        maps: &mut impl GrowableMaps,
        clock: &impl Fn() -> Instant,
        round: &mut RoundSummary,
        ahead: &mut Option<Foreseen>,
    ) -> anyhow::Result<Growth> {
        let have = maps.capacity();
        let capacity = have.grown(need.with_headroom(), self.node.capacity);
        let began = clock();
        let is_waiting = self.growth_retry.at().is_some_and(|at| began < at);
        if capacity == have || (is_waiting && have.holds(need)) {
            return Ok(Growth::Settled);
        }
        self.growth_retry.begin();
        if let Err(error) = maps.grow(capacity, self.realized.contents()) {
            return Ok(Growth::NotMade(error.context("cannot make larger maps")));
        }
        self.growing_since = Some(began);
        if self.synced {
            return self.settle(maps, clock, round);
        }
        let mut larger = self.realized.clone();
        larger.enlarge(capacity);
        let foreseen = self.foresee_from(&larger);
        let growth = self.settle(maps, clock, round);
        *ahead = (self.realized.capacity() == capacity).then_some(foreseen);
        growth
    }

    /// Decides what follows from the round.
    fn conclude(&mut self, round: &mut RoundSummary, is_settled: bool, now: Instant) {
        if self.departed.written(&self.realized, now) {
            self.rules.set_departed(self.departed.departures());
        }
        let synced = self.store.synced();
        let deferred = &round.deferred;
        let is_growing = !is_settled && round.failures.is_empty();
        self.pending.clear();
        if is_growing && !deferred.is_empty() {
            self.pending.push(format!(
                "{} frontends and VIPs wait for larger maps, or for the programs on devices to be switched to them",
                deferred.len()
            ));
        } else {
            self.pending.extend(deferred.iter().map(ToString::to_string));
        }
        self.pending.extend(round.failures.iter().map(|failure| format!("{failure:#}")));
        if self.pending.is_empty() {
            // Before the source is synced, nothing is pruned: a later plan still has to.
            self.unplanned =
                if synced { DesiredChanges::default() } else { DesiredChanges::Everything };
            self.retry.succeed();
            round.outcome = Outcome::Written(std::mem::take(&mut self.changes));
        } else {
            self.unplanned = DesiredChanges::Everything;
            if is_growing {
                self.retry.succeed();
            } else {
                round.outcome = Outcome::Failed(self.retry.fail(now));
            }
        }
        round.became_synced = synced && !self.synced;
        if round.became_synced {
            self.synced = true;
            self.found = DesiredState::default();
        }
    }

    /// What a round would write now, without batches taken since the last one.
    pub fn next_plan(&self) -> Plan {
        self.foresee().plan
    }

    fn foresee(&self) -> Foreseen {
        self.foresee_from(&self.realized)
    }

    fn foresee_from(&self, realized: &Realized) -> Foreseen {
        let pruning = Pruning::once(self.store.synced());
        plan_within(&self.unplanned, self.rules.desired(), realized, pruning, self.part)
    }

    /// When the next round is due after one that failed.
    pub fn retry_at(&self) -> Option<Instant> {
        [self.retry.at(), self.growth_retry.at()].into_iter().flatten().min()
    }

    /// What the objects ask for.
    pub const fn desired(&self) -> &DesiredState {
        self.rules.desired()
    }

    /// How much that is in total.
    pub const fn totals(&self) -> &Totals {
        self.rules.totals()
    }

    /// How much of the maps it takes.
    pub fn usage(&self) -> Usage {
        Usage::of(&self.rules, &self.realized)
    }

    /// The engine's model of what the maps contain.
    pub const fn realized(&self) -> &Realized {
        &self.realized
    }

    /// What is known of the node.
    pub const fn node(&self) -> &NodeContext {
        &self.node
    }

    /// The status of the source after the latest batch.
    pub fn source(&self) -> &Arc<SourceStatus> {
        self.store.source()
    }

    /// Whether the source was read completely and a round has followed.
    pub const fn synced(&self) -> bool {
        self.synced
    }

    /// Changes that the maps do not follow yet.
    pub const fn changes(&self) -> &PendingChanges {
        &self.changes
    }

    /// Why the maps are not as desired, one reason an entry.
    pub fn pending(&self) -> &[String] {
        &self.pending
    }
}

/// How far a move to larger maps is.
enum Growth {
    /// None is under way.
    Settled,
    /// Larger maps are being made.
    Making,
    /// Programs are being switched to them.
    Switching,
    /// They could not be made.
    NotMade(anyhow::Error),
}

/// One more than the capacity of each sort that the plan had no room for.
fn shortage(plan: &Plan, have: Capacity) -> Capacity {
    plan.deferred
        .iter()
        .fold(Capacity::NONE, |need, deferred| need.at_least(deferred.shortage.more_than(have)))
}

/// Removes the insertions of VIPs with deferred frontends. Programs refuse the clients of a VIP that
/// lacks a frontend, and the next plan inserts these VIPs.
fn omit_incomplete_vips(foreseen: &mut Foreseen, realized: &Realized) {
    let plan = &mut foreseen.plan;
    let incomplete = plan.deferred.iter().filter_map(|deferred| match deferred.subject {
        Subject::Frontend(id) => Some(id.ip),
        Subject::Vip(_) => None,
    });
    let incomplete: BTreeSet<IpAddr> = incomplete.filter(|ip| !realized.has_vip(*ip)).collect();
    let is_omitted =
        |step: &Step| step.served_vip().is_some_and(|vip| incomplete.contains(&vip.to_ip()));
    if plan.steps.iter().any(is_omitted) {
        plan.steps.retain(|step| !is_omitted(step));
        foreseen.realized = realized.after(&plan.steps);
    }
}

/// Whether the plan retires a UDP backend, or creates a UDP frontend: sockets may have other backends of an
/// import that was there before.
fn may_leave_stale_udp(plan: &Plan, realized: &Realized) -> bool {
    let is_udp = |protocol| protocol == Protocol::Udp.number();
    plan.steps.iter().any(|step| match step {
        Step::RetireBackend { id } => is_udp(realized.frontend_of(*id).protocol),
        Step::InsertFrontend { key, .. } => is_udp(key.protocol),
        _ => false,
    })
}
