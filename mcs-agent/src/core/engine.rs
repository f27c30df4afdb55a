//! The engine: takes batches of objects, applies the rules, plans, and writes the maps. It retries
//! what fails, and asks for larger maps before the maps are full.
//!
//! It does no I/O of its own and reads no clock: the maps and the time are arguments. So tests drive
//! the same code as the agent.

pub(crate) mod pace;
mod round;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
pub(crate) mod tests;
mod unserved;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use self::{
    pace::{Retry, Throttle},
    unserved::{DepartedVips, DesertedFrontends},
};
pub use self::{
    round::{BatchSummary, Outcome, PendingChanges, RoundSummary, Trigger, Usage},
    unserved::REFUSED_FOR,
};
use crate::core::{
    model::{
        Capacity, Departure, DesiredChanges, DesiredState, Ejections, EndpointSlice, EventBatch,
        Kind, NodeContext, NodeFacts, ObjectKey, Parts, Protocol, SourceProblem, SourceStatus,
        Unreachable,
    },
    rules::{Preference, Rules},
    store::{ChangeKind, DirtyObjects, ObjectChange, ObjectStore},
    tables::{
        DamagedFrontend, MapError, MapReader as _, Maps, Plan, Planned, Pruning, Realized, Step,
        apply, plan_within,
    },
};

/// After a full round the engine rests for this many times the duration of the round, so that the next one takes many
/// changes at once.
const RESTS_AFTER_ROUND: u32 = 3;
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Steps after which a plan ends, and another follows once they are written: these take 20 MiB.
const MOST_STEPS: usize = 500_000;

/// Larger maps that could not be made are asked for again after a second, and then after twice the time each time.
const GROWTH_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));

/// From batches of objects to the maps.
#[derive(Debug)]
pub struct Engine {
    store: ObjectStore,
    /// What flags and this node itself say of the node.
    configured: NodeContext,
    /// What the source says of the node.
    learned: Arc<NodeFacts>,
    /// Source clusters that this node ejects, as far as their operators allow it, in which IP families.
    ejected: BTreeMap<Arc<str>, Unreachable>,
    /// Source clusters whose drain is past its deadline.
    past_deadline: BTreeSet<Arc<str>>,
    /// The three together: what is configured takes precedence.
    node: NodeContext,
    /// When the agent started. Triggers before this are not the agent's latency.
    began: SystemTime,
    rules: Rules,
    /// What the maps contained at the start. The rules respect it until the source is synced.
    found: DesiredState,
    /// Where the maps may differ from the desired state: the scope of the next plan.
    scope: DesiredChanges,
    realized: Realized,
    departed: DepartedVips,
    deserted: DesertedFrontends,
    synced: bool,
    pending_changes: PendingChanges,
    why_pending: Vec<String>,
    retry: Retry,
    growth: Retry,
    /// Why the maps are not larger yet, since the latest attempt.
    not_grown: Option<String>,
    /// Steps after which a plan ends.
    most_steps: usize,
    min_sync_period: Duration,
    /// Before this, a round that follows from batches waits for more of them.
    next_round: Option<Instant>,
    full_rounds: Throttle,
}

impl Engine {
    /// Takes over the maps as an earlier agent left them. Returns the damaged frontends too: the first
    /// round repairs them.
    ///
    /// `capacity` is the capacity of the maps, and `node.capacity` is what they may grow to. `node` is what is known of the
    /// node without the source. `began` is when the agent started.
    pub fn start(
        maps: &impl Maps,
        capacity: Capacity,
        node: NodeContext,
        began: SystemTime,
    ) -> Result<(Self, Vec<DamagedFrontend>), MapError> {
        let (realized, findings) = Realized::restore(maps.reader().read_all()?, capacity);
        let engine = Self {
            store: ObjectStore::default(),
            configured: node.clone(),
            learned: Arc::default(),
            ejected: BTreeMap::new(),
            past_deadline: BTreeSet::new(),
            node,
            began,
            rules: Rules::default(),
            departed: DepartedVips::restore(&realized.departed()),
            deserted: DesertedFrontends::default(),
            found: realized.in_force(),
            scope: DesiredChanges::Everything,
            realized,
            synced: false,
            pending_changes: PendingChanges::default(),
            why_pending: Vec::new(),
            retry: Retry::default(),
            growth: Retry::new(GROWTH_DELAYS),
            not_grown: None,
            most_steps: MOST_STEPS,
            min_sync_period: Duration::ZERO,
            next_round: None,
            full_rounds: Throttle::new(RESTS_AFTER_ROUND, LONGEST_REST),
        };
        Ok((engine, findings))
    }

