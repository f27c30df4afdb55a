use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};

use super::{
    AgentInfo, Config, LOOK_INTERVAL, Report, Usage, addresses,
    programs::Dataplane,
    report::{MANIFESTS, backends_by_cluster},
    sweeper::Sweeper,
    unwritten::Unwritten,
    vitals::Vitals,
};
use crate::{
    dataplane::StorageFallback,
    desired,
    flows::FlowUsage,
    loader::state_bytes,
    model::{
        Batch, Capacity, Desired, Frontend, Kind, Memory, NodeContext, NodeFacts, Reason,
        Rejection, SourceStatus,
    },
    reconcile::{Maps as _, Plan, Realized, apply, plan},
    store::{Change, ChangeKind, ObjectStore},
};

/// The report lags behind the maps by at most this.
const REPORT_DELAY: Duration = Duration::from_millis(100);
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
    found: Desired,
    desired: Desired,
    realized: Realized,
    dataplane: Dataplane,
    pending: Vec<String>,
    agent: AgentInfo,
    began: SystemTime,
    synced: bool,
    retry_after: Duration,
    retry_at: Option<Instant>,
    report_at: Option<Instant>,
    fallback: StorageFallback,
    state_map_bytes: u64,
    sweeper: Sweeper,
    flows: Option<FlowUsage>,
    vitals: Arc<Vitals>,
    unwritten: Unwritten,
    source_lost: BTreeMap<String, u64>,
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
            desired: Desired::default(),
            realized,
            dataplane,
            pending: Vec::new(),
            agent,
            began: SystemTime::now(),
            synced: false,
            retry_after: *RETRY.start(),
            retry_at: None,
            report_at: None,
            fallback: StorageFallback::new(std::time::Instant::now()),
            state_map_bytes: state_bytes(config.flows),
            sweeper,
            flows: None,
            vitals,
            unwritten: Unwritten::default(),
            source_lost: BTreeMap::new(),
        })
    }

    /// Follows the source until it ends.
    pub(super) async fn run(&mut self, mut batches: mpsc::Receiver<Batch>) -> anyhow::Result<()> {
        self.report();
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.vitals.beat();
            tokio::select! {
                batch = batches.recv() => {
                    let Some(batch) = batch else { return Ok(()) };
                    self.take(batch);
                    while let Ok(batch) = batches.try_recv() {
                        self.take(batch);
                    }
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
                () = self.vitals.listeners_changed() => self.report_soon(),
                _ = look.tick() => {
                    self.refresh_addresses();
                    self.refresh_hooks();
                    self.end_fallback();
                }
            }
        }
    }

    fn take(&mut self, batch: Batch) {
        for problem in &batch.status.problems {
            if !self.store.source().problems.contains(problem) {
                tracing::warn!("{}: {}", problem.place, problem.message);
            }
        }
        self.node.learn(self.flags.clone().or(batch.node.clone()));
        self.note_contact(&batch.status);
        let changes = self.store.apply(batch);
        self.note_changes(&changes);
        changes.iter().for_each(log_change);
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

    /// Attaches again what somebody has detached.
    fn refresh_hooks(&mut self) {
        let repaired = self.dataplane.detached_hooks().and_then(|lost| {
            if !lost.is_empty() {
                tracing::warn!("hooks were detached: {}; attaching them again", lost.join(", "));
                self.dataplane.activate()?;
            }
            Ok(())
        });
        if let Err(error) = repaired {
            tracing::warn!("cannot look after the hooks: {error:#}");
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

    fn report_soon(&mut self) {
        self.report_at.get_or_insert_with(|| Instant::now() + REPORT_DELAY);
    }

    /// Computes what is wanted and writes what differs. What fails is tried again.
    fn reconcile(&mut self) {
        let started = Instant::now();
        let in_force = if self.synced { &self.desired } else { &self.found };
        let desired = desired::compute(&self.store.snapshot(), &self.node, in_force);
        log_rejections(&self.desired, &desired);
        self.desired = desired;
        let synced = self.store.synced();
        self.pending.clear();
        if let Err(error) = self.write(synced) {
            let error = format!("{error:#}");
            tracing::warn!("{error}; trying again in {:?}", self.retry_after);
            self.pending.push(error);
        }
        if self.pending.is_empty() {
            self.vitals.written();
            let written = std::mem::take(&mut self.unwritten);
            self.vitals.metrics.succeed(started.elapsed(), &written);
            self.retry_after = *RETRY.start();
            self.retry_at = None;
        } else {
            self.vitals.changed();
            self.vitals.metrics.fail(started.elapsed());
            self.retry_at = Some(Instant::now() + self.retry_after);
            self.retry_after = (self.retry_after * 2).min(*RETRY.end());
        }
        if synced && !self.synced {
            self.synced = true;
            self.found = Desired::default();
            tracing::info!(
                imports = self.desired.imports.len(),
                frontends = self.desired.frontends.len(),
                rejections = self.desired.rejections.len(),
                "synced"
            );
        }
        self.report_soon();
    }

    /// Writes what differs, to larger maps if it takes them.
    fn write(&mut self, synced: bool) -> anyhow::Result<()> {
        let started = Instant::now();
        self.dataplane.finish_switch().context("cannot switch to larger maps")?;
        let usage = Usage::of(&self.desired, &backends_by_cluster(&self.desired));
        let need = usage.capacity().at_least(self.realized.used());
        let mut made = self.make_room(need);
        let mut plan = plan(&self.desired, &self.realized, synced);
        if made.is_ok() {
            // What is there already and what is wanted may not fit at the same time, or in a row.
            made = self.make_room(self.shortage(&plan));
            if matches!(made, Ok(true)) {
                plan = self::plan(&self.desired, &self.realized, synced);
            }
        }
        self.dataplane.finish_switch().context("cannot switch to larger maps")?;
        self.pending.extend(plan.deferred.iter().map(ToString::to_string));
        apply(&plan, &mut self.dataplane.maps, &mut self.realized)?;
        if !plan.steps.is_empty() {
            let micros = started.elapsed().as_micros();
            tracing::debug!(steps = plan.steps.len(), micros, "maps written");
        }
        if synced {
            self.dataplane.filled()?;
        }
        made.map(drop)
    }

    /// Moves to larger maps if there is no room for `need` in those that there are, and more is
    /// allowed. Returns whether it did.
    fn make_room(&mut self, need: Capacity) -> anyhow::Result<bool> {
        let have = self.dataplane.capacity();
        let capacity = have.grown(need, self.node.capacity);
        if capacity == have {
            return Ok(false);
        }
        let started = Instant::now();
        self.dataplane.resize(capacity).context("cannot move to larger maps")?;
        self.realized = restore(&self.dataplane)?;
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

    /// One more than there is of all that the plan has found no room for.
    fn shortage(&self, plan: &Plan) -> Capacity {
        let have = self.dataplane.capacity();
        plan.deferred
            .iter()
            .fold(Capacity::NONE, |need, deferred| need.at_least(deferred.shortage.more_than(have)))
    }

    fn report(&mut self) {
        self.report_at = None;
        self.agent.updated = seconds_since_epoch();
        let backends = backends_by_cluster(&self.desired);
        let refusing = |frontend: &&Frontend| frontend.backends.is_empty();
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
            usage: Usage::of(&self.desired, &backends),
            config_map_bytes: self.dataplane.capacity().memory().0,
            state_map_bytes: self.state_map_bytes,
            flows: self.flows.clone(),
            imports: self.desired.imports.clone(),
            rejections: self.desired.rejections.clone(),
            outdated: self.dataplane.is_outdated(),
            pending: self.pending.clone(),
            refusing: self.desired.frontends.values().filter(refusing).count(),
            backends,
            source_lost: self.source_lost.clone(),
            listeners: self.vitals.listeners(),
        });
        self.vitals.publish(Arc::clone(&report));
        if let Err(error) = report.write(&self.dataplane.run_directory) {
            tracing::warn!("{:#}; trying again", anyhow::Error::new(error));
            self.report_at = Some(Instant::now() + LOOK_INTERVAL);
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

fn log_rejections(before: &Desired, after: &Desired) {
    let is_known = |rejection: &Rejection| match rejection.reason {
        // What it says counts what all objects want, and changes with each of them.
        Reason::Capacity => {
            let of_same = (&rejection.object, rejection.reason);
            before.rejections.binary_search_by(|one| (&one.object, one.reason).cmp(&of_same))
        }
        _ => before.rejections.binary_search(rejection),
    };
    for rejection in &after.rejections {
        if is_known(rejection).is_err() {
            tracing::info!(reason = %rejection.reason, "{} rejected: {}", rejection.object, rejection.message);
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
