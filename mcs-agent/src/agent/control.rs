//! The control task: waits for batches, timers and threads, lets the engine do what follows, and
//! turns what the engine returns into logs, metrics and reports.

mod clusters;
mod growth;
mod nap;
mod passive;
mod reporting;
#[cfg(test)]
mod tests;
mod trace;
mod vip_ranges;

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use ipnet::IpNet;
use mcs_kube::program;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, timeout_at},
};

use self::nap::nap;
use super::{
    address_filter::FilterRebuilds,
    addresses::{self, AddressReader},
    audit::{Auditor, Compared, Pass},
    config::POLL_INTERVAL,
    figures::ImportFigures,
    kernel::FlowSweeper,
    malloc,
    programs::InstalledPrograms,
    published::Published,
    rejections::{self, ListedRejections},
    repairs::Repairs,
    report::{AgentInfo, seconds_since_epoch},
    source_lost::SourceLost,
    status_file::StatusFile,
    trace::TraceServer,
};
use crate::{
    dataplane::StorageFallback,
    engine::{BatchSummary, Engine, Outcome, RoundSummary, throttle::Throttle},
    flows::{FlowUsage, SweepResult},
    model::{
        Capacity, EventBatch, ImportReport, Kind, ObjectKey, ObjectRef, Protocol, SourceProblem,
        SourceStatus,
    },
    passive::Passive,
    reach::{Reach, ReachEvent},
    source,
    stale::{LostSocketSlots, StaleEvent, StaleSockets},
    store::{Change, ChangeKind},
    verify::{SocketHooks, Verifier},
};

/// Writes after which the heap may be much larger than what is in use.
const LARGE_PLAN: usize = 10_000;
/// The part of a report that lists objects, and the status file, are updated again only after this many times the
/// CPU time that they took. They lag by more with many imports and constant changes.
const OBJECTS_REST: u32 = 500;
const LONGEST_OBJECTS_REST: Duration = Duration::from_secs(10);
/// How often pins, hooks and the cgroup are checked. Connections bypass a detached program until then.
const GUARD_INTERVAL: Duration = Duration::from_secs(1);
/// How often the proof that the hooks run goes on.
const PROVE_INTERVAL: Duration = Duration::from_millis(250);

/// The state of the control task.
pub(super) struct Control {
    engine: Engine,
    installed: InstalledPrograms,
    addresses: AddressReader,
    agent: AgentInfo,
    report_at: Option<Instant>,
    /// As the latest report that lists objects has them.
    imports: Arc<Vec<Arc<ImportReport>>>,
    rejections: ListedRejections,
    object_reports: Throttle,
    /// The ranges of ClusterSetIPs that the cluster had when they were last logged.
    logged_vip_ranges: Option<Vec<IpNet>>,
    status_file: StatusFile,
    fallback: StorageFallback,
    sweeper: FlowSweeper,
    flows: Option<FlowUsage>,
    stale_udp: StaleSockets,
    stale_tcp: StaleSockets,
    lost_slots: LostSocketSlots,
    filter: FilterRebuilds,
    reach: Reach,
    passive: Passive,
    trace: TraceServer,
    /// The latest problem of passive health.
    passive_trouble: Option<String>,
    /// When the figures of the flow table were reported last.
    flows_reported: Option<Instant>,
    published: Arc<Published>,
    source_lost: SourceLost,
    repairs: Repairs,
    auditor: Auditor,
    verifier: Verifier,
    /// When the maps became larger the last time, in seconds since the Unix epoch.
    grown_at: Option<u64>,
}

