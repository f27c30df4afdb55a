//! The status report: a file that the agent writes and `status` reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use mcs_kube::{
    program::http::ListenerReport,
    report::{AgentInfo, CommonReport},
};
use serde::{Deserialize, Serialize};

use super::{
    config::SocketLb,
    repairs::Repairs,
    run_directory::{ReportError, STATUS_FILE, read_file, replace_file},
    tc::TcReport,
};
use crate::core::{
    engine::Usage,
    kernel::{dataplane::Run, flows::FlowUsage, loader::Features},
    model::{Capacity, Ejection, ImportReport, Memory, Sections},
    source::ReadFrom,
};

/// What no map holds: written by the agent soon after a change, read by `status` and `services`. Part of
/// `status -o json`: fields are added, never renamed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What `mcs` reads of it.
    #[serde(flatten)]
    pub common: CommonReport,
    /// `--orphan-after`, in seconds: the programs leave the VIPs alone this long after the agent's last sign of life. Absent
    /// with `--orphan=keep`: they continue.
    #[serde(default)]
    pub orphan_release_after: Option<u64>,
    /// Whether every kind has been read completely once since the agent started.
    pub synced: bool,
    /// Where the source is.
    #[serde(default)]
    pub reads: Option<ReadFrom>,
    /// `--node-name`.
    pub node_name: Option<String>,
    /// `--vip-cidr`; empty leaves it to `node.vip_ranges`.
    #[serde(default)]
    pub vip_cidrs: Vec<IpNet>,
    /// ClusterSetIPs outside of these that are served because an earlier agent served them.
    #[serde(default)]
    pub vips_kept: BTreeSet<IpAddr>,
    /// Imports that are rejected for these ranges, if nothing is served.
    #[serde(default)]
    pub imports_outside: usize,
    /// `--socket-lb`.
    pub socket_lb: SocketLb,
    /// How devices stand.
    pub tc: TcReport,
    /// The cgroup the programs belong on.
    pub cgroup_path: PathBuf,
    /// Its id.
    pub cgroup_id: u64,
    /// What this kernel can do.
    pub features: Features,
    /// What the maps have room for now.
    pub capacity: Capacity,
    /// `--max-memory`: they grow up to this.
    pub max_memory: Memory,
    /// What there is room for then.
    pub max_capacity: Capacity,
    /// What they hold.
    pub usage: Usage,
    /// When they became larger the last time since the agent started, in seconds since the Unix epoch.
    #[serde(default)]
    pub grown_at: Option<u64>,
    /// Why they could not be made larger; tried again. Nothing waits for it unless [`CommonReport::pending`] says so.
    #[serde(default)]
    pub not_grown: Option<String>,
    /// Bytes of the config maps.
    pub config_map_bytes: u64,
    /// Bytes of the state maps.
    pub state_map_bytes: u64,
    /// The flows of the packet path; absent before the first sweep.
    pub flows: Option<FlowUsage>,
    /// Backends that do not answer clients of this node (passive health).
    #[serde(default)]
    pub ejections: Vec<Ejection>,
    /// Every ServiceImport and what became of it.
    pub imports: Arc<Vec<Arc<ImportReport>>>,
    /// Rejections that are not among them, listed or counted.
    #[serde(default)]
    pub rejections_omitted: usize,
    /// Whether the attached programs are an earlier agent's, with maps that this one does not write.
    pub outdated: bool,
    /// Frontends without a usable backend.
    #[serde(default)]
    pub refusing: usize,
    /// Backends of all frontends together, by source cluster; empty if its slice does not say.
    #[serde(default)]
    pub backends: BTreeMap<String, usize>,
    /// Since when a resource cannot be read, as seconds since the Unix epoch; `manifests` if that is
    /// the source.
    #[serde(default)]
    pub source_lost: BTreeMap<String, u64>,
    /// What other processes have changed, and the agent has repaired.
    #[serde(default)]
    pub repairs: Repairs,
    /// What is served over HTTP.
    #[serde(default)]
    pub listeners: Vec<ListenerReport>,
    /// The parts of the features.
    #[serde(flatten)]
    pub sections: Sections,
}

/// Describes this process, which starts now.
pub(super) fn this_process() -> AgentInfo {
    let now = seconds_since_epoch();
    AgentInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        started: now,
        updated: now,
    }
}

impl Report {
    /// Replaces the report in `directory` at once: a reader sees the old or the new one.
    pub fn write(&self, directory: &Path) -> Result<(), ReportError> {
        replace_file(directory, STATUS_FILE, self)
    }

    /// Reads the report in `directory`.
    pub fn read(directory: &Path) -> Result<Self, ReportError> {
        read_file(directory, STATUS_FILE)
    }
}

impl Report {
    /// Whether this differs from an earlier report of the same agent by the time alone when it was made.
    pub(super) fn says_the_same(&self, former: &Self) -> bool {
        let agent = former.common.agent.clone();
        *former == Self { common: CommonReport { agent, ..self.common.clone() }, ..self.clone() }
    }

    /// Whether the agent that `run` names wrote this: another one did before it came.
    pub fn is_of(&self, run: &Run) -> bool {
        let agent = &self.common.agent;
        u64::from(agent.pid) == run.pid && agent.host == run.host
    }
}

/// The time now.
pub(crate) fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
pub(crate) mod fixture {
    use serde_json::json;

    use super::*;

    /// That of a healthy agent with one import.
    pub(crate) fn report() -> Report {
        let capacity =
            json!({"vips": 1, "frontends": 1, "endpoints": 1, "clusters": 1, "imports": 1});
        let text = json!({
            "agent": {"version": "1", "pid": 7, "host": "n1", "started": 100, "updated": 100},
            "synced": true,
            "source": {"name": "Kubernetes", "kinds": [], "problems": [], "skipped": {}},
            "node_name": null,
            "node": {"zone": null, "cluster_id": null, "api_servers": [], "service_ranges": null, "pod_ranges": []},
            "socket_lb": "all",
            "tc": {"mode": "off", "attach": "tcx", "looked": true, "problem": null, "devices": []},
            "cgroup_path": "/sys/fs/cgroup",
            "cgroup_id": 1,
            "features": {
                "set_retval": true, "tcx": true, "netns_cookie": true, "memory_cgroups": true, "coarse_clock": true,
            },
            "capacity": capacity, "max_memory": 1, "max_capacity": capacity,
            "usage": {"vips": 1, "frontends": 1, "endpoints": 1, "clusters": 1},
            "config_map_bytes": 1,
            "state_map_bytes": 1,
            "flows": null,
            "imports": [{"import": {"namespace": "shop", "name": "web"}, "state": "Ready", "message": ""}],
            "rejections": [],
            "outdated": false,
            "pending": [],
        });
        serde_json::from_value(text).unwrap()
    }
}
