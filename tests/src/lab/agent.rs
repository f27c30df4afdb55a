//! Starts, stops and queries an `mcs-agent run` process.

mod cleanup;
mod explain;

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub use self::{cleanup::Cleanup, explain::fates};
use crate::{
    manifests::{Frontends, Protocol, Service},
    netns::Namespace,
    process, wait,
};

/// The hooks that are attached when all is well.
pub const HOOKS: usize = 9;

/// The capabilities that every agent has, as the `DaemonSet` gives them, and no others.
/// [`Config::capabilities`] adds what a switch of the chart does.
pub const CAPABILITIES: [&str; 3] = ["bpf", "net_admin", "perfmon"];

/// What the chart's `staleUdp` adds.
pub const CAPABILITY_FOR_STALE_UDP: &str = "sys_admin";

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it reads objects.
    pub source: Source,
    /// `--bpffs`.
    pub bpffs: PathBuf,
    /// `--cgroup-root`.
    pub cgroup_root: PathBuf,
    /// `--run-dir`.
    pub run_dir: PathBuf,
    /// More capabilities than [`CAPABILITIES`].
    pub capabilities: Vec<&'static str>,
    /// More flags.
    pub flags: Vec<String>,
    /// A file that what it prints is appended to.
    pub log: PathBuf,
    /// Whether it is spared by a Ctrl-C on the terminal.
    pub own_process_group: bool,
}

/// Where an agent reads objects.
#[derive(Clone, Debug)]
pub enum Source {
    /// `--manifests`.
    Manifests(PathBuf),
    /// `--kubeconfig`.
    Kubeconfig(PathBuf),
    /// What a pod finds.
    Pod {
        /// A directory with what belongs to a service account: `token`, `ca.crt` and `namespace`.
        account: PathBuf,
        /// The API server.
        server: SocketAddr,
    },
}

/// Shows a directory where pods find their service account, to itself alone.
const AS_A_POD: &str = "account=$1 && shift && mount -t tmpfs none /var/run \
    && mkdir -p /var/run/secrets/kubernetes.io \
    && ln -s \"$account\" /var/run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";

impl Source {
    /// Without an API server the agent is told where Services have addresses: where no import of a suite has one.
    fn service_range(&self) -> Option<(&'static str, &'static str)> {
        matches!(self, Self::Manifests(_))
            .then_some(("MCS_SERVICE_CIDR", "172.30.0.0/16,fd30::/108"))
    }

    /// `mcs-agent run`, which reads here.
    fn command(&self, binary: &Path, netns: &Namespace, more: &[&str]) -> Command {
        let limits = limit(&[&CAPABILITIES, more].concat());
        let run = |flag: &str, path: &Path| {
            let mut command = netns.command("setpriv");
            command.args(&limits).arg(binary).arg("run").arg(flag).arg(path);
            command
        };
        match self {
            Self::Manifests(directory) => run("--manifests", directory),
            Self::Kubeconfig(file) => run("--kubeconfig", file),
            Self::Pod { account, server } => {
                let mut command = netns.command("unshare");
                command.args(["--mount", "--", "/bin/sh", "-c", AS_A_POD, "sh"]);
                command.arg(account).arg("setpriv").args(&limits).arg(binary).arg("run");
                command.env("KUBERNETES_SERVICE_HOST", server.ip().to_string());
                command.env("KUBERNETES_SERVICE_PORT", server.port().to_string());
                command
            }
        }
    }
}

/// An agent. The process is killed when this is dropped.
#[derive(Debug)]
pub struct Agent {
    binary: PathBuf,
    netns: Namespace,
    config: Config,
    child: Child,
}

impl Agent {
    /// Starts one, without waiting for it.
    pub fn start(netns: &Namespace, config: Config) -> anyhow::Result<Self> {
        Self::start_as(&binary()?, netns, config)
    }

    /// Starts this program.
    pub fn start_as(binary: &Path, netns: &Namespace, config: Config) -> anyhow::Result<Self> {
        let child = spawn(binary, netns, &config)?;
        let netns = Namespace::open(netns.name())?;
        Ok(Self { binary: binary.to_owned(), netns, config, child })
    }