impl Control {
    pub(super) fn new(
        agent: AgentInfo,
        mut installed: InstalledPrograms,
        published: Arc<Published>,
    ) -> anyhow::Result<Self> {
        let config = installed.config.clone();
        let mut node = config.node_context();
        node.node_addresses =
            addresses::of_this_node().context("cannot read this node's addresses")?;
        let (mut engine, findings) =
            Engine::start(&installed, installed.capacity(), node, SystemTime::now())
                .context("cannot read the pinned maps")?;
        engine.set_min_sync_period(config.min_sync_period);
        for finding in &findings {
            tracing::warn!("in the pinned maps: {finding}; repairing");
        }
        installed.follow_figures(engine.realized());
        if let Some(figures) = &installed.figures {
            // Nobody else sets it.
            let _ = published.figures.set(ImportFigures::new(figures.shared()));
        }
        let sweeper =
            FlowSweeper::new(&installed.flow_pins()?).context("cannot open the flow table")?;
        let stale = |protocol, is_wanted| {
            StaleSockets::new(protocol, installed.options.pins.state(), is_wanted)
        };
        let stale_udp = stale(Protocol::Udp, config.stale_udp);
        let stale_tcp = stale(Protocol::Tcp, config.stale_tcp);
        let lost_slots = LostSocketSlots::new(installed.options.pins.state());
        let trace = TraceServer::start(&installed.run_directory);
        Ok(Self {
            engine,
            installed,
            addresses: AddressReader::new(),
            logged_vip_ranges: None,
            agent,
            report_at: None,
            imports: Arc::default(),
            rejections: ListedRejections::default(),
            object_reports: Throttle::new(OBJECTS_REST, LONGEST_OBJECTS_REST),
            status_file: StatusFile::default(),
            fallback: StorageFallback::new(std::time::Instant::now()),
            sweeper,
            flows: None,
            stale_udp,
            stale_tcp,
            lost_slots,
            filter: FilterRebuilds::new(),
            reach: Reach::new(config.probe_peers),
            passive: Passive::new(config.probe_peers),
            trace,
            passive_trouble: None,
            flows_reported: None,
            published,
            source_lost: SourceLost::default(),
            repairs: Repairs::default(),
            auditor: Auditor::new(),
            verifier: Verifier::default(),
            grown_at: None,
        })
    }

    /// Runs until the batches end.
    pub(super) async fn run(
        &mut self,
        mut batches: mpsc::Receiver<EventBatch>,
    ) -> anyhow::Result<()> {
        self.report();
        let mut poll = interval(POLL_INTERVAL);
        let mut guard = interval(GUARD_INTERVAL);
        let mut prove = interval(PROVE_INTERVAL);
        loop {
            self.published.life.beat();
            tokio::select! {
                batch = batches.recv() => {
                    let Some(batch) = batch else { return Ok(()) };
                    self.take(batch);
                    self.gather(&mut batches).await;
                    self.reconcile().await;
                }
                () = program::until(self.engine.retry_at().map(Instant::from_std)) => self.reconcile().await,
                () = program::until(self.report_at) => self.report(),
                written = self.status_file.written() => self.note_written(written),
                reported = self.installed.packets.reported() => {
                    reported?;
                    self.report_soon();
                }
                swept = self.sweeper.next(), if !self.installed.is_outdated() => {
                    self.note_flows(swept).await;
                }
                next = self.stale_udp.next() => self.note_stale(Protocol::Udp, next),
                next = self.stale_tcp.next() => self.note_stale(Protocol::Tcp, next),
                () = self.lost_slots.next() => {}
                found = self.filter.found() => {
                    self.filter.finish(found, &mut self.installed);
                    self.report_soon();
                }
                event = self.reach.next() => match event {
                    ReachEvent::Due => {
                        let own = self.engine.node().facts.cluster_id.as_deref();
                        let traffic = &self.engine.node().facts.traffic;
                        self.reach.begin(self.engine.desired(), own, traffic);
                    }
                    ReachEvent::Ended => {
                        if self.judge_clusters() {
                            self.reconcile().await;
                        }
                        self.report_soon();
                    }
                },
                event = self.passive.next() => {
                    if self.judge_backends(event) {
                        self.reconcile().await;
                    }
                }
                order = self.trace.next() => self.follow_trace(order).await,
                () = self.published.listeners_changed() => self.report_soon(),
                _ = guard.tick() => {
                    self.repair().await;
                    if self.judge_clusters() {
                        self.reconcile().await;
                    }
                }
                compared = self.auditor.next(|| Pass {
                    expected: self.engine.realized().contents().clone(),
                    pins: self.installed.options.pins.clone(),
                    capacity: self.engine.realized().capacity(),
                }) => self.note_audit(compared),
                _ = prove.tick() => self.prove_attachment().await,
                read = self.addresses.next() => self.set_addresses(read).await,
                _ = poll.tick() => {
                    self.end_fallback();
                    self.report_in_time();
                }
            }
        }
    }

