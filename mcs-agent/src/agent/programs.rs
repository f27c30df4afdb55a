use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use mcs_common::{RunRecord, text};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    Config, SocketLb,
    flow_move::FlowMove,
    tc::{self, PacketPath},
};
use crate::{
    dataplane::{Access, KernelMaps, read_run_record, write_run_record},
    loader::{
        CgroupRoot, DirectoryLock, Features, LoadOptions, Pins, Programs, ensure_capable,
        own_netns_cookie,
    },
    reconcile::Maps as _,
};

/// How often a second agent looks whether the first has gone.
const LOCK_RETRY: Duration = Duration::from_secs(1);

/// The loaded programs, their maps, and what makes this agent the only one to write them.
pub(super) struct Dataplane {
    pub(super) maps: KernelMaps,
    pub(super) pins: Pins,
    pub(super) features: Features,
    pub(super) cgroup: CgroupRoot,
    pub(super) run_directory: PathBuf,
    pub(super) host: String,
    programs: Programs,
    pub(super) packets: PacketPath,
    pub(super) socket_lb: SocketLb,
    _lock: DirectoryLock,
}

impl Dataplane {
    /// Waits to be the only agent, loads the programs, and attaches them unless their maps have to
    /// be filled first.
    pub(super) async fn start(config: &Config) -> anyhow::Result<Self> {
        ensure_capable()?;
        let cgroup = CgroupRoot::find(config.cgroup_root.as_deref())?;
        let pins = Pins::new(&config.bpffs);
        pins.prepare(&config.bpffs)?;
        let lock = wait_for_lock(&pins).await?;
        let features = Features::probe().context("cannot probe the kernel's eBPF features")?;
        let only_netns = match config.socket_lb {
            SocketLb::Host => Some(own_netns_cookie().context(
                "--socket-lb=host needs SO_NETNS_COOKIE (Linux 5.14): use --socket-lb=all",
            )?),
            SocketLb::All | SocketLb::Off => None,
        };
        let mut programs = Programs::load(&LoadOptions {
            pins: pins.clone(),
            capacity: config.capacity,
            flows: config.flows,
            features,
            only_netns,
            tc_hooks: tc::hooks(config),
            log_level: config.program_log,
        })?;
        let maps = KernelMaps::open(&programs.config(), Access::Write)?;
        let run_directory = run_directory(config, &pins)?;
        let classifiers = programs.take_classifiers();
        let packets = PacketPath::start(config, &pins, features, classifiers).await?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let mut dataplane = Self {
            maps,
            pins,
            features,
            cgroup,
            run_directory,
            host,
            programs,
            packets,
            socket_lb: config.socket_lb,
            _lock: lock,
        };
        dataplane.sign()?;
        if config.program_log.is_some() {
            dataplane.follow_program_log()?;
        }
        if dataplane.carry_over(config) {
            dataplane.activate()?;
        }
        Ok(dataplane)
    }

    /// Whether the attached programs are those of an earlier agent, with maps that nobody writes
    /// any more.
    pub(super) fn is_outdated(&self) -> bool {
        self.programs.is_staged()
    }

    /// Called once the maps hold all that is wanted.
    pub(super) fn filled(&mut self) -> anyhow::Result<()> {
        if self.is_outdated() { self.activate() } else { Ok(()) }
    }

    /// Every hook that is not attached where it belongs.
    pub(super) fn detached_hooks(&self) -> anyhow::Result<Vec<String>> {
        if self.socket_lb == SocketLb::Off || self.is_outdated() {
            return Ok(Vec::new());
        }
        let hooks = self.pins.hooks()?;
        let lost = hooks.into_iter().filter(|hook| hook.cgroup_id != Some(self.cgroup.id));
        Ok(lost.map(|hook| hook.name).collect())
    }

    /// Attaches the programs, or switches to them, and leaves the maps of an earlier agent.
    pub(super) fn activate(&mut self) -> anyhow::Result<()> {
        let mut flows = FlowMove::find(&self.pins);
        flows.copy();
        self.attach()?;
        // What began while programs were switched one by one.
        flows.copy();
        Ok(self.programs.commit()?)
    }