    /// Starts it again after [`Agent::stop`] or [`Agent::kill`], with these flags.
    pub fn start_again(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        self.config.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self.child = spawn(&self.binary, &self.netns, &self.config)?;
        Ok(())
    }

    /// Kills it, starts another one in its place with these flags, and waits until that is healthy.
    pub fn replace(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        self.kill()?;
        self.come_back(flags)
    }

    /// Starts it again with these flags, and waits until it is healthy.
    pub fn come_back(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        self.start_again(flags)?;
        self.wait_until_healthy()
    }

    /// Starts it again, and it reads objects elsewhere.
    pub fn start_again_on(&mut self, source: Source) -> anyhow::Result<()> {
        self.config.source = source;
        self.child = spawn(&self.binary, &self.netns, &self.config)?;
        Ok(())
    }

    /// The program that is started.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its `--bpffs`.
    pub fn bpffs(&self) -> &Path {
        &self.config.bpffs
    }

    /// Has another program started from now on.
    pub fn set_binary(&mut self, binary: &Path) {
        binary.clone_into(&mut self.binary);
    }

    /// What it was started with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has read its manifests, filled the maps and attached its programs. Objects need not fit.
    pub fn wait_until_healthy(&mut self) -> anyhow::Result<()> {
        let pid = self.pid();
        let ended = wait::until("the agent to be healthy", || {
            let ended = self.child.try_wait()?;
            if ended.is_none() {
                let status = self.status()?;
                let writer = &status["report"]["agent"]["pid"];
                ensure!(*writer == pid, "the report is of another process");
                ensure!(works(&status), "{}", status["degraded"]);
            }
            Ok(ended)
        })?;
        if let Some(status) = ended {
            bail!("the agent ended, {status}: {}", self.log()?.trim_end());
        }
        Ok(())
    }

