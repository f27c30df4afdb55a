use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use mcs_common::Address;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, timeout_at},
};

use super::{
    AgentInfo, Config, LOOK_INTERVAL, Report, Usage, addresses,
    attachment::{Attached, Attachment},
    audit::{self, Auditor},
    heap,
    pace::{Pace, thread_cpu},
    programs::Dataplane,
    repairs::Repairs,
    report::MANIFESTS,
    stale::{self, Next, StaleUdp},
    sweeper::Sweeper,
    unwritten::Unwritten,
    vitals::Vitals,
};
use crate::{
    dataplane::{KernelMaps, StorageFallback, UdpConnection},
    desired::Rules,
    flows::FlowUsage,
    loader::state_bytes,
    model::{
        Capacity, DesiredChanges, DesiredState, EventBatch, ImportReport, Kind, Memory,
        NodeContext, NodeFacts, Rejection, SourceStatus,
    },
    reconcile::{Contents, Maps as _, Plan, Realized, apply, plan_within},
    store::{Change, ChangeKind, ObjectStore},
};

/// The report lags behind the maps by this, so that it tells of changes that come together.
const REPORT_DELAY: Duration = Duration::from_millis(100);
/// Writes after which the heap may be much larger than what is kept.
const LARGE_PLAN: usize = 10_000;
/// What a report says of objects, and the file that it is written to, rest for so many times the CPU time
/// that they took: with many imports and changes all the time they lag by more.
const OBJECTS_REST: u32 = 200;
const LONGEST_OBJECTS_REST: Duration = Duration::from_secs(10);
/// What judges all imports rests for so many times as long as it took: many that come one by one are
/// judged some at a time.
const WHOLE_RESTS: u32 = 3;
const LONGEST_WHOLE_REST: Duration = Duration::from_secs(1);
/// How often what is ours is compared with what is held: a program that was detached misses
/// connections until then.
const GUARD_INTERVAL: Duration = Duration::from_secs(1);
/// Waits between attempts to write what failed.
const RETRY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(5);

/// The state that one task owns and changes.
pub(super) struct Control {
    store: ObjectStore,
    /// What flags say of the node.
    flags: NodeFacts,
    node: NodeContext,
    max_memory: Memory,
    /// What was found in the maps, until something is known to be wanted.
    found: DesiredState,
    rules: Rules,
    /// Where the maps may hold other than is desired.
    unplanned: DesiredChanges,
    realized: Realized,
    dataplane: Dataplane,
    pending: Vec<String>,
    agent: AgentInfo,
    began: SystemTime,
    synced: bool,
    retry_after: Duration,
    retry_at: Option<Instant>,
    report_at: Option<Instant>,
    /// What is said of objects.
    told: Told,
    tells: Pace,
    wholes: Pace,
    fallback: StorageFallback,
    state_map_bytes: u64,
    sweeper: Sweeper,
    flows: Option<FlowUsage>,
    stale_udp: StaleUdp,
    vitals: Arc<Vitals>,
    unwritten: Unwritten,
    source_lost: BTreeMap<String, u64>,
    repairs: Repairs,
    auditor: Auditor<<KernelMaps as Contents>::Walk>,
    attachment: Attachment,
}

