//! Programs on a kernel in memory, with pins, a cgroup and a run directory of their own.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use tempfile::TempDir;

use super::InstalledPrograms;
use crate::{
    agent::{
        Config, SocketLb, SourceConfig, TcAttach, kernel::testing::Kernel,
        run_directory::run_directory,
    },
    devices::{DeviceOptions, DevicePatterns, TcMode, Uplinks},
    flows::FlowCapacity,
    loader::{CgroupRoot, DirectoryLock, Features, Pins, SOCKET_SLOT_BITS},
    model::{Memory, PassiveHealth, fixture::plain_node},
    reach::ProbePeers,
    source::ReadScope,
};

/// Where one agent runs.
pub(in crate::agent) struct Site {
    pub(in crate::agent) directory: TempDir,
    pub(in crate::agent) config: Config,
    pub(in crate::agent) kernel: Arc<Kernel>,
}

impl Site {
    pub(in crate::agent) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let pins = Pins::new(&config.bpffs);
        fs::create_dir(pins.root()).unwrap();
        let site = Self { directory, config, kernel: Kernel::of(pins.root()) };
        site.make_cgroup();
        site
    }

    pub(in crate::agent) fn make_cgroup(&self) {
        let cgroup = self.directory.path().join("cgroup");
        fs::create_dir(&cgroup).unwrap();
        // Every cgroup of version 2 has this file.
        fs::write(cgroup.join("cgroup.controllers"), "").unwrap();
    }

    pub(in crate::agent) async fn install(&self) -> anyhow::Result<InstalledPrograms> {
        let config = self.config.clone();
        let pins = Pins::new(&config.bpffs);
        let lock = DirectoryLock::try_take(pins.root())?.context("another agent runs")?;
        let cgroup = CgroupRoot::find(config.cgroup_root.as_deref())?;
        let run_directory = run_directory(&config, &pins)?;
        let (host, features) = ("n1".to_owned(), Features::ALL);
        InstalledPrograms::install(config, host, cgroup, pins, lock, run_directory, features).await
    }
}

/// Socket programs, and none on devices.
fn config(directory: &Path) -> Config {
    let (pods, uplinks) = (DevicePatterns(vec![]), Uplinks::None);
    Config {
        source: SourceConfig::Manifests(directory.to_owned(), ReadScope::default()),
        bpffs: directory.to_owned(),
        cgroup_root: Some(directory.join("cgroup")),
        socket_lb: SocketLb::All,
        packets: DeviceOptions { mode: TcMode::Off, pods, uplinks },
        tc_attach: TcAttach::Auto,
        node_name: None,
        vip_cidrs: vec![],
        node: plain_node().facts,
        max_memory: Memory(256 << 20),
        flows: FlowCapacity::default(),
        min_sync_period: Duration::ZERO,
        stale_udp: false,
        stale_tcp: false,
        probe_peers: ProbePeers::Off,
        passive_health: PassiveHealth::Off,
        release_after: None,
        health_address: None,
        metrics_address: None,
        page: false,
        metrics_imports: 0,
        liveness_timeout: Duration::from_mins(1),
        run_dir: directory.join("run"),
        log_programs: false,
        socket_slot_bits: SOCKET_SLOT_BITS,
    }
}
