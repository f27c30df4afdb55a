use std::path::PathBuf;

use anyhow::{bail, ensure};
use fastrand::Rng;
use mcs_agent::{
    desired::Rules,
    model::{DesiredChanges, DesiredState, NodeContext},
    reconcile::{Deferred, Faulty, Maps as _, Plan, Realized, apply, plan, plan_within},
    source::ManifestSource,
    store::ObjectStore,
};

use super::{
    Faults,
    view::View,
    watched::{Backing, Watched},
};

/// Plans after which a change must have arrived.
const PATIENCE: u32 = 1000;

/// The agent without threads and time: what it does from the manifests to the maps.
pub(super) struct Agent<M> {
    manifests: PathBuf,
    node: NodeContext,
    source: ManifestSource,
    pub(super) store: ObjectStore,
    rules: Rules,
    /// Where the maps may hold other than is desired.
    unplanned: DesiredChanges,
    realized: Realized,
    /// What was in the maps at the start.
    found: DesiredState,
    /// What the latest plan had no room for.
    pub(super) deferred: Vec<Deferred>,
    maps: Faulty<Watched<M>>,
    random: Rng,
}

impl<M: Backing> Agent<M> {
    pub(super) fn start(
        manifests: PathBuf,
        node: NodeContext,
        maps: M,
        faults: Faults,
    ) -> anyhow::Result<Self> {
        let mut agent = Self {
            source: ManifestSource::new(&manifests),
            manifests,
            store: ObjectStore::default(),
            rules: Rules::default(),
            unplanned: DesiredChanges::Everything,
            realized: Realized::empty(node.capacity),
            found: DesiredState::default(),
            deferred: Vec::new(),
            node,
            maps: Faulty::new(Watched::new(maps), faults.per_mille, faults.seed),
            random: Rng::with_seed(faults.seed),
        };
        agent.restore()?;
        Ok(agent)
    }

    /// The node is another from now on.
    pub(super) fn set_node(&mut self, node: NodeContext) -> anyhow::Result<()> {
        ensure!(node.capacity == self.node.capacity, "the maps keep their capacity");
        self.node = node;
        Ok(())
    }

    /// Another agent takes over what this one leaves.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        self.source = ManifestSource::new(&self.manifests);
        self.store = ObjectStore::default();
        self.maps.maps.reopen()?;
        self.restore()
    }

    fn restore(&mut self) -> anyhow::Result<()> {
        let (realized, findings) = Realized::restore(self.maps.dump()?, self.node.capacity);
        ensure!(findings.is_empty(), "an agent has left damage: {findings:?}");
        self.found = realized.in_force();
        self.rules = Rules::default();
        self.unplanned = DesiredChanges::Everything;
        self.realized = realized;
        Ok(())
    }

    /// Reads the manifests, and does what follows from them until nothing is left to do.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        self.follow();
        for _ in 0..PATIENCE {
            let plan = self.plan();
            self.deferred.clone_from(&plan.deferred);
            if plan.steps.is_empty() {
                ensure!(self.plan_all().steps.is_empty(), "something was left out of a plan");
                self.unplanned = if self.store.synced() {
                    DesiredChanges::default()
                } else {
                    DesiredChanges::Everything
                };
                ensure!(self.view()? == View::of(self.realized.tables())?, "the agent errs");
                return Ok(());
            }
            if self.carry_out(&plan)? && plan.deferred.is_empty() {
                let rest = self.plan_all();
                ensure!(rest == Plan::default(), "a plan leaves something to do: {rest:?}");
            }
        }
        bail!("no end after {PATIENCE} plans")
    }

    /// Reads the manifests, and does what follows from them until a write fails.
    pub(super) fn try_once(&mut self) -> anyhow::Result<()> {
        self.follow();
        self.carry_out(&self.plan()).map(drop)
    }

    /// Reads the manifests, and dies somewhere on the way to what follows from them.
    pub(super) fn crash(&mut self) -> anyhow::Result<()> {
        self.follow();
        let mut plan = self.plan();
        plan.steps.truncate(self.random.usize(..=plan.steps.len()));
        self.carry_out(&plan)?;
        self.restart()
    }

    /// What clients find.
    pub(super) fn view(&self) -> anyhow::Result<View> {
        self.maps.maps.view()
    }

    /// Everything that clients can reach, with the positions that they may remember.
    pub(super) fn positions(&self) -> anyhow::Result<String> {
        let listing = self.maps.dump()?.to_string();
        Ok(listing.lines().filter(|line| !line.starts_with("RETIRED")).collect())
    }

    fn follow(&mut self) {
        let found = (!self.store.synced()).then(|| self.found.clone());
        if let Some(batch) = self.source.read() {
            self.store.apply(batch);
        }
        let dirty = self.store.take_dirty();
        let round = self.rules.evaluate(&self.store.snapshot(), &dirty, &self.node, found.as_ref());
        self.unplanned.extend(round.changes);
    }

    fn plan(&self) -> Plan {
        plan_within(&self.unplanned, self.desired(), &self.realized, self.store.synced())
    }

    fn plan_all(&self) -> Plan {
        plan(self.desired(), &self.realized, self.store.synced())
    }

    /// What is wanted.
    pub(super) const fn desired(&self) -> &DesiredState {
        self.rules.desired()
    }

    /// Whether every write succeeded.
    fn carry_out(&mut self, plan: &Plan) -> anyhow::Result<bool> {
        self.maps.maps.expect(plan, self.realized.tables())?;
        let result = apply(plan, &mut self.maps, &mut self.realized);
        self.maps.maps.verdict()?;
        if result.is_err() || !plan.deferred.is_empty() {
            self.unplanned = DesiredChanges::Everything;
        }
        Ok(result.is_ok())
    }
}