impl Control {
    pub(super) fn new(
        config: &Config,
        dataplane: Dataplane,
        vitals: Arc<Vitals>,
    ) -> anyhow::Result<Self> {
        let realized = restore(&dataplane)?;
        let mut node = config.node_context();
        node.node_addresses =
            addresses::of_this_node().context("cannot read this node's addresses")?;
        let sweeper =
            Sweeper::new(&dataplane.pins.state()).context("cannot open the flow table")?;
        let stale_udp = StaleUdp::new(dataplane.pins.state(), config.stale_udp);
        let now = seconds_since_epoch();
        let agent = AgentInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            host: dataplane.host.clone(),
            started: now,
            updated: now,
        };
        Ok(Self {
            store: ObjectStore::default(),
            flags: config.node.clone(),
            node,
            max_memory: config.max_memory,
            found: realized.in_force(),
            rules: Rules::default(),
            unplanned: DesiredChanges::Everything,
            realized,
            dataplane,
            pending: Vec::new(),
            agent,
            began: SystemTime::now(),
            synced: false,
            retry_after: *RETRY.start(),
            retry_at: None,
            report_at: None,
            told: Told::default(),
            tells: Pace::new(OBJECTS_REST, LONGEST_OBJECTS_REST),
            wholes: Pace::new(WHOLE_RESTS, LONGEST_WHOLE_REST),
            fallback: StorageFallback::new(std::time::Instant::now()),
            state_map_bytes: state_bytes(config.flows),
            sweeper,
            flows: None,
            stale_udp,
            vitals,
            unwritten: Unwritten::default(),
            source_lost: BTreeMap::new(),
            repairs: Repairs::default(),
            auditor: Auditor::new(),
            attachment: Attachment::default(),
        })
    }

    /// Follows the source until it ends.
    pub(super) async fn run(
        &mut self,
        mut batches: mpsc::Receiver<EventBatch>,
    ) -> anyhow::Result<()> {
        self.report();
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut guard = tokio::time::interval(GUARD_INTERVAL);
        guard.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut audit = tokio::time::interval(audit::INTERVAL);
        audit.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.vitals.beat();
            tokio::select! {
                batch = batches.recv() => {
                    let Some(batch) = batch else { return Ok(()) };
                    self.take(batch);
                    self.gather(&mut batches).await;
                    self.reconcile();
                }
                () = at(self.retry_at) => self.reconcile(),
                () = at(self.report_at) => self.report(),
                changed = self.dataplane.packets.changed() => {
                    changed?;
                    self.report_soon();
                }
                swept = self.sweeper.next(), if !self.dataplane.is_outdated() => {
                    self.note_flows(swept);
                }
                next = self.stale_udp.next() => match next {
                    Next::Listed(connections) => self.destroy_stale(connections),
                    Next::Reported => self.report_soon(),
                },
                () = self.vitals.listeners_changed() => self.report_soon(),
                _ = guard.tick() => self.look_after(),
                _ = audit.tick() => {
                    self.audit();
                    self.prove_attachment().await;
                }
                _ = look.tick() => {
                    self.refresh_addresses();
                    self.end_fallback();
                }
            }
        }
    }

    /// Takes what else waits; and if all imports are to be judged for that, what comes until they may be.
    async fn gather(&mut self, batches: &mut mpsc::Receiver<EventBatch>) {
        loop {
            while let Ok(batch) = batches.try_recv() {
                self.take(batch);
            }
            if !self.rules.needs_full_round(&self.store.snapshot(), self.store.dirty()) {
                return;
            }
            match timeout_at(self.wholes.next(), batches.recv()).await {
                Ok(Some(batch)) => self.take(batch),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn take(&mut self, batch: EventBatch) {
        for problem in &batch.status.problems {
            if !self.store.source().problems.contains(problem) {
                tracing::warn!("{}: {}", problem.place, problem.message);
            }
        }
        self.node.learn(self.flags.clone().or(batch.node.clone()));
        self.note_contact(&batch.status);
        let changes = self.store.apply(batch);
        self.note_changes(&changes);
        if self.synced {
            changes.iter().for_each(log_change);
        }
    }

    /// Since when what cannot be read now.
    fn note_contact(&mut self, status: &SourceStatus) {
        let is_lost = |place: &str| status.problems.iter().any(|problem| problem.place == place);
        let lost: Vec<(&str, Option<u64>)> = if status.kinds.is_empty() {
            status.problems.first().map(|_| (MANIFESTS, None)).into_iter().collect()
        } else {
            let kinds = status.kinds.iter();
            let lost = kinds.filter(|kind| kind.known_until.is_some() || is_lost(&kind.resource));
            lost.map(|kind| (&*kind.resource, kind.known_until)).collect()
        };
        let now = seconds_since_epoch();
        let noticed = |resource| self.source_lost.get(resource).copied().unwrap_or(now);
        self.source_lost = lost
            .into_iter()
            .map(|(resource, known)| {
                (resource.to_owned(), known.unwrap_or_else(|| noticed(resource)))
            })
            .collect();
    }

    fn note_changes(&mut self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let objects = self.store.snapshot();
        let mut imports = 0;
        for Change { object, kind } in changes {
            match object.kind {
                Kind::ServiceImport => {
                    imports += 1;
                    self.unwritten.add_import();
                }
                Kind::EndpointSlice if *kind == ChangeKind::Removed => {
                    self.unwritten.add_deletion(&object.key);
                }
                Kind::EndpointSlice => {
                    let trigger = objects.slice(&object.key).and_then(|slice| slice.trigger.0);
                    // What happened before is not this agent's doing.
                    let trigger = trigger.filter(|trigger| *trigger > self.began);
                    self.unwritten.add_slice(&object.key, trigger);
                }
            }
        }
        self.vitals.changed();
        self.vitals.metrics.queue(imports, changes.len() - imports, &self.unwritten);
    }

    fn refresh_addresses(&mut self) {
        match addresses::of_this_node() {
            Ok(addresses) if addresses == self.node.node_addresses => {}
            Ok(addresses) => {
                self.node.node_addresses = addresses;
                self.reconcile();
            }
            Err(error) => {
                tracing::warn!("cannot read this node's addresses: {error}; keeping those known");
            }
        }
    }

    /// Puts right what others have harmed.
    fn look_after(&mut self) {
        let looked = self.dataplane.look_after();
        if self.repairs.note(looked, seconds_since_epoch()) {
            self.attachment.ask_again();
            self.report_soon();
        }
    }

    /// Compares some of what the maps hold with what was written there.
    fn audit(&mut self) {
        let capacity = self.dataplane.capacity();
        if self.auditor.go_on(&self.realized, &mut self.dataplane.maps, capacity) {
            self.report_soon();
        }
    }

    /// Finds out some more of whether the socket programs are effective.
    async fn prove_attachment(&mut self) {
        if self.attachment.is_due() {
            // What was found in the maps may be no VIP at all.
            let held = &self.realized.tables().vips;
            let wanted = &self.rules.desired().vips;
            let vips = || wanted.iter().copied().filter(|ip| held.contains(&Address::from(*ip)));
            let vips = [vips().find(IpAddr::is_ipv4), vips().find(IpAddr::is_ipv6)];
            self.attachment.begin(Attached {
                cgroup: &self.dataplane.cgroup,
                programs: self.dataplane.hook_programs(),
                vips: vips.into_iter().flatten().collect(),
                errno: if self.dataplane.features.set_retval {
                    libc::ECONNREFUSED
                } else {
                    libc::EPERM
                },
            });
        }
        let programs = || self.dataplane.hook_programs();
        if self.attachment.go_on(seconds_since_epoch(), programs).await {
            self.report_soon();
        }
    }

    fn end_fallback(&mut self) {
        let state = self.dataplane.pins.state();
        match self.fallback.look(&state, std::time::Instant::now()) {
            Ok(false) => {}
            Ok(true) => tracing::info!("sockets have storage again: the fall-back for all is off"),
            Err(error) => tracing::warn!("cannot look after the fall-back of sockets: {error}"),
        }
    }

    fn note_flows(&mut self, swept: io::Result<FlowUsage>) {
        match swept {
            Ok(usage) => {
                self.flows = Some(usage);
                self.report_soon();
            }
            Err(error) => tracing::warn!("cannot sweep the flow table: {error}; trying again"),
        }
    }

    /// Before everything was read, nothing is known to have been removed.
    fn destroy_stale(&mut self, connections: Vec<UdpConnection>) {
        if self.synced {
            let stale = stale::stale(connections, self.rules.desired(), &self.realized);
            self.stale_udp.destroy(stale);
        }
    }

    fn report_soon(&mut self) {
        let soon = Instant::now() + REPORT_DELAY;
        self.report_at = Some(self.report_at.map_or(soon, |at| at.min(soon)));
    }

    /// Computes what is wanted and writes what differs. What fails is tried again.
    fn reconcile(&mut self) {
        let started = Instant::now();
        let dirty = self.store.take_dirty();
        let found = (!self.synced).then_some(&self.found);
        let round = self.rules.evaluate(&self.store.snapshot(), &dirty, &self.node, found);
        for rejection in &round.new_rejections {
            tracing::info!(reason = %rejection.reason, "{} rejected: {}", rejection.object, rejection.message);
        }
        let is_whole = round.changes == DesiredChanges::Everything;
        self.unplanned.extend(round.changes);
        let synced = self.store.synced();
        self.pending.clear();
        if let Err(error) = self.write(synced) {
            let error = format!("{error:#}");
            tracing::warn!("{error}; trying again in {:?}", self.retry_after);
            self.pending.push(error);
        }
        if self.pending.is_empty() {
            // Before everything was read, what is superfluous stays.
            self.unplanned =
                if synced { DesiredChanges::default() } else { DesiredChanges::Everything };
            self.vitals.written();
            let written = std::mem::take(&mut self.unwritten);
            self.vitals.metrics.succeed(started.elapsed(), &written);
            self.retry_after = *RETRY.start();
            self.retry_at = None;
        } else {
            self.unplanned = DesiredChanges::Everything;
            self.vitals.changed();
            self.vitals.metrics.fail(started.elapsed());
            self.retry_at = Some(Instant::now() + self.retry_after);
            self.retry_after = (self.retry_after * 2).min(*RETRY.end());
        }
        if synced && !self.synced {
            self.synced = true;
            self.found = DesiredState::default();
            // What an earlier agent removed, and what went while there was none.
            self.stale_udp.removed();
            tracing::info!(
                imports = self.rules.desired().imports.len(),
                frontends = self.rules.desired().frontends.len(),
                rejections = self.rules.desired().rejections.len(),
                "synced"
            );
        }
        if is_whole {
            self.wholes.worked(started.elapsed());
        }
        self.report_soon();
    }

    /// Writes what differs, to larger maps if it takes them.
    fn write(&mut self, synced: bool) -> anyhow::Result<()> {
        let started = Instant::now();
        self.dataplane.finish_switch().context("cannot switch to larger maps")?;
        let need = Usage::of(&self.rules).capacity().at_least(self.realized.used());
        let mut made = self.make_room(need);
        let mut plan = self.plan(synced);
        if made.is_ok() {
            // What is there already and what is wanted may not fit at the same time, or in a row.
            made = self.make_room(self.shortage(&plan));
            if matches!(made, Ok(true)) {
                plan = self.plan(synced);
            }
        }
        self.dataplane.finish_switch().context("cannot switch to larger maps")?;
        self.pending.extend(plan.deferred.iter().map(ToString::to_string));
        if stale::is_removed_by(&plan, &self.realized) {
            self.stale_udp.removed();
        }
        apply(&plan, &mut self.dataplane.maps, &mut self.realized)?;
        if !plan.steps.is_empty() {
            let micros = started.elapsed().as_micros();
            tracing::debug!(steps = plan.steps.len(), micros, "maps written");
        }
        if synced {
            self.dataplane.filled()?;
        }
        if plan.steps.len() >= LARGE_PLAN {
            drop(plan);
            heap::trim();
        }
        made.map(drop)
    }

    fn plan(&self, synced: bool) -> Plan {
        plan_within(&self.unplanned, self.rules.desired(), &self.realized, synced)
    }

    /// Moves to larger maps if there is no room for `need` in those that there are, and more is
    /// allowed. Returns whether it did.
    fn make_room(&mut self, need: Capacity) -> anyhow::Result<bool> {
        let have = self.dataplane.capacity();
        if have != self.realized.capacity() {
            // An earlier attempt got no further than to the maps.
            self.begin_anew()?;
        }
        let capacity = have.grown(need, self.node.capacity);
        if capacity == have {
            return Ok(false);
        }
        let started = Instant::now();
        self.dataplane.resize(capacity).context("cannot move to larger maps")?;
        self.begin_anew()?;
        let micros = started.elapsed().as_micros();
        tracing::info!(
            frontends = capacity.frontends,
            endpoints = capacity.endpoints,
            clusters = capacity.clusters,
            micros,
            "moved to larger maps"
        );
        Ok(true)
    }

    /// Looks at what the maps hold as at a start.
    fn begin_anew(&mut self) -> anyhow::Result<()> {
        self.realized = restore(&self.dataplane)?;
        self.unplanned = DesiredChanges::Everything;
        self.auditor.begin_anew();
        Ok(())
    }

    /// One more than there is of all that the plan has found no room for.
    fn shortage(&self, plan: &Plan) -> Capacity {
        let have = self.dataplane.capacity();
        plan.deferred
            .iter()
            .fold(Capacity::NONE, |need, deferred| need.at_least(deferred.shortage.more_than(have)))
    }

    fn report(&mut self) {
        let before = thread_cpu();
        self.report_at = None;
        self.agent.updated = seconds_since_epoch();
        let tells = Instant::now() >= self.tells.next();
        if tells {
            self.told = Told::of(self.rules.desired());
        }
        let totals = self.rules.totals();
        let report = Arc::new(Report {
            agent: self.agent.clone(),
            synced: self.synced,
            source: self.store.source().clone(),
            node_name: self.node.node_name.clone(),
            node: self.node.facts(),
            socket_lb: self.dataplane.socket_lb,
            tc: self.dataplane.packets.report(),
            cgroup_path: self.dataplane.cgroup.path.clone(),
            cgroup_id: self.dataplane.cgroup.id,
            features: self.dataplane.features,
            capacity: self.dataplane.capacity(),
            max_memory: self.max_memory,
            max_capacity: self.node.capacity,
            usage: Usage::of(&self.rules),
            config_map_bytes: self.dataplane.capacity().memory().0,
            state_map_bytes: self.state_map_bytes,
            flows: self.flows.clone(),
            stale_udp: self.stale_udp.report().clone(),
            imports: Arc::clone(&self.told.imports),
            rejections: Arc::clone(&self.told.rejections),
            outdated: self.dataplane.is_outdated(),
            pending: self.pending.clone(),
            refusing: totals.refusing,
            backends: totals.clusters.clone(),
            source_lost: self.source_lost.clone(),
            repairs: self.repairs.clone(),
            attachment: self.attachment.report.clone(),
            audit: self.auditor.report.clone(),
            listeners: self.vitals.listeners(),
        });
        self.vitals.publish(Arc::clone(&report));
        if !tells {
            self.report_at = Some(self.tells.next());
            return;
        }
        if let Err(error) = report.write(&self.dataplane.run_directory) {
            tracing::warn!("{:#}; trying again", anyhow::Error::new(error));
            self.report_at = Some(Instant::now() + LOOK_INTERVAL);
        }
        // On a busy node a short report may last long.
        self.tells.worked(thread_cpu().saturating_sub(before));
    }
}

/// What reports say of objects.
#[derive(Default)]
struct Told {
    imports: Arc<Vec<Arc<ImportReport>>>,
    rejections: Arc<Vec<Rejection>>,
}

impl Told {
    fn of(desired: &DesiredState) -> Self {
        Self {
            imports: desired.imports.clone().into(),
            rejections: desired.rejections.clone().into(),
        }
    }
}

/// What the maps hold, as far as it is whole.
fn restore(dataplane: &Dataplane) -> anyhow::Result<Realized> {
    let dump = dataplane.maps.dump().context("cannot read the pinned maps")?;
    let (realized, findings) = Realized::restore(dump, dataplane.capacity());
    for finding in &findings {
        tracing::warn!("in the pinned maps: {finding}; repairing");
    }
    Ok(realized)
}

fn log_change(change: &Change) {
    let what = match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Updated => "updated",
        ChangeKind::Removed => "removed",
        ChangeKind::Malformed => "malformed",
    };
    match change.object.kind {
        Kind::ServiceImport => tracing::info!("{} {what}", change.object),
        Kind::EndpointSlice => tracing::debug!("{} {what}", change.object),
    }
}

pub(super) async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
