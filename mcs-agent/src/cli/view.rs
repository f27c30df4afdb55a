//! What the pinned maps hold, as the reading commands show it.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context as _, bail, ensure};
use mcs_common::BackendState;
use serde::Serialize;

use crate::{
    agent::Report,
    dataplane::{KernelMapsReader, read_run_record},
    loader::Pins,
    model::{FrontendId, ObjectKey},
    reconcile::{
        MapContents, MapReader as _,
        convert::{backend_address, cluster_name, frontend_id, service_key},
    },
};

/// A frontend in the maps.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct FrontendView {
    /// The ServiceImport it belongs to.
    #[serde(flatten)]
    pub(super) import: ObjectKey,
    /// The ClusterSetIP, port and protocol.
    #[serde(flatten)]
    pub(super) frontend: FrontendId,
    /// Seconds of ClientIP affinity.
    #[serde(rename = "affinitySeconds")]
    pub(super) affinity_seconds: Option<u32>,
    /// `ready`, or `refusing` when it has no usable backend.
    pub(super) state: &'static str,
    /// Where its clients go.
    pub(super) backends: Vec<BackendView>,
}

/// A backend in the maps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(super) struct BackendView {
    /// The pod's address and port.
    pub(super) address: SocketAddr,
    /// The source cluster; empty if its slice does not say.
    pub(super) cluster: String,
    /// Its id in `backends`, as counters and logs of the programs name it.
    pub(super) id: u32,
}

/// Reads all that the pinned config maps hold.
pub(super) fn dump(pins: &Pins) -> anyhow::Result<MapContents> {
    let config = pins.config();
    KernelMapsReader::open(&config).and_then(|maps| maps.read_all()).with_context(|| {
        format!(
            "cannot read the maps in {}: start `mcs-agent run`, or name the agent's --bpffs",
            config.display()
        )
    })
}

/// Every frontend of the maps, sorted by import, then by frontend.
pub(super) fn frontends(dump: &MapContents) -> Vec<FrontendView> {
    let mut frontends: Vec<_> = dump
        .frontends
        .iter()
        .filter_map(|(key, index)| frontend(dump, frontend_id(key)?, *index))
        .collect();
    frontends.sort_by(|a, b| (&a.import, a.frontend).cmp(&(&b.import, b.frontend)));
    frontends
}

/// Reads the name of a ServiceImport.
pub(super) fn parse_key(text: &str) -> anyhow::Result<ObjectKey> {
    let Some((namespace, name)) = text.split_once('/') else {
        bail!("write it as NAMESPACE/NAME");
    };
    ensure!(!namespace.is_empty() && !name.is_empty(), "write it as NAMESPACE/NAME");
    Ok(ObjectKey::new(namespace, name))
}

/// What the agent wrote last.
pub(super) fn read_report(pins: &Pins) -> anyhow::Result<Report> {
    let run = read_run_record(&pins.run())?;
    let report = Report::read(&run.directory)?;
    ensure!(report.is_of(&run), "{run} has not reported yet");
    Ok(report)
}

fn frontend(dump: &MapContents, frontend: FrontendId, index: u32) -> Option<FrontendView> {
    let state = dump.states.get(index as usize)?;
    let service = dump.services.get(state.service as usize)?;
    let mut backends: Vec<_> = state
        .extent
        .range()
        .filter_map(|slot| backend(dump, index, *dump.slots.get(slot as usize)?))
        .collect();
    backends.sort();
    Some(FrontendView {
        import: service_key(service),
        frontend,
        affinity_seconds: (state.affinity_seconds > 0).then_some(state.affinity_seconds),
        state: if backends.is_empty() { "refusing" } else { "ready" },
        backends,
    })
}

/// The backend of a slot. The agent may have used the slot anew since the extent was read; nothing
/// makes it wait for a command.
fn backend(dump: &MapContents, frontend: u32, id: u32) -> Option<BackendView> {
    let backend = dump.backends.get(id as usize).filter(|found| found.frontend == frontend)?;
    let cluster = dump.clusters.get(backend.cluster as usize)?;
    (backend.state != BackendState::FREE).then(|| BackendView {
        address: backend_address(backend),
        cluster: cluster_name(cluster),
        id,
    })
}

impl FrontendView {
    /// `east:2 west:1`, or `-`.
    pub(super) fn clusters(&self) -> String {
        let mut counts = BTreeMap::<&str, usize>::new();
        for backend in &self.backends {
            *counts.entry(&backend.cluster).or_default() += 1;
        }
        let text: Vec<_> = counts
            .iter()
            .map(|(cluster, count)| {
                format!("{}:{count}", if cluster.is_empty() { "unknown" } else { cluster })
            })
            .collect();
        if text.is_empty() { "-".to_owned() } else { text.join(" ") }
    }

    /// `10800s`, or `-`.
    pub(super) fn affinity(&self) -> String {
        self.affinity_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds}s"))
    }
}
