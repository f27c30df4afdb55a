//! The control task: waits for batches, timers and threads, lets the engine do what follows, and
//! turns what the engine returns into logs, metrics and reports.

mod cluster_facts;
mod growth;
mod reporting;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use ipnet::IpNet;
use mcs_kube::{program, report::AgentInfo};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, sleep_until, timeout},
};

use super::{
    addresses::{self, AddressReader},
    config::POLL_INTERVAL,
    kernel::FlowSweeper,
    process,
    programs::InstalledPrograms,
    published::Published,
    rejections::{self, ListedRejections},
    repairs::{Repairs, SourceLost},
    report::seconds_since_epoch,
    status_file::StatusFile,
};
use crate::core::{
    control::state::{Core, Follow},
    engine::{BatchSummary, Engine, Outcome, RoundSummary, pace::Throttle},
    feature::{ChosenFeatures, RunningFeatures},
    kernel::{
        dataplane::StorageFallback,
        flows::{FlowUsage, SweepResult},
    },
    model::{
        Capacity, EventBatch, ImportReport, Kind, ObjectKey, ObjectRef, SourceProblem, SourceStatus,
    },
    store::{ChangeKind, ObjectChange},
};

/// Writes after which the heap may be much larger than what is in use.
const LARGE_PLAN: usize = 10_000;
/// The part of a report that lists objects, and the status file, are updated again only after this many times the
/// CPU time that they took. They lag by more with many imports and constant changes.
const OBJECTS_REST: u32 = 500;
const LONGEST_OBJECTS_REST: Duration = Duration::from_secs(10);
/// How often pins, hooks and the cgroup are checked. Connections bypass a detached program until then.
const GUARD_INTERVAL: Duration = Duration::from_secs(1);
/// How often batches are taken that arrive before a round is due. [`super::WAITING_BATCHES`] of them have room.
const GATHER_INTERVAL: Duration = Duration::from_millis(25);
/// How long an agent that ends waits for features that give the programs back. The next agent takes them back too.
const LAST: Duration = Duration::from_secs(5);

/// The state of the control task.
pub(crate) struct Control {
    pub(crate) core: Core,
    features: RunningFeatures,
    addresses: AddressReader,
    agent: AgentInfo,
    /// As the latest report that lists objects has them.
    imports: Arc<Vec<Arc<ImportReport>>>,
    rejections: ListedRejections,
    object_reports: Throttle,
    /// The ranges of ClusterSetIPs that the cluster had when they were last logged.
    logged_vip_ranges: Option<Vec<IpNet>>,
    status_file: StatusFile,
    fallback: StorageFallback,
    flows: Option<FlowUsage>,
    /// When the figures of the flow table were reported last.
    flows_reported: Option<Instant>,
    source_lost: SourceLost,
    repairs: Repairs,
    /// When the maps became larger the last time, in seconds since the Unix epoch.
    grown_at: Option<u64>,
}

impl Control {
    pub(crate) fn new(
        agent: AgentInfo,
        installed: InstalledPrograms,
        features: &ChosenFeatures,
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
        let sweeper =
            FlowSweeper::new(&installed.flow_pins()?).context("cannot open the flow table")?;
        let mut core = Core { engine, installed, sweeper, published, report_at: None };
        let features = RunningFeatures::start(features, &mut core)?;
        Ok(Self {
            core,
            features,
            addresses: AddressReader::new(),
            logged_vip_ranges: None,
            agent,
            imports: Arc::default(),
            rejections: ListedRejections::default(),
            object_reports: Throttle::new(OBJECTS_REST, LONGEST_OBJECTS_REST),
            status_file: StatusFile::default(),
            fallback: StorageFallback::new(std::time::Instant::now()),
            flows: None,
            flows_reported: None,
            source_lost: SourceLost::default(),
            repairs: Repairs::default(),
            grown_at: None,
        })
    }

    /// Runs until the batches end.
    pub(crate) async fn run(
        &mut self,
        mut batches: mpsc::Receiver<EventBatch>,
    ) -> anyhow::Result<()> {
        self.report();
        let mut poll = interval(POLL_INTERVAL);
        let mut guard = interval(GUARD_INTERVAL);
        loop {
            self.core.published.life.beat();
            tokio::select! {
                batch = batches.recv() => {
                    let Some(batch) = batch else { return Ok(()) };
                    self.take(batch);
                    self.gather(&mut batches).await;
                    self.reconcile().await;
                }
                () = program::until(self.core.engine.retry_at().map(Instant::from_std)) => self.reconcile().await,
                () = program::until(self.core.report_at) => self.report(),
                written = self.status_file.written() => self.note_written(written),
                reported = self.core.installed.packets.reported() => {
                    reported?;
                    self.core.report_soon();
                }
                swept = self.core.sweeper.next(), if !self.core.installed.is_outdated() => {
                    self.note_flows(swept).await;
                }
                ready = self.features.wait() => {
                    let follow = self.features.act(ready, &mut self.core).await;
                    self.follow(follow).await;
                }
                () = self.core.published.listeners_changed() => self.core.report_soon(),
                _ = guard.tick() => self.guard().await,
                read = self.addresses.next() => self.set_addresses(read).await,
                _ = poll.tick() => {
                    self.end_fallback();
                    self.report_in_time();
                }
            }
        }
    }