    /// Lets rounds that follow from batches begin at least `period` apart. Without this call they may follow at once.
    pub const fn set_min_sync_period(&mut self, period: Duration) {
        self.min_sync_period = period;
    }

    /// Adds the preference of a feature, if it has one.
    pub(crate) fn prefer(&mut self, preference: Option<Box<dyn Preference>>) {
        self.rules.preferences.add(preference);
    }

    /// Lets a plan end after fewer steps than it would.
    #[cfg(test)]
    const fn set_most_steps(&mut self, steps: usize) {
        self.most_steps = steps;
    }

    /// Takes a batch into the store. A round is due, see [`Engine::gather_until`].
    pub fn take(&mut self, batch: EventBatch) -> BatchSummary {
        let (known, now) = (Arc::clone(self.store.source()), Arc::clone(&batch.status));
        if batch.node != self.learned {
            self.learned = Arc::clone(&batch.node);
            self.combine_facts();
        }
        let changes = self.store.apply(batch);
        let imports = self.note(&changes);
        let taken = BatchSummary { changes, imports, ..BatchSummary::default() };
        if Arc::ptr_eq(&known, &now) {
            return taken;
        }
        let is_new = |problem: &&SourceProblem| !known.problems.contains(problem);
        let problems = now.problems.iter().filter(is_new).cloned().collect();
        BatchSummary { problems, ..taken }
    }

    /// Adds to the pending changes. Returns how many are of ServiceImports.
    fn note(&mut self, changes: &[ObjectChange]) -> usize {
        let objects = self.store.snapshot();
        let before = self.pending_changes.imports();
        for ObjectChange { object, kind } in changes {
            match object.kind {
                Kind::ServiceImport | Kind::Service => self.pending_changes.add_import(),
                Kind::EndpointSlice if *kind == ChangeKind::Removed => {
                    self.pending_changes.add_deletion(&object.key);
                }
                Kind::EndpointSlice => {
                    let trigger = objects.slice(&object.key).and_then(|slice| {
                        let time = slice.trigger_time.filter(|time| *time > self.began)?;
                        Some(Trigger { time, cluster: Arc::clone(&slice.source_cluster) })
                    });
                    self.pending_changes.add_slice(&object.key, trigger);
                }
            }
        }
        self.pending_changes.imports() - before
    }

