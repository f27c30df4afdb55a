//! An agent that follows an API server.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use mcs_agent::{
    dataplane::{Access, KernelMaps},
    loader::Pins,
    reconcile::Maps as _,
};
use mcs_tests::{
    agent::{Agent, Config, Source},
    bpffs::BpfDirectory,
    cgroup::Cgroup,
    manifests::Service,
    netns::Namespace,
    run::Run,
    wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than an agent waits between two attempts, and what an attempt takes.
const PATIENCE: Duration = Duration::from_secs(40);

/// An agent with a cgroup and a bpffs directory of its own. Nothing of it is left when this is
/// dropped.
pub(crate) struct Site {
    pub(crate) agent: Agent,
    pub(crate) cgroup: Cgroup,
    bpffs: BpfDirectory,
}

impl Site {
    /// Starts one that follows what a kubeconfig leads to, without waiting for it.
    pub(crate) fn start(
        run: &Run,
        role: &str,
        netns: &Namespace,
        kubeconfig: PathBuf,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let cgroup = Cgroup::create(run, role)?;
        let bpffs = BpfDirectory::create(run, role)?;
        let run_dir = run.directory().join(role);
        fs::create_dir_all(&run_dir)?;
        let config = Config {
            source: Source::Kubeconfig(kubeconfig),
            bpffs: bpffs.path().to_owned(),
            cgroup_root: cgroup.path().to_owned(),
            run_dir,
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            log: run.directory().join(format!("{role}.log")),
            own_process_group: false,
        };
        Ok(Self { agent: Agent::start(netns, config)?, cgroup, bpffs })
    }

    /// Waits until it has read everything, filled the maps and attached its programs.
    pub(crate) fn wait_until_healthy(&mut self) -> anyhow::Result<()> {
        // One attempt may begin just before what it needs is there.
        let begin = Instant::now();
        loop {
            match self.agent.wait_until_healthy() {
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Waits until the maps hold exactly what a service asks for.
    pub(crate) fn wait_for(&self, service: &Service) -> anyhow::Result<()> {
        let expected = service.frontends();
        wait::within(PATIENCE, &format!("the frontends of {}", service.name()), || {
            let found = self.agent.frontends(service.name())?;
            ensure!(found == expected, "there are {found:?} instead of {expected:?}");
            Ok(())
        })
    }

    /// What the agent reports.
    pub(crate) fn report(&self) -> anyhow::Result<Value> {
        Ok(self.agent.status()?["report"].take())
    }

    /// Waits until the report says what `check` wants.
    pub(crate) fn wait_for_report(
        &self,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<()> {
        wait::within(PATIENCE, what, || {
            let report = self.report()?;
            ensure!(check(&report), "it reports {report}");
            Ok(())
        })
    }

    /// Waits until it says that it cannot read a resource, for such a reason.
    pub(crate) fn wait_for_problem(&self, resource: &str, reason: &str) -> anyhow::Result<()> {
        self.wait_for_report(&format!("a problem with {resource}: {reason}"), |report| {
            problems(report).iter().any(|(place, why)| place == resource && why.contains(reason))
        })
    }

    /// Waits until it has no problem.
    pub(crate) fn wait_until_content(&self) -> anyhow::Result<()> {
        self.wait_for_report("an agent without problems", |report| problems(report).is_empty())
    }

    /// Makes it stand still.
    pub(crate) fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.agent.pid()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("no process id")?, signal)?)
    }

    /// The most memory it has had, in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.agent.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmHWM")?;
        Ok(kib.parse::<u64>()? * 1024)
    }

    /// Looks at the maps, from this process.
    pub(crate) fn maps(&self) -> anyhow::Result<Watcher> {
        let pins = Pins::new(self.bpffs.path());
        Ok(Watcher { maps: KernelMaps::open(&pins.config(), Access::Read)? })
    }
}

/// A reader of an agent's maps.
pub(crate) struct Watcher {
    maps: KernelMaps,
}

impl Watcher {
    /// How long it takes from `begin` until a backend is in use, to the precision of reading the maps.
    pub(crate) fn time(&self, begin: Instant, backend: &str) -> anyhow::Result<Duration> {
        while begin.elapsed() < PATIENCE {
            let maps = self.maps.dump()?.contents().to_string();
            let mut backends = maps.lines().filter(|line| line.starts_with("BACKEND"));
            if backends.any(|line| line.contains(backend)) {
                return Ok(begin.elapsed());
            }
        }
        bail!("{backend} is not in the maps after {PATIENCE:?}")
    }

    /// How many frontends and backends there are.
    pub(crate) fn counts(&self) -> anyhow::Result<(usize, usize)> {
        let maps = self.maps.dump()?.contents().to_string();
        let count = |kind: &str| maps.lines().filter(|line| line.starts_with(kind)).count();
        Ok((count("FRONTEND"), count("BACKEND")))
    }
}

/// What an agent cannot read, and why.
pub(crate) fn problems(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let problems = report["source"]["problems"].as_array().into_iter().flatten();
    problems.map(|problem| (text(&problem["place"]), text(&problem["message"]))).collect()
}

/// Why an object was rejected, in order.
pub(crate) fn rejections(report: &Value, name: &str) -> Vec<String> {
    let rejections = report["rejections"].as_array().into_iter().flatten();
    let of_object = rejections.filter(|rejection| rejection["object"]["name"] == name);
    let mut reasons: Vec<_> = of_object
        .map(|rejection| rejection["reason"].as_str().unwrap_or_default().to_owned())
        .collect();
    reasons.sort();
    reasons
}