    /// Gives the programs in the kernel back before the agent ends.
    pub(in crate::core::control) async fn stop(&mut self) {
        let release = self.features.release(&mut self.core, "the agent has ended");
        if timeout(LAST, release).await.is_err() {
            tracing::warn!("a feature has not given the programs back: the next agent takes them");
        }
    }

    async fn follow(&mut self, follow: Follow) {
        match follow {
            Follow::Nothing => {}
            Follow::Report => self.core.report_soon(),
            Follow::Round => self.reconcile().await,
        }
    }

    /// Takes batches until the engine wants its next round. It looks for them now and then: to wait for each would wake this
    /// thread for each.
    async fn gather(&mut self, batches: &mut mpsc::Receiver<EventBatch>) {
        loop {
            while let Ok(batch) = batches.try_recv() {
                self.take(batch);
            }
            let now = Instant::now();
            match self.core.engine.gather_until().map(Instant::from_std) {
                Some(until) if until > now => sleep_until(until.min(now + GATHER_INTERVAL)).await,
                _ => return,
            }
        }
    }

    fn take(&mut self, batch: EventBatch) {
        self.source_lost.update(&batch.status, seconds_since_epoch());
        let BatchSummary { changes, imports, problems } = self.core.engine.take(batch);
        log_problems(self.core.engine.source(), &problems);
        self.note_deadlines();
        self.features.each(|feature| feature.after_objects(&mut self.core));
        if self.core.engine.synced() {
            self.log_vip_ranges();
            changes.iter().for_each(log_change);
        }
        if !changes.is_empty() {
            self.core.published.changed();
            let slices = changes.len() - imports;
            self.core.published.metrics.queue(imports, slices, self.core.engine.pending_changes());
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
        let round = self.core.engine.reconcile(&mut self.core.installed, std::time::Instant::now);
        let larger = round.larger;
        rejections::log(&round.rejected);
        if round.became_synced {
            self.give_sign_of_life();
        }
        if round.planned > 0 && round.failures.is_empty() {
            tracing::debug!(steps = round.planned, micros = round.took.as_micros(), "maps written");
        }
        if round.planned >= LARGE_PLAN {
            process::trim();
        }
        if self.core.engine.synced() && round.failures.is_empty() {
            self.core.installed.filled().await;
        }
        self.features.each(|feature| feature.after_round(&mut self.core, &round));
        self.note_outcome(round);
        self.core.report_soon();
        larger
    }

    fn note_outcome(&self, round: RoundSummary) {
        match round.outcome {
            Outcome::Written(changes) => {
                self.core.published.written();
                self.core.published.metrics.succeed(round.took, &changes);
            }
            Outcome::Growing => {
                self.core.published.changed();
                self.core.published.metrics.grow(round.took);
            }
            Outcome::Failed(delay) => {
                for failure in &round.failures {
                    tracing::warn!("{failure:#}; trying again in {delay:?}");
                }
                self.core.published.changed();
                self.core.published.metrics.fail(round.took);
            }
        }
        if round.became_synced {
            let desired = self.core.engine.desired();
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
                if self.core.engine.set_node_addresses(addresses) {
                    self.reconcile().await;
                }
            }
            Err(error) => tracing::warn!(
                "cannot read this node's addresses: {error}; the agent keeps the addresses it read before"
            ),
        }
    }

    /// Tells the programs that the agent is alive, and repairs pins, hooks and the cgroup.
    async fn guard(&mut self) {
        self.give_sign_of_life();
        let checked = self.core.installed.repair().await;
        if self.repairs.note(checked, seconds_since_epoch()) {
            self.features.each(|feature| feature.after_repair());
            self.core.report_soon();
        }
        let mut follow = if self.note_deadlines() { Follow::Round } else { Follow::Nothing };
        self.features.each(|feature| follow = follow.max(feature.each_second(&mut self.core)));
        self.follow(follow).await;
    }

    fn give_sign_of_life(&mut self) {
        if let Err(error) = self.core.installed.give_sign_of_life(self.core.engine.synced()) {
            tracing::warn!("{:#}", anyhow::Error::new(error));
        }
    }

    fn end_fallback(&mut self) {
        let state = self.core.installed.options.pins.state();
        match self.fallback.end_if_quiet(&state, std::time::Instant::now()) {
            Ok(false) => {}
            Ok(true) => tracing::info!("sockets have storage again: the storage fallback is off"),
            Err(error) => tracing::warn!("cannot check the storage fallback: {error}"),
        }
    }

    async fn note_flows(&mut self, swept: io::Result<SweepResult>) {
        match swept {
            Ok(mut swept) => {
                self.features.each(|feature| feature.after_sweep(&mut swept));
                let SweepResult { usage, vips, began, .. } = swept;
                self.flows = Some(usage);
                if self.core.engine.note_flows(&vips, began, std::time::Instant::now()) {
                    self.reconcile().await;
                }
                // Sweeps can be much more frequent than somebody reads.
                if self.flows_reported.is_none_or(|at| at.elapsed() >= POLL_INTERVAL) {
                    self.flows_reported = Some(Instant::now());
                    self.core.report_soon();
                }
            }
            Err(error) => tracing::warn!("cannot sweep the flow table: {error}; trying again"),
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

fn log_change(change: &ObjectChange) {
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
