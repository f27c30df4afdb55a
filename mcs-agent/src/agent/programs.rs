use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context as _;
use mcs_common::{RunRecord, text};
use tokio::io::{Interest, unix::AsyncFd};

use super::{Config, SocketLb};
use crate::{
    dataplane::{Access, KernelMaps, read_run_record, write_run_record},
    loader::{CgroupRoot, DirectoryLock, Features, LoadOptions, Pins, Programs, own_netns_cookie},
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
    socket_lb: SocketLb,
    _lock: DirectoryLock,
}

impl Dataplane {
    /// Waits to be the only agent, loads the programs, and attaches them unless their maps have to
    /// be filled first.
    pub(super) async fn start(config: &Config) -> anyhow::Result<Self> {
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
        let programs = Programs::load(&LoadOptions {
            pins: pins.clone(),
            capacity: config.capacity,
            features,
            only_netns,
            log_level: config.program_log,
        })?;
        let maps = KernelMaps::open(&programs.config(), Access::Write)?;
        let run_directory = run_directory(config)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let mut dataplane = Self {
            maps,
            pins,
            features,
            cgroup,
            run_directory,
            host,
            programs,
            socket_lb: config.socket_lb,
            _lock: lock,
        };
        dataplane.sign()?;
        if config.program_log.is_some() {
            dataplane.follow_program_log()?;
        }
        if dataplane.programs.is_staged() {
            tracing::info!(
                "the pinned maps are of another shape: filling new ones beside them; what is \
                 attached goes on until then"
            );
        } else {
            dataplane.attach()?;
        }
        Ok(dataplane)
    }

    /// Called once the maps hold all that is wanted.
    pub(super) fn filled(&mut self) -> anyhow::Result<()> {
        if self.programs.is_staged() {
            self.attach()?;
        }
        Ok(())
    }

    fn attach(&mut self) -> anyhow::Result<()> {
        if self.socket_lb == SocketLb::Off {
            self.pins.detach()?;
            tracing::info!("socket hooks: off");
            return Ok(());
        }
        self.programs.attach(&self.cgroup)?;
        tracing::info!(
            cgroup = %self.cgroup.path.display(),
            refusal = if self.features.set_retval { "ECONNREFUSED" } else { "EPERM" },
            "socket hooks: attached"
        );
        Ok(())
    }

    /// Leaves word in the maps of who runs, and where its report is.
    fn sign(&mut self) -> anyhow::Result<()> {
        let record = RunRecord {
            directory: text(&self.run_directory.to_string_lossy()),
            host: text(&self.host),
            pid: u64::from(std::process::id()),
        };
        write_run_record(&self.programs.config(), &record).context("cannot sign the maps")
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

async fn wait_for_lock(pins: &Pins) -> anyhow::Result<DirectoryLock> {
    let mut told = false;
    loop {
        let root = pins.root();
        if let Some(lock) = DirectoryLock::try_take(root)
            .with_context(|| format!("cannot lock {}", root.display()))?
        {
            return Ok(lock);
        }
        if !told {
            let holder = match read_run_record(&pins.config()) {
                Ok(run) => format!("process {} on {}", run.pid, run.host),
                Err(_) => "another mcs-agent".to_owned(),
            };
            tracing::warn!(
                "{} belongs to {holder}: waiting for it to end (a second agent needs a --bpffs \
                 directory of its own)",
                root.display()
            );
            told = true;
        }
        tokio::time::sleep(LOCK_RETRY).await;
    }
}

/// A directory of this agent alone: named after its bpffs directory.
fn run_directory(config: &Config) -> anyhow::Result<PathBuf> {
    let bpffs = config.bpffs.canonicalize().unwrap_or_else(|_| config.bpffs.clone());
    let name = bpffs.to_string_lossy().trim_matches('/').replace('/', "-");
    let directory = config.run_dir.join(name);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make the run directory {}", directory.display()))?;
    directory.canonicalize().with_context(|| format!("cannot use {}", directory.display()))
}
