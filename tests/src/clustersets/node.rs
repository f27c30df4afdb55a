//! An agent of a played cluster, without a kernel: the shipped rules and engine, on maps in memory.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::bail;
use ipnet::IpNet;
use mcs_agent::{
    core::{
        engine::{
            Engine,
            testing::{GrowableMemoryMaps, reconcile},
        },
        feature::ChosenFeatures,
        model::{Capacity, NodeContext, NodeFacts, Rejection},
        source::ReadFrom,
        tables::MapView,
    },
    features::{self, manifests::ManifestSource},
};
use serde_json::json;
use tokio::time::Instant;

use super::{
    member::{SERVICE_RANGES, is_mailbox},
    store::Store,
    witness::SERVICE,
};

/// Rounds after which a change must have arrived.
const PATIENCE: usize = 100;
/// More than any story has, so that the maps need not grow.
const CAPACITY: Capacity =
    Capacity { vips: 256, frontends: 256, endpoints: 4096, clusters: 16, imports: 256 };

/// An agent.
pub(super) struct Node {
    file: PathBuf,
    source: ManifestSource,
    engine: Engine,
    maps: GrowableMemoryMaps,
    /// What it has read.
    read: String,
}

impl Node {
    /// Starts the agent of a node of this cluster, which reads from an empty directory.
    pub(super) fn start(cluster: &str, directory: &Path) -> anyhow::Result<Self> {
        fs::create_dir(directory)?;
        let ranges: Result<_, _> =
            SERVICE_RANGES.iter().map(|range| range.parse::<IpNet>()).collect();
        let context = NodeContext {
            node_name: Some("node".to_owned()),
            facts: NodeFacts {
                cluster_id: Some(cluster.to_owned()),
                service_ranges: Some(ranges?),
                ..NodeFacts::default()
            },
            capacity: CAPACITY,
            ..NodeContext::default()
        };
        let maps = GrowableMemoryMaps::new(CAPACITY);
        let (mut engine, _) = Engine::start(&maps, CAPACITY, context, SystemTime::now())?;
        ChosenFeatures::with(features::LIST, &[]).prefer(&mut engine);
        let source = ManifestSource::new(directory, &ReadFrom::default());
        let file = directory.join("objects.json");
        Ok(Self { file, source, engine, maps, read: String::new() })
    }

    /// Takes what an API server has. Returns what of it is rejected.
    pub(super) fn follow(&mut self, objects: String) -> anyhow::Result<Option<String>> {
        if objects != self.read {
            fs::write(&self.file, &objects)?;
            self.read = objects;
            if let Some(batch) = self.source.read() {
                self.engine.take(batch);
            }
        }
        let now = || Instant::now().into_std();
        for _ in 0..PATIENCE {
            let round = reconcile(&mut self.engine, &mut self.maps, now);
            if round.planned == 0 && round.failures.is_empty() {
                let desired = self.engine.desired();
                let rejected = desired.rejections.first();
                let told =
                    |one: &Rejection| format!("{} {}: {}", one.object, one.reason, one.message);
                let problem = self.engine.source().problems.first();
                return Ok(rejected.map(told).or_else(|| Some(problem?.message.clone())));
            }
        }
        bail!("an agent finds no end")
    }

    /// What clients find.
    pub(super) fn view(&self) -> MapView {
        MapView::of(self.maps.contents())
    }
}

/// What an agent reads in a cluster.
pub(super) fn objects(store: &Store) -> String {
    let slices = store.all("endpointslices").filter(|((_, namespace, _), slice)| {
        !is_mailbox(namespace) && slice["metadata"]["labels"][SERVICE].is_string()
    });
    let all = store.all("serviceimports").chain(slices).map(|(_, object)| object);
    json!({ "apiVersion": "v1", "kind": "List", "items": all.collect::<Vec<_>>() }).to_string()
}