    fn attach(&mut self) -> anyhow::Result<()> {
        if self.socket_lb == SocketLb::Off {
            self.pins.detach()?;
            tracing::info!("socket hooks: off");
        } else {
            self.programs.attach(&self.cgroup)?;
            tracing::info!(
                cgroup = %self.cgroup.path.display(),
                refusal = if self.features.set_retval { "ECONNREFUSED" } else { "EPERM" },
                "socket hooks: attached"
            );
        }
        self.packets.activate();
        Ok(())
    }

    /// Fills maps of a new shape with what the old ones hold, so that the programs can be switched
    /// before anything has been read. Whether there is nothing left in the old ones.
    fn carry_over(&mut self, config: &Config) -> bool {
        if !self.is_outdated() {
            return true;
        }
        let old = self.pins.config();
        let copied =
            KernelMaps::open(&old, Access::Read).and_then(|maps| maps.dump()).and_then(|dump| {
                dump.copy(config.capacity).iter().try_for_each(|step| self.maps.write(step))
            });
        match copied {
            Ok(()) => {
                tracing::info!("the pinned maps are of another shape: moved to new ones");
                true
            }
            Err(error) => {
                tracing::warn!(
                    "the pinned maps are of another shape and cannot be read: {:#}; what is \
                     attached goes on until new ones are filled from the source",
                    anyhow::Error::new(error)
                );
                false
            }
        }
    }

    /// Leaves word in the maps of who runs, and where its report is.
    fn sign(&self) -> anyhow::Result<()> {
        let directory = self.run_directory.to_string_lossy();
        let record = RunRecord {
            directory: text(&directory),
            host: text(&self.host),
            pid: u64::from(std::process::id()),
        };
        ensure!(
            directory.len() < record.directory.len(),
            "the path {directory} is too long for the map that leads to it: use a shorter --run-dir"
        );
        write_run_record(&self.pins.run(), &record).context("cannot sign the maps")
    }

    fn follow_program_log(&mut self) -> anyhow::Result<()> {
        let logger = aya_log::EbpfLogger::init(self.programs.ebpf_mut())
            .context("cannot read the log of the programs")?;
        // SAFETY: the logger owns its ring buffer's descriptor, and keeps it until it is dropped.
        let mut logger = unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) }
            .context("cannot wait for the log of the programs")?;
        tokio::spawn(async move {
            while let Ok(mut guard) = logger.readable_mut().await {
                guard.get_inner_mut().flush();
                guard.clear_ready();
            }
        });
        Ok(())
    }
}

/// Waits to be alone. Meanwhile the state directory is locked, for `status` to tell.
async fn wait_for_lock(pins: &Pins) -> anyhow::Result<DirectoryLock> {
    let take = |directory: &Path| {
        DirectoryLock::try_take(directory)
            .with_context(|| format!("cannot lock {}", directory.display()))
    };
    let root = pins.root();
    if let Some(lock) = take(root)? {
        return Ok(lock);
    }
    let holder = read_run_record(&pins.run())
        .map_or_else(|_| "another mcs-agent".to_owned(), |run| run.to_string());
    tracing::warn!(
        "{} belongs to {holder}: waiting for it to end (a second agent needs a --bpffs directory of \
         its own)",
        root.display()
    );
    let _waiting = take(&pins.state())?;
    loop {
        tokio::time::sleep(LOCK_RETRY).await;
        if let Some(lock) = take(root)? {
            return Ok(lock);
        }
    }
}

/// A directory of this agent alone: named after its bpffs directory, and told from others of that
/// name (in other mount namespaces) by the inode.
fn run_directory(config: &Config, pins: &Pins) -> anyhow::Result<PathBuf> {
    let root = pins.root();
    let inode = fs::metadata(root).with_context(|| format!("cannot use {}", root.display()))?;
    let bpffs = config.bpffs.canonicalize().unwrap_or_else(|_| config.bpffs.clone());
    let name = bpffs.to_string_lossy().trim_matches('/').replace('/', "-");
    let directory = config.run_dir.join(format!("{name}-{:x}-{:x}", inode.dev(), inode.ino()));
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make the run directory {}", directory.display()))?;
    directory.canonicalize().with_context(|| format!("cannot use {}", directory.display()))
}