    /// Takes batches until the engine wants its next round.
    async fn gather(&mut self, batches: &mut mpsc::Receiver<EventBatch>) {
        loop {
            while let Ok(batch) = batches.try_recv() {
                self.take(batch);
            }
            let Some(until) = self.engine.gather_until() else { return };
            std::thread::sleep(nap(until, std::time::Instant::now()));
            match timeout_at(until.into(), batches.recv()).await {
                Ok(Some(batch)) => self.take(batch),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn take(&mut self, batch: EventBatch) {
        self.source_lost.update(&batch.status, seconds_since_epoch());
        let BatchSummary { changes, imports, problems, adoptable, adoptable_groups } =
            self.engine.take(batch);
        for objects in adoptable {
            tracing::info!("{objects}");
        }
        for group in adoptable_groups {
            tracing::info!("{}", source::offer(&group));
        }
        log_problems(self.engine.source(), &problems);
        self.judge_clusters();
        if self.engine.synced() {
            self.log_vip_ranges();
            changes.iter().for_each(log_change);
        }
        if !changes.is_empty() {
            self.published.changed();
            let slices = changes.len() - imports;
            self.published.metrics.queue(imports, slices, self.engine.pending_changes());
        }
    }

    /// Runs a round of the engine, and another after each growth.
    async fn reconcile(&mut self) {
        while let Some(capacity) = self.run_round().await {
            self.grow(capacity).await;
        }
    }

    /// Runs a round of the engine. Logs and publishes its result. Returns the capacity that the next one needs.
    async fn run_round(&mut self) -> Option<Capacity> {
        let round = self.engine.reconcile(&mut self.installed, std::time::Instant::now);
        self.installed.follow_figures(self.engine.realized());
        let larger = round.larger;
        rejections::log(&round.rejected);
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            // After the first sync this covers backends that were removed while no agent ran.
            if round.became_synced || round.may_leave_stale.contains(&protocol) {
                self.stale(protocol).removed();
            }
        }
        if round.became_synced {
            self.give_sign_of_life();
        }
        if round.planned > 0 && round.failures.is_empty() {
            tracing::debug!(steps = round.planned, micros = round.took.as_micros(), "maps written");
        }
        if round.planned >= LARGE_PLAN {
            malloc::trim();
        }
        if self.engine.synced() && round.failures.is_empty() {
            self.installed.filled().await;
        }
        self.follow_backends();
        self.note_outcome(round);
        self.report_soon();
        larger
    }

    fn note_outcome(&self, round: RoundSummary) {
        match round.outcome {
            Outcome::Written(changes) => {
                self.published.written();
                self.published.metrics.succeed(round.took, &changes);
            }
            Outcome::Growing => {
                self.published.changed();
                self.published.metrics.grow(round.took);
            }
            Outcome::Failed(delay) => {
                for failure in &round.failures {
                    tracing::warn!("{failure:#}; trying again in {delay:?}");
                }
                self.published.changed();
                self.published.metrics.fail(round.took);
            }
        }
        if round.became_synced {
            let desired = self.engine.desired();
            tracing::info!(
                imports = desired.imports.len(),
                frontends = desired.frontends.len(),
                rejections = desired.rejections.len(),
                "synced"
            );
        }
    }

    async fn set_addresses(&mut self, read: io::Result<BTreeSet<IpAddr>>) {
        match read {
            Ok(addresses) => {
                if self.engine.set_node_addresses(addresses) {
                    self.reconcile().await;
                }
            }
            Err(error) => tracing::warn!(
                "cannot read this node's addresses: {error}; the agent keeps the addresses it read before"
            ),
        }
    }

    /// Tells the programs that the agent is alive, and repairs pins, hooks and the cgroup.
    async fn repair(&mut self) {
        self.give_sign_of_life();
        let checked = self.installed.repair().await;
        if self.repairs.note(checked, seconds_since_epoch()) {
            self.verifier.start_over();
            self.report_soon();
        }
        self.installed.follow_figures(self.engine.realized());
        // Before, nobody knows how many addresses the filter needs.
        if self.engine.synced() {
            let desired = || {
                let usage = self.engine.usage();
                usage.vips + usage.endpoints
            };
            self.filter.begin_if_due(&mut self.installed, desired);
        }
        self.watch();
    }

    fn give_sign_of_life(&mut self) {
        if let Err(error) = self.installed.give_sign_of_life(self.engine.synced()) {
            tracing::warn!("{:#}", anyhow::Error::new(error));
        }
    }

    fn note_audit(&mut self, compared: anyhow::Result<Compared>) {
        self.auditor.note(compared, self.engine.realized(), &mut self.installed);
        self.report_soon();
    }

    /// Continues to check whether the socket programs are effective.
    async fn prove_attachment(&mut self) {
        if self.verifier.is_due() {
            // A VIP that only the maps contain can be wrong, so it has to be desired too.
            let realized = self.engine.realized();
            let wanted = &self.engine.desired().vips;
            let vips = || wanted.iter().copied().filter(|ip| realized.has_vip(*ip));
            let vips = [vips().find(IpAddr::is_ipv4), vips().find(IpAddr::is_ipv6)];
            self.verifier.begin(SocketHooks {
                cgroup: &self.installed.cgroup,
                programs: self.installed.hook_programs(),
                vips: vips.into_iter().flatten().collect(),
                errno: if self.installed.options.features.set_retval {
                    libc::ECONNREFUSED
                } else {
                    libc::EPERM
                },
            });
        }
        let programs = || self.installed.hook_programs();
        if self.verifier.continue_round(seconds_since_epoch(), programs).await {
            self.verifier.note_cluster_ip(|| self.engine.cluster_ip_backend());
            self.report_soon();
        }
    }

    fn end_fallback(&mut self) {
        let state = self.installed.options.pins.state();
        match self.fallback.end_if_quiet(&state, std::time::Instant::now()) {
            Ok(false) => {}
            Ok(true) => tracing::info!("sockets have storage again: the storage fallback is off"),
            Err(error) => tracing::warn!("cannot check the storage fallback: {error}"),
        }
    }

    async fn note_flows(&mut self, swept: io::Result<SweepResult>) {
        match swept {
            Ok(SweepResult { usage, vips, records, began }) => {
                self.passive.take_flows(records);
                self.flows = Some(usage);
                if self.engine.note_flows(&vips, began, std::time::Instant::now()) {
                    self.reconcile().await;
                }
                // Sweeps can be much more frequent than somebody reads.
                if self.flows_reported.is_none_or(|at| at.elapsed() >= POLL_INTERVAL) {
                    self.flows_reported = Some(Instant::now());
                    self.report_soon();
                }
            }
            Err(error) => tracing::warn!("cannot sweep the flow table: {error}; trying again"),
        }
    }

    const fn stale(&mut self, protocol: Protocol) -> &mut StaleSockets {
        match protocol {
            Protocol::Tcp => &mut self.stale_tcp,
            Protocol::Udp => &mut self.stale_udp,
        }
    }

    fn note_stale(&mut self, protocol: Protocol, event: StaleEvent) {
        match event {
            StaleEvent::ReportChanged => self.report_soon(),
            // Before the source is synced nobody knows which backends were removed.
            StaleEvent::Connections(_) if !self.engine.synced() => {}
            StaleEvent::Connections(connections) => {
                let stale = match protocol {
                    Protocol::Tcp => &mut self.stale_tcp,
                    Protocol::Udp => &mut self.stale_udp,
                };
                stale.destroy_stale(connections, self.engine.desired(), self.engine.realized());
            }
        }
    }
}

/// Logs new problems. An API server that is away is one fault, however many resources it has.
fn log_problems(source: &SourceStatus, problems: &[SourceProblem]) {
    for (index, problem) in problems.iter().enumerate() {
        let SourceProblem { place, message } = problem;
        if source.is_directory() {
            tracing::warn!("{place}: {message}");
            continue;
        }
        let earlier = source.problems.iter().filter(|one| !problems.contains(one));
        let is_known = earlier.chain(&problems[..index]).any(|one| one.message == *message);
        if is_known {
            tracing::debug!("{}: {place}: {message}", source.name);
        } else {
            tracing::warn!("{}: {place}: {message}", source.name);
        }
    }
}

fn log_change(change: &Change) {
    let what = match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Updated => "updated",
        ChangeKind::Removed => "removed",
        ChangeKind::Malformed => "malformed",
    };
    let ObjectRef { kind, key: ObjectKey { namespace, name } } = &change.object;
    match (kind, change.kind) {
        // A controller removes a slice when a cluster withdraws: rare, and often the reason for a question.
        (Kind::ServiceImport | Kind::Service, _) | (Kind::EndpointSlice, ChangeKind::Removed) => {
            tracing::info!(%namespace, %name, "{} {what}", change.object);
        }
        (Kind::EndpointSlice, _) => tracing::debug!(%namespace, %name, "{} {what}", change.object),
    }
}

fn interval(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
