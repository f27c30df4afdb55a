//! What the pinned maps hold, as the reading commands show it.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::Context as _;
use mcs_common::BackendState;
use serde::Serialize;

use crate::{
    agent::Report,
    dataplane::{Access, KernelMaps, read_run_record},
    loader::Pins,
    model::{FrontendId, ObjectKey},
    reconcile::{
        Dump, Maps as _,
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

/// Reads every frontend that the pinned maps hold, sorted by import, then by frontend.
pub(super) fn read(pins: &Pins) -> anyhow::Result<Vec<FrontendView>> {
    let config = pins.config();
    let dump = KernelMaps::open(&config, Access::Read).and_then(|maps| maps.dump()).with_context(
        || {
            format!(
                "cannot read the maps in {}: start `mcs-agent run`, or name the agent's --bpffs",
                config.display()
            )
        },
    )?;
    let mut frontends: Vec<_> = dump
        .frontends
        .iter()
        .filter_map(|(key, index)| frontend(&dump, frontend_id(key)?, *index))
        .collect();
    frontends.sort_by(|a, b| (&a.import, a.frontend).cmp(&(&b.import, b.frontend)));
    Ok(frontends)
}

/// What the agent wrote last.
pub(super) fn read_report(pins: &Pins) -> anyhow::Result<Report> {
    let run = read_run_record(&pins.config())?;
    Ok(Report::read(&run.directory)?)
}

fn frontend(dump: &Dump, frontend: FrontendId, index: u32) -> Option<FrontendView> {
    let state = dump.states.get(index as usize)?;
    let service = dump.services.get(state.service as usize)?;
    let mut backends: Vec<_> = state
        .extent
        .range()
        .filter_map(|slot| backend(dump, *dump.slots.get(slot as usize)?))
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

fn backend(dump: &Dump, id: u32) -> Option<BackendView> {
    let backend = dump.backends.get(id as usize)?;
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