    /// Until when to take more batches before the next round: a round that would follow another too soon waits, and a full
    /// round waits longer. `None`: the next round takes the batches that have arrived, and waits for none.
    pub fn gather_until(&self) -> Option<Instant> {
        let until = self.next_round;
        // To find out whether the round is full takes a while, and mostly the rest after the last full round is over.
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

    /// Replaces the clusters that this node ejects. Returns whether a round is due.
    pub fn set_ejected_clusters(&mut self, ejected: BTreeMap<Arc<str>, Unreachable>) -> bool {
        let is_new = ejected != self.ejected;
        if is_new {
            self.ejected = ejected;
            self.combine_facts();
        }
        is_new
    }

    /// The clusters that this node ejects.
    pub const fn ejected_clusters(&self) -> &BTreeMap<Arc<str>, Unreachable> {
        &self.ejected
    }

    /// Replaces the clusters whose drain is past its deadline. Returns whether a round is due.
    pub fn set_past_deadline(&mut self, clusters: BTreeSet<Arc<str>>) -> bool {
        let is_new = clusters != self.past_deadline;
        if is_new {
            self.past_deadline = clusters;
            self.combine_facts();
        }
        is_new
    }

    /// The clusters whose drain is past its deadline.
    pub const fn past_deadline(&self) -> &BTreeSet<Arc<str>> {
        &self.past_deadline
    }

    /// Changes what is known of the node without the source. A round is due.
    pub fn configure(&mut self, change: impl FnOnce(&mut NodeContext)) {
        change(&mut self.configured);
        self.combine_facts();
    }

    /// Replaces the backends that do not answer clients of this node. Returns whether a round is due: it evaluates only the
    /// imports of backends that differ.
    pub fn set_ejections(&mut self, ejections: Ejections) -> bool {
        let is_new = ejections != self.configured.ejections;
        if is_new {
            self.configured.ejections = ejections;
            self.combine_facts();
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
        self.node.facts = self.configured.facts.clone().or(NodeFacts::clone(&self.learned));
        self.node.facts.traffic.eject(&self.ejected);
        self.node.facts.traffic.note_past_deadline(&self.past_deadline);
    }

    /// Evaluates the objects and writes what differs. `clock` returns the time.
    ///
    /// Due after batches, when [`Engine::retry_at`] is reached, and after [`RoundSummary::larger`].
    pub fn reconcile(&mut self, maps: &mut impl Maps, clock: impl Fn() -> Instant) -> RoundSummary {
        let mut round = RoundSummary::begin(clock());
        let is_full = self.evaluate(&mut round);
        let is_complete = self.write(maps, &mut round);
        let ended = clock();
        round.took = ended.duration_since(round.started);
        if is_full {
            self.full_rounds.worked(ended, round.took);
        }
        if is_complete {
            self.conclude(&mut round, ended);
        }
        round
    }

    /// Notes that larger maps of this capacity hold what the former maps held.
    pub fn has_grown(&mut self, capacity: Capacity) {
        let contents = self.realized.contents().clone();
        self.realized = Realized::restore(contents, capacity).0;
        self.end_growth();
    }

    /// Larger maps could not be made. Returns after what time they are asked for again.
    pub fn has_not_grown(&mut self, error: &anyhow::Error, now: Instant) -> Duration {
        self.not_grown = Some(format!("cannot make larger maps: {error:#}"));
        self.growth.fail(now)
    }

    /// Why the maps are not as large as they should be, since the latest attempt.
    pub fn not_grown(&self) -> Option<&str> {
        self.not_grown.as_deref()
    }

    fn end_growth(&mut self) {
        self.growth.succeed();
        self.not_grown = None;
    }

    /// Applies the rules to what has changed. Returns whether it was a full round.
    fn evaluate(&mut self, round: &mut RoundSummary) -> bool {
        let dirty = self.store.take_dirty();
        // A round that no object asked for delays none.
        if dirty != DirtyObjects::default() {
            let period = Some(self.min_sync_period).filter(|period| !period.is_zero());
            self.next_round = period.map(|period| round.started + period);
        }
        let found = (!self.synced).then_some(&self.found);
        let rules = self.rules.at(round.started);
        let evaluated = rules.evaluate(&self.store.snapshot(), dirty, &self.node, found);
        round.rejected = evaluated.new_rejections;
        let is_full = evaluated.changes == DesiredChanges::Everything;
        let (is_of_tcp, is_of_vips) = match &evaluated.changes {
            DesiredChanges::Everything => (true, true),
            DesiredChanges::Parts(Parts { frontends, vips }) => {
                (frontends.iter().any(|id| id.protocol == Protocol::Tcp), !vips.is_empty())
            }
        };
        // A TCP backend is retired before it stops serving, so no step shows that it stops.
        if (self.node.stale_tcp || self.rules.totals().bounded > 0) && is_of_tcp {
            round.may_leave_stale.insert(Protocol::Tcp);
        }
        if self.store.synced() {
            self.note_deserted(&evaluated.changes, round);
        }
        if is_of_vips {
            self.note_departures(evaluated.departures, &evaluated.changes);
        }
        self.scope.extend(evaluated.changes);
        is_full
    }

    /// Notes which frontends no endpoint serves any more, and ends the time for which their clients stay.
    fn note_deserted(&mut self, changes: &DesiredChanges, round: &mut RoundSummary) {
        let changes = if self.synced { changes } else { &DesiredChanges::Everything };
        self.deserted.follow(changes, self.rules.desired(), round.started);
        let over = self.deserted.expire(round.started);
        // A backend that was retired for lack of room can have clients too, and no step retires it again.
        round.may_leave_stale.extend(over.iter().map(|id| id.protocol));
        self.scope.extend(over.into());
        self.rules.set_deserted(Arc::clone(self.deserted.over()));
    }

    /// Notes which VIPs are not served any more, and which are served again. Served VIPs have precedence over departed ones
    /// where the maps lack room.
    fn note_departures(
        &mut self,
        departures: BTreeMap<IpAddr, Departure>,
        changes: &DesiredChanges,
    ) {
        // Missing is not empty: until the source is synced, the import of a VIP may not have been read yet.
        if self.store.synced() {
            for (ip, departure) in departures {
                self.departed.add(ip, departure);
            }
        }
        // A change that opens a departed VIP to others takes a full round.
        if *changes == DesiredChanges::Everything {
            for ip in self.rules.open_to_others(self.departed.gone(), &self.store.snapshot()) {
                self.departed.add(ip, Departure::HandedBack);
            }
        }
        let served = &self.rules.desired().vips;
        self.departed.remove_served(served, changes);
        let room = self.node.capacity.vips.max(self.realized.capacity().vips) as usize;
        self.departed.limit(room.saturating_sub(served.len()));
        let (before, now) = (&self.rules.desired().departed, self.departed.departures());
        let both = before.keys().chain(now.keys());
        let vips = both.filter(|ip| before.get(ip) != now.get(ip)).copied().collect();
        self.scope.extend(DesiredChanges::Parts(Parts { vips, ..Parts::default() }));
        self.rules.set_departed(now);
    }

    /// Ends the refusal or the hand-over of departed VIPs whose time is over. `in_use` has the VIPs that flows used at some
    /// time after `since`. Returns whether a round is due.
    pub fn note_flows(&mut self, in_use: &BTreeSet<IpAddr>, since: Instant, now: Instant) -> bool {
        let changed = self.departed.expire(in_use, since, now);
        if changed {
            self.rules.set_departed(self.departed.departures());
            self.scope = DesiredChanges::Everything;
        }
        changed
    }

    /// Writes what differs. Returns false if something needs larger maps: it is written once they are there.
    fn write(&mut self, maps: &mut impl Maps, round: &mut RoundSummary) -> bool {
        let have = self.realized.capacity();
        let may_grow = self.growth.at().is_none_or(|at| at <= round.started);
        let mut need = self.usage().capacity().at_least(self.realized.used());
        let mut room = self.with_room(have, need);
        loop {
            if may_grow && room != have && !have.holds(need) {
                round.larger = Some(room);
                return false;
            }
            let next = self.plan();
            // What the maps contain and what is desired may not fit at the same time, or not in contiguous slots.
            let shortage = shortage(&next.plan, have);
            if !need.holds(shortage) {
                need = need.at_least(shortage);
                room = self.with_room(have, need);
                if may_grow && room != have {
                    continue;
                }
            }
            if !self.write_part(next, maps, round) {
                break;
            }
        }
        round.larger = (may_grow && room != have).then_some(room);
        if room == have {
            self.end_growth();
        }
        true
    }

    /// The capacity that has room for `need` and some more, up to what the node allows.
    fn with_room(&self, have: Capacity, need: Capacity) -> Capacity {
        have.grown(need.with_headroom(), self.node.capacity)
    }

    /// Carries out a plan. Returns whether another plan is due, because this one was only a part.
    fn write_part(
        &mut self,
        mut next: Planned,
        maps: &mut impl Maps,
        round: &mut RoundSummary,
    ) -> bool {
        round.may_leave_stale.extend(may_leave_stale(&next.plan, &self.realized));
        round.planned += next.plan.steps.len();
        round.deferred = std::mem::take(&mut next.plan.deferred);
        let is_part = next.plan.is_part;
        let applied = apply(next, maps, &mut self.realized);
        let has_more = is_part && applied.is_ok();
        round.failures.extend(applied.err().map(anyhow::Error::from));
        has_more
    }

    /// Decides what follows from the round.
    fn conclude(&mut self, round: &mut RoundSummary, now: Instant) {
        if self.departed.written(&self.realized, now) {
            self.rules.set_departed(self.departed.departures());
        }
        let synced = self.store.synced();
        self.why_pending.clear();
        self.why_pending.extend(round.deferred.iter().map(ToString::to_string));
        if !self.why_pending.is_empty() {
            self.why_pending.extend(self.not_grown.clone());
        }
        self.why_pending.extend(round.failures.iter().map(|failure| format!("{failure:#}")));
        if self.why_pending.is_empty() {
            // Before the source is synced, nothing is pruned: a later plan still has to.
            self.scope =
                if synced { DesiredChanges::default() } else { DesiredChanges::Everything };
            self.retry.succeed();
            round.outcome = Outcome::Written(std::mem::take(&mut self.pending_changes));
        } else {
            self.scope = DesiredChanges::Everything;
            // Changes that wait for larger maps alone are tried again when the maps are.
            let growth = self.growth.at().filter(|_| round.failures.is_empty());
            let delay = growth.map(|at| {
                self.retry.succeed();
                at.saturating_duration_since(now)
            });
            round.outcome = Outcome::Failed(delay.unwrap_or_else(|| self.retry.fail(now)));
        }
        round.became_synced = synced && !self.synced;
        if round.became_synced {
            self.synced = true;
            self.found = DesiredState::default();
        }
    }

    /// What a round would write now, without batches taken since the last one.
    pub fn next_plan(&self) -> Plan {
        self.plan().plan
    }

    fn plan(&self) -> Planned {
        let pruning = Pruning::once(self.store.synced());
        plan_within(&self.scope, self.rules.desired(), &self.realized, pruning, self.most_steps)
    }

    /// When the next round is due without a batch: after a failed round, when a preference asks for it, or when clients have
    /// stayed long enough where no endpoint serves.
    pub fn retry_at(&self) -> Option<Instant> {
        let due = [self.retry.at(), self.growth.at(), self.rules.due(), self.deserted.due()];
        due.into_iter().flatten().min()
    }

    /// What the objects ask for.
    pub const fn desired(&self) -> &DesiredState {
        self.rules.desired()
    }

    /// The VIPs outside the ranges of ClusterSetIPs: their imports had them before the ranges changed.
    pub fn vips_outside_ranges(&self) -> BTreeSet<IpAddr> {
        let vips = self.desired().vips.iter().copied();
        vips.filter(|ip| !self.node.is_in_vip_ranges(*ip)).collect()
    }

    /// A backend with an address that a Service of this cluster can have.
    pub fn cluster_ip_backend(&self) -> Option<SocketAddr> {
        let backends = self.desired().frontends.values().flat_map(|frontend| &frontend.backends);
        let mut addresses = backends.map(|backend| backend.address);
        addresses.find(|address| self.node.facts.is_service(address.ip()))
    }

    /// How many imports are rejected for the ranges of ClusterSetIPs, if nothing is served. An address of the Service range
    /// does not count: ranges without the Service range leave it to kube-proxy on purpose.
    pub fn imports_outside_ranges(&self) -> usize {
        let node = &self.node;
        if node.accepted_vips().is_none() || !self.desired().vips.is_empty() {
            return 0;
        }
        let is_outside = |text: &String| {
            text.parse().is_ok_and(|ip| !node.is_in_vip_ranges(ip) && !node.facts.is_service(ip))
        };
        let objects = self.store.snapshot();
        objects.imports().filter(|import| import.ips.iter().any(is_outside)).count()
    }

    /// The addresses and ports that endpoints of an import have, in whatever condition they are.
    pub fn endpoints(&self, import: &ObjectKey) -> HashSet<SocketAddr> {
        self.store.snapshot().slices(import).flat_map(EndpointSlice::addresses).collect()
    }

    /// The rules with their latest result.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How much of the maps the desired state takes.
    pub fn usage(&self) -> Usage {
        Usage::of(&self.rules, &self.realized)
    }

    /// Whether any frontend is bounded.
    pub const fn is_bounded(&self) -> bool {
        self.rules.totals().bounded > 0
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
    pub const fn pending_changes(&self) -> &PendingChanges {
        &self.pending_changes
    }

    /// Why the maps are not as desired: one entry for each reason.
    pub fn why_pending(&self) -> &[String] {
        &self.why_pending
    }
}

/// One more than the capacity of each sort that the plan had no room for.
fn shortage(plan: &Plan, have: Capacity) -> Capacity {
    plan.deferred
        .iter()
        .fold(Capacity::NONE, |need, deferred| need.at_least(deferred.shortage.more_than(have)))
}

/// The protocols of the backends that the plan retires, and of the frontends that it deletes, creates or lets serve again. A
/// socket may have a backend of an import that had the frontend before, or a backend from before all endpoints were lost.
fn may_leave_stale(plan: &Plan, realized: &Realized) -> impl Iterator<Item = Protocol> {
    plan.steps.iter().filter_map(|step| match step {
        Step::RetireBackend { id } => Protocol::from_number(realized.frontend_of(*id).protocol),
        Step::DeleteFrontend(key) | Step::InsertFrontend { key, .. } => {
            Protocol::from_number(key.protocol)
        }
        step => realized.serves_again(step).and_then(|key| Protocol::from_number(key.protocol)),
    })
}
