//! Reads the import that is asked about, with its slices, from where the agent reads them, and with the agent's rights.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use anyhow::{Context as _, bail};
use mcs_kube::program;
use tokio::{sync::mpsc, time::timeout};

use super::target::What;
use crate::{
    agent::ReadFrom,
    desired::claimants,
    model::{EventBatch, ObjectKey},
    source::{
        self, KubeconfigFile, KubernetesOptions, KubernetesSource, ManifestSource, ReadScope,
    },
    store::{ObjectStore, Snapshot},
};

/// How long an API server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Batches that wait while one is applied.
const WAITING: usize = 16;

/// The objects that decide about some imports.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) snapshot: Snapshot,
    /// The imports that are asked about.
    pub(super) keys: Vec<ObjectKey>,
    /// A name of the source for people.
    pub(super) source: String,
}

impl Objects {
    /// Reads every import, and the slices of those that are asked about or claim the same addresses. `known`: imports
    /// that the maps have for the address.
    pub(super) fn read(from: &ReadFrom, what: &What, known: &[ObjectKey]) -> anyhow::Result<Self> {
        let asked: Vec<ObjectKey> = match what {
            What::Import(key) => vec![key.clone()],
            What::Vip(_) => known.to_vec(),
        };
        let mut names: BTreeSet<String> = asked.iter().map(|key| key.name.to_string()).collect();
        let mut store = read_once(from, &names)?;
        let snapshot = store.snapshot();
        let ips: Vec<IpAddr> = match what {
            What::Import(key) => {
                let import = snapshot.import(key);
                let ips = import.into_iter().flat_map(|import| &import.ips);
                ips.filter_map(|ip| ip.parse().ok()).collect()
            }
            What::Vip(ip) => vec![*ip],
        };
        let claimants = claimants(&snapshot, &ips);
        let before = names.len();
        names.extend(claimants.iter().map(|key| key.name.to_string()));
        if names.len() > before && from.manifests.is_none() {
            store = read_once(from, &names)?;
        }
        let mut keys = asked;
        if matches!(what, What::Vip(_)) {
            keys.extend(claimants);
            keys.sort();
            keys.dedup();
        }
        let source = store.source().name.clone();
        Ok(Self { snapshot: store.snapshot(), keys, source })
    }

    /// Every import that there is.
    pub(super) fn imports(&self) -> Vec<ObjectKey> {
        self.snapshot.imports().map(|import| import.key.clone()).collect()
    }
}

/// Reads all imports, and the slices of those with these names.
fn read_once(from: &ReadFrom, names: &BTreeSet<String>) -> anyhow::Result<ObjectStore> {
    let scope = ReadScope {
        import_group: from.import_group.clone(),
        adopt: from.adopt.iter().filter_map(|word| source::controller(word)).collect(),
    };
    let mut store = ObjectStore::default();
    if let Some(directory) = &from.manifests {
        if let Some(batch) = ManifestSource::with_scope(directory, scope).read() {
            store.apply(batch);
        }
        return complete(store);
    }
    let options = KubernetesOptions {
        kubeconfig: from
            .kubeconfig
            .clone()
            .map(|path| KubeconfigFile::new(path, from.context.clone())),
        scope,
        import_selector: from.import_selector.clone(),
        node: None,
        zone: false,
        cluster_id: false,
        service_ranges: false,
        vip_ranges: false,
        only: Some(names.clone()),
    };
    program::block_on(async {
        let source = KubernetesSource::new(options).await?;
        let (sender, batches) = mpsc::channel(WAITING);
        tokio::select! {
            () = source.run(sender) => bail!("the source ended"),
            _ = timeout(PATIENCE, follow(&mut store, batches)) => {}
        }
        complete(store)
    })
}

/// Applies batches until everything was read.
async fn follow(store: &mut ObjectStore, mut batches: mpsc::Receiver<EventBatch>) {
    while !store.synced()
        && let Some(batch) = batches.recv().await
    {
        store.apply(batch);
    }
}

/// Fails unless everything was read: objects that are missing in the store would count as absent.
fn complete(store: ObjectStore) -> anyhow::Result<ObjectStore> {
    if store.synced() {
        return Ok(store);
    }
    let source = store.source();
    let problem = source.problems.first();
    let problem = problem.map(|one| format!("{}: {}", one.place, one.message));
    Err(anyhow::anyhow!(problem.unwrap_or_else(|| "no answer in time".to_owned()))).with_context(
        || {
            format!(
                "cannot read {}",
                if source.name.is_empty() { "the source" } else { &source.name }
            )
        },
    )
}
