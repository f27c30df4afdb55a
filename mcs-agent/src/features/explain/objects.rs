//! Reads the import that is asked about, with its slices, from where the agent reads them, and with the agent's rights.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use anyhow::{Context as _, bail};
use mcs_kube::program;
use tokio::{sync::mpsc, time::timeout};

use super::{rules::claimants, target::What};
use crate::core::{
    feature::{self, Definition},
    model::{EventBatch, ObjectKey},
    source::{ReadFrom, SourceOptions},
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
    pub(super) fn read(
        features: &[Definition],
        from: &ReadFrom,
        what: &What,
        known: &[ObjectKey],
    ) -> anyhow::Result<Self> {
        let asked: Vec<ObjectKey> = match what {
            What::Import(key) => vec![key.clone()],
            What::Vip(_) => known.to_vec(),
        };
        let mut names: BTreeSet<String> = asked.iter().map(|key| key.name.to_string()).collect();
        let (mut store, has_all) = read_once(features, from, &names)?;
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
        if names.len() > before && !has_all {
            store = read_once(features, from, &names)?.0;
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

/// Reads all imports, and the slices of those with these names. Returns whether it has the slices of all.
fn read_once(
    features: &[Definition],
    from: &ReadFrom,
    names: &BTreeSet<String>,
) -> anyhow::Result<(ObjectStore, bool)> {
    let options =
        SourceOptions { from: from.clone(), only: Some(names.clone()), ..SourceOptions::default() };
    let source = feature::source(features, from).unwrap_or_else(|| Box::new(options));
    let at_once = source.reads_at_once();
    let mut store = ObjectStore::default();
    program::block_on(async {
        let (sender, batches) = mpsc::channel(WAITING);
        let running = source.start(feature::filter(features, from), sender).await?;
        tokio::select! {
            () = running => bail!("the source ended"),
            _ = timeout(PATIENCE, follow(&mut store, batches, at_once)) => {}
        }
        Ok((complete(store)?, at_once))
    })
}

/// Applies batches until everything was read, or the first if no other has more.
async fn follow(store: &mut ObjectStore, mut batches: mpsc::Receiver<EventBatch>, at_once: bool) {
    while let Some(batch) = batches.recv().await {
        store.apply(batch);
        if at_once || store.synced() {
            return;
        }
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
