//! The agent's engine, on maps in memory.

use std::time::SystemTime;

use mcs_agent::{
    core::{
        engine::{Engine, testing::GrowableMemoryMaps},
        feature::ChosenFeatures,
        model::{EventBatch, NodeContext, ObjectEvent},
    },
    features,
};

use crate::prelude::*;

pub(crate) struct Agent {
    engine: Engine,
    maps: GrowableMemoryMaps,
}

impl Agent {
    pub(crate) fn new(capacity: Capacity) -> Result<Self> {
        let maps = GrowableMemoryMaps::new(capacity);
        let node = NodeContext { capacity, ..NodeContext::default() };
        let (mut engine, _) = Engine::start(&maps, capacity, node, SystemTime::now())?;
        ChosenFeatures::with(features::LIST, &[]).prefer(&mut engine);
        Ok(Self { engine, maps })
    }

    /// Does what follows from the events. Returns how many writes that takes.
    pub(crate) fn take(&mut self, events: Vec<ObjectEvent>) -> Result<u64> {
        self.engine.take(EventBatch { events, ..EventBatch::default() });
        let round = self.engine.reconcile(&mut self.maps, Instant::now);
        ensure!(round.is_written(), "not written: {:?}", self.engine.why_pending());
        Ok(round.planned as u64)
    }
}