    /// Asks it to end, and waits for that. The dataplane stays.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.end(Signal::TERM)
    }

    /// Kills it, and waits for that. The dataplane stays.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.end(Signal::KILL)
    }

    /// Sends it a signal, and does not wait.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Whether it has ended, on its own or because something else ended it.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until it has ended, on its own or because something else ended it.
    pub fn wait_until_ended(&mut self) -> anyhow::Result<()> {
        wait::until("the agent to end", || {
            ensure!(self.has_ended()?, "it runs");
            Ok(())
        })
    }

    fn end(&mut self, signal: Signal) -> anyhow::Result<()> {
        self.signal(signal)?;
        self.child.wait()?;
        Ok(())
    }

    /// What it logged, in all its runs.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.config.log)?)
    }

    /// `mcs-agent status -o json`, degraded or not.
    pub fn status(&self) -> anyhow::Result<Value> {
        process::json(&self.command(&["status", "-o", "json"])?)
    }

    /// What the programs have counted, by name.
    pub fn counters(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        Ok(serde_json::from_value(self.status()?["counters"].take())?)
    }

    /// Whether `mcs-agent status` exits with 0.
    pub fn is_healthy(&self) -> anyhow::Result<bool> {
        Ok(self.command(&["status"])?.status.success())
    }

    /// `mcs-agent services -o json`.
    pub fn services(&self) -> anyhow::Result<Value> {
        process::json(&self.command(&["services", "-o", "json"])?)
    }

    /// The frontends of one service.
    pub fn frontends(&self, name: &str) -> anyhow::Result<Frontends> {
        frontends(&self.services()?, name)
    }

    /// Waits until the maps hold exactly what `service` asks for.
    pub fn wait_for(&self, service: &Service) -> anyhow::Result<()> {
        self.wait_for_frontends(service.name(), &service.frontends())
    }

    /// Waits until the maps hold nothing of the service.
    pub fn wait_until_gone(&self, name: &str) -> anyhow::Result<()> {
        self.wait_for_frontends(name, &Frontends::new())
    }

    /// Waits until the maps hold exactly these frontends of the service.
    pub fn wait_for_frontends(&self, name: &str, expected: &Frontends) -> anyhow::Result<()> {
        wait::until(&format!("the frontends of {name}"), || {
            let found = self.frontends(name)?;
            ensure!(found == *expected, "there are {found:?} instead of {expected:?}");
            Ok(())
        })
    }

    /// `mcs-agent cleanup`, which does not wait for connections.
    pub fn cleanup(&self) -> anyhow::Result<Output> {
        self.output(self.cleanup_command().arg("--drain=0"))
    }

    /// Begins a cleanup that waits for connections.
    pub fn begin_cleanup(&self) -> anyhow::Result<Cleanup> {
        Cleanup::start(self.cleanup_command().arg("--bpffs").arg(&self.config.bpffs))
    }

    /// `mcs-agent cleanup`, in the network namespace of the agent.
    fn cleanup_command(&self) -> Command {
        let mut command = self.netns.command(&self.binary);
        command.arg("cleanup");
        command
    }

    /// Runs one of the commands that take nothing but `--bpffs`.
    pub fn command(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.output(Command::new(&self.binary).args(arguments))
    }

    fn output(&self, command: &mut Command) -> anyhow::Result<Output> {
        let command = command.arg("--bpffs").arg(&self.config.bpffs);
        command.output().with_context(|| format!("cannot run {}", self.binary.display()))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The agent to test: `MCS_AGENT`, or the release build beside this program's own.
pub fn binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = env::var_os("MCS_AGENT") {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let targets = own.parent().and_then(Path::parent).context("this program has no directory")?;
    let path = targets.join("release/mcs-agent");
    ensure!(path.exists(), "{} is missing: run `cargo xtask build`", path.display());
    Ok(path)
}

/// Arguments by which setpriv(1) starts a program of root with these capabilities alone, as a
/// container runtime does.
pub fn limit(capabilities: &[&str]) -> [String; 3] {
    [
        format!("--bounding-set=-all,+{}", capabilities.join(",+")),
        "--inh-caps=-all".to_owned(),
        "--no-new-privs".to_owned(),
    ]
}

fn spawn(binary: &Path, netns: &Namespace, config: &Config) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(&config.log)?;
    // What outlives this process must not hold its terminal or pipes.
    let output = log.try_clone()?;
    let mut command = config.source.command(binary, netns, &config.capabilities);
    command
        .arg("--bpffs")
        .arg(&config.bpffs)
        .arg("--cgroup-root")
        .arg(&config.cgroup_root)
        .arg("--run-dir")
        .arg(&config.run_dir)
        .args(&config.flags)
        // What the suites of the socket path show must not be the packet path's doing; a flag says
        // otherwise.
        .env("MCS_TC", "off")
        // Pods of most cases are addresses alone.
        .env("MCS_PROBE_PEERS", "off")
        .envs(config.source.service_range())
        // Many agents run in one namespace; a flag gives one an address.
        .env("MCS_HEALTH_ADDRESS", "off")
        .env("MCS_METRICS_ADDRESS", "off")
        // As the chart sets it.
        .env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=127")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(log);
    if config.own_process_group {
        command.process_group(0);
    }
    command.spawn().with_context(|| format!("cannot start {}", binary.display()))
}

/// The frontends of one service in the output of `services`.
fn frontends(services: &Value, name: &str) -> anyhow::Result<Frontends> {
    let all = services["frontends"].as_array().context("no list of frontends")?;
    all.iter().filter(|frontend| frontend["name"] == name).map(frontend).collect()
}

type Frontend = ((IpAddr, u16, Protocol), std::collections::BTreeSet<SocketAddr>);

fn frontend(value: &Value) -> anyhow::Result<Frontend> {
    let protocol = if value["protocol"] == "TCP" { Protocol::Tcp } else { Protocol::Udp };
    let ip = serde_json::from_value(value["ip"].clone())?;
    let port = serde_json::from_value(value["port"].clone())?;
    let backends = value["backends"].as_array().context("no list of backends")?;
    let backends = backends
        .iter()
        .map(|backend| Ok(serde_json::from_value(backend["address"].clone())?))
        .collect::<anyhow::Result<_>>()?;
    Ok(((ip, port, protocol), backends))
}

/// Whether a status has no fault of the agent: objects need not fit, and programs of others may be in front.
pub fn works(status: &Value) -> bool {
    let of_others = ["do not fit into --max-memory", "runs before the guard"];
    let is_of_others = |one: &Value| {
        one.as_str().is_some_and(|text| of_others.iter().any(|words| text.contains(words)))
    };
    status["degraded"].as_array().is_some_and(|faults| faults.iter().all(is_of_others))
}
