//! Runs the agent's engine in the process of a test, on the maps of a stopped agent. It changes them faster than an
//! agent that reads manifests.

use std::time::SystemTime;

use mcs_agent::{
    core::{
        engine::{Engine, RoundSummary},
        kernel::{dataplane::KernelMaps, loader::DirectoryLock},
        model::{EventBatch, NodeContext},
        source::ReadFrom,
        tables::{MapReader as _, Maps as _, Pruning, Realized, plan, testing::FaultyMaps},
    },
    features::manifests::ManifestSource,
};

use crate::prelude::*;

/// Rounds after which a change must have arrived.
const ROUNDS: usize = 10_000;
/// Changes after which other backends have the ids of the first ones.
const CHANGES: usize = 1_000;

/// Which writes to the maps fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteFaults {
    /// Of 1000 writes, how many begin a burst of failures.
    pub per_mille: u16,
    /// How many writes in a row fail then.
    pub length: u32,
}

/// An engine with the maps of an agent that has stopped.
#[derive(Debug)]
pub struct Writer {
    engine: Engine,
    maps: FaultyMaps<KernelMaps>,
    _lock: DirectoryLock,
}

impl Writer {
    /// Stops the site's agent and takes its place.
    pub fn take_over(site: &mut Site, faults: WriteFaults) -> Result<Self> {
        site.agent.stop()?;
        let pins = Pins::new(site.bpffs.path());
        let lock = DirectoryLock::try_take(pins.root())?.context("the agent still runs")?;
        let capacity = pins.capacity()?.context("the agent has left no maps")?;
        let maps = KernelMaps::open(&pins.config(), &pins.hints())?;
        let maps = FaultyMaps::in_bursts(maps, faults.per_mille, faults.length, 6);
        let node = NodeContext { capacity, ..NodeContext::default() };
        let (engine, findings) = Engine::start(&maps, capacity, node, SystemTime::now())?;
        ensure!(findings.is_empty(), "the agent left {findings:?}");
        Ok(Self { engine, maps, _lock: lock })
    }

    /// Takes a batch and writes what follows from it. Returns how many rounds that took.
    pub fn write(&mut self, batch: &EventBatch) -> Result<usize> {
        self.engine.take(batch.clone());
        for rounds in 1..=ROUNDS {
            let round = self.engine.reconcile(&mut self.maps, Instant::now);
            let RoundSummary { deferred, rejected, .. } = &round;
            ensure!(rejected.is_empty(), "rejected: {rejected:?}");
            ensure!(deferred.is_empty(), "no room: {deferred:?}");
            if round.is_written() {
                return Ok(rounds);
            }
        }
        bail!("no end after {ROUNDS} rounds")
    }

    /// Writes these services in turn until no config map has a backend with one of these addresses.
    pub fn forget(&mut self, run: &Run, sets: [&Service; 2], gone: &[IpAddr]) -> Result {
        for set in sets.into_iter().cycle().take(CHANGES) {
            self.write(&batch(run, [set])?)?;
            let contents = self.maps.reader().read_all()?;
            if !contents.backends.iter().any(|one| gone.contains(&one.addr.to_ip())) {
                return Ok(());
            }
        }
        bail!("the maps still have {gone:?}")
    }

    /// How many writes have failed.
    pub const fn failed(&self) -> u64 {
        self.maps.failed()
    }

    /// Fails unless the maps are as the latest batch asks.
    pub fn check(&self) -> Result {
        let capacity = self.engine.realized().capacity();
        let (found, findings) = Realized::restore(self.maps.reader().read_all()?, capacity);
        ensure!(findings.is_empty(), "{} frontends are damaged: {findings:?}", findings.len());
        let rest = plan(self.engine.desired(), &found, Pruning::On).steps;
        ensure!(rest.is_empty(), "not all has arrived: {rest:?}");
        Ok(())
    }
}

/// What an agent reads of these services and nothing else.
pub fn batch<'a>(run: &Run, services: impl IntoIterator<Item = &'a Service>) -> Result<EventBatch> {
    let manifests = Manifests::create(run)?;
    services.into_iter().try_for_each(|service| manifests.write(service))?;
    ManifestSource::new(manifests.path(), &ReadFrom::default()).read().context("nothing to read")
}
