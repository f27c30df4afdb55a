//! The agent without its threads: the engine between a manifests directory and watched maps.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{bail, ensure};
use fastrand::Rng;
use mcs_agent::{
    core::{
        engine::{Engine, RoundSummary, testing},
        feature::{ChosenFeatures, filter},
        model::{Capacity, NodeContext},
        source::ReadFrom,
        tables::{
            Deferred, MapContents, MapView, Plan, Pruning, plan,
            testing::{FaultyMaps, view_of},
        },
    },
    features::{self, manifests::ManifestSource},
};

use super::{
    Faults,
    node::Node,
    watched::{Backing, Watched},
};

/// Rounds after which a change must have arrived.
const PATIENCE: u32 = 1000;
/// How long the agent takes to look at the flows.
const SWEEP: Duration = Duration::from_secs(1);

/// The engine, with what it reads and what it writes.
pub(super) struct Agent<M> {
    manifests: PathBuf,
    node: NodeContext,
    reads: ReadFrom,
    source: ManifestSource,
    pub(super) engine: Engine,
    /// What the latest plan had no room for.
    pub(super) deferred: Vec<Deferred>,
    maps: FaultyMaps<Watched<M>>,
    /// The VIPs that flows use.
    pub(super) flows: BTreeSet<IpAddr>,
    now: Instant,
    random: Rng,
}

fn source(manifests: &Path, reads: &ReadFrom) -> ManifestSource {
    ManifestSource::new(manifests, reads).with(filter(features::LIST, reads))
}

impl<M: Backing> Agent<M> {
    /// Starts an agent on new maps, which may grow to the capacity of the node.
    pub(super) fn start(
        manifests: PathBuf,
        Node { context: node, reads }: Node,
        new_maps: impl FnOnce(Capacity) -> anyhow::Result<M>,
        faults: Faults,
    ) -> anyhow::Result<Self> {
        let capacity = faults.first.map_or(node.capacity, |first| first.at_most(node.capacity));
        let maps = new_maps(capacity)?;
        let maps = FaultyMaps::new(Watched::new(maps)?, faults.per_mille, faults.seed);
        Ok(Self {
            source: source(&manifests, &reads),
            reads,
            manifests,
            engine: engine(&maps, capacity, node.clone())?,
            deferred: Vec::new(),
            node,
            maps,
            flows: BTreeSet::new(),
            now: Instant::now(),
            random: Rng::with_seed(faults.seed),
        })
    }

    /// The node is another from now on.
    pub(super) fn set_node(&mut self, node: Node) -> anyhow::Result<()> {
        let Node { context: node, reads } = node;
        self.reads = reads;
        ensure!(node.capacity == self.node.capacity, "the maps keep their bound");
        self.node = node.clone();
        self.engine.set_node(node);
        Ok(())
    }

    /// Time passes.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// Another agent takes over what this one leaves.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        self.source = source(&self.manifests, &self.reads);
        self.maps.maps.reopen()?;
        let capacity = self.engine.realized().capacity();
        self.engine = engine(&self.maps, capacity, self.node.clone())?;
        Ok(())
    }

    /// Reads the manifests, and does what follows from them until nothing is left to do.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        self.read();
        for _ in 0..PATIENCE {
            let round = self.round()?;
            self.deferred.clone_from(&round.deferred);
            // Larger maps that could not be made are tried again later.
            if !round.failures.is_empty() || self.engine.not_grown().is_some() {
                continue;
            }
            let rest = self.plan_all();
            if round.planned == 0 {
                ensure!(rest.steps.is_empty(), "something was left out of a plan: {rest:?}");
                ensure!(self.view()? == self.believed()?, "the agent errs");
                self.now += SWEEP;
                if !self.engine.note_flows(&self.flows, self.now, self.now) {
                    return Ok(());
                }
                continue;
            }
            if round.deferred.is_empty() {
                ensure!(rest == Plan::default(), "a plan leaves something to do: {rest:?}");
            }
        }
        bail!("no end after {PATIENCE} rounds")
    }

    /// Reads the manifests, and does what follows from them until a write fails.
    pub(super) fn try_once(&mut self) -> anyhow::Result<()> {
        self.read();
        self.round().map(drop)
    }

    /// Reads the manifests, and dies somewhere on the way to what follows from them.
    pub(super) fn crash(&mut self) -> anyhow::Result<()> {
        self.read();
        self.maps.maps.die_after(0);
        let writes = self.round()?.planned;
        self.maps.maps.die_after(self.random.usize(..=writes));
        self.round()?;
        self.restart()
    }

    /// What clients find.
    pub(super) fn view(&self) -> anyhow::Result<MapView> {
        self.maps.maps.view()
    }

    /// What the agent takes that to be.
    fn believed(&self) -> anyhow::Result<MapView> {
        view_of(self.engine.realized().contents())
    }

    fn read(&mut self) {
        if let Some(batch) = self.source.read() {
            self.engine.take(batch);
        }
    }

    /// Everything that is to be done, wherever changes were.
    fn plan_all(&self) -> Plan {
        let pruning = Pruning::once(self.engine.synced());
        plan(self.engine.desired(), self.engine.realized(), pruning)
    }

    /// What the maps hold once a round has come to its end, also if it was interrupted.
    fn planned(&self) -> MapContents {
        let mut planned = self.engine.realized().contents().clone();
        self.plan_all().steps.iter().for_each(|step| planned.write(step));
        planned
    }

    /// A round, each of whose writes is looked at.
    fn round(&mut self) -> anyhow::Result<RoundSummary> {
        let believed = self.engine.realized().contents().clone();
        self.maps.maps.watch()?;
        let round = testing::reconcile(&mut self.engine, &mut self.maps, || self.now);
        self.maps.maps.verdict(&believed, &self.planned())?;
        if let Some(at) = self.engine.retry_at().filter(|_| self.engine.not_grown().is_some()) {
            self.now = self.now.max(at);
        }
        Ok(round)
    }
}

fn engine<M: Backing>(
    maps: &FaultyMaps<Watched<M>>,
    capacity: Capacity,
    node: NodeContext,
) -> anyhow::Result<Engine> {
    let (mut engine, findings) = Engine::start(maps, capacity, node, SystemTime::now())?;
    ChosenFeatures::with(features::LIST, &[]).prefer(&mut engine);
    ensure!(findings.is_empty(), "an agent has left damage: {findings:?}");
    Ok(engine)
}
