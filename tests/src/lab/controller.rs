//! A controller that runs as a process, with the rights that are shipped.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use crate::{
    api_server::{ApiServer, namespace, namespaced},
    cluster::cluster_property,
    netns::Namespace,
    wait,
};
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// As they are shipped.
const SHIPPED: [&str; 5] = [
    include_str!("../../../deploy/kustomize/controller/crds.yaml"),
    include_str!("../../../deploy/kustomize/controller/rbac.yaml"),
    include_str!("../../../deploy/kustomize/controller/mailbox.yaml"),
    include_str!("../../../deploy/kustomize/controller/admission.yaml"),
    include_str!("../../../deploy/kustomize/controller/roles.yaml"),
];

/// The variable with the path of `mcs`.
const COMMAND_LINE: &str = "MCS_CLI";
/// The namespace that it is installed in.
pub const NAMESPACE: &str = "mcs-controller";
/// The namespace that it publishes in.
pub const MAILBOX: &str = "mcs-mailbox";

/// Which controller runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// The one of this repository.
    This,
    /// One that acts as the next version.
    Next,
    /// One of an earlier commit, which is there by request alone.
    Earlier,
}

impl Version {
    /// The variable with its path.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::This => "MCS_CONTROLLER",
            Self::Next => "MCS_CONTROLLER_NEXT",
            Self::Earlier => "MCS_CONTROLLER_EARLIER",
        }
    }
}

/// Installs what is shipped for the controller, except for the controller. Returns the kubeconfig that it starts with.
pub fn install(server: &ApiServer, id: &str) -> anyhow::Result<PathBuf> {
    server.api.apply(&namespace(NAMESPACE))?;
    for shipped in SHIPPED {
        server.api.apply_yaml(shipped)?;
    }
    for (name, value) in [("cluster.clusterset.k8s.io", id), ("clusterset.k8s.io", "tests")] {
        let property = cluster_property(name, value);
        wait::until("ClusterProperties", || server.api.apply(&property))?;
    }
    let account = namespaced("v1", "ServiceAccount", NAMESPACE, "mcs-controller");
    let token = server.directory().join("controller.token");
    server.write_token(&account, &token)?;
    let kubeconfig = server.directory().join("controller.kubeconfig");
    server.write_kubeconfig(&kubeconfig, &token)?;
    Ok(kubeconfig)
}

/// `mcs-controller`, which will run in a namespace.
pub fn command(netns: &Namespace) -> anyhow::Result<Command> {
    program(netns, Version::This.variable())
}

/// `mcs`, which will run in a namespace.
pub fn command_line(netns: &Namespace) -> anyhow::Result<Command> {
    program(netns, COMMAND_LINE)
}

fn program(netns: &Namespace, variable: &str) -> anyhow::Result<Command> {
    let program = env::var_os(variable).with_context(|| format!("{variable} names no program"))?;
    Ok(netns.command(program))
}

/// `mcs-controller run`. It is killed when this is dropped.
pub struct Controller {
    netns: Arc<Namespace>,
    kubeconfig: PathBuf,
    log: PathBuf,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
    version: Version,
    child: Option<Child>,
}

impl Controller {
    /// Starts one for the cluster of that kubeconfig.
    pub fn start(
        netns: Arc<Namespace>,
        directory: &Path,
        kubeconfig: PathBuf,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let log = directory.join("mcs-controller.log");
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        let version = Version::This;
        let variables = Vec::new();
        let mut controller =
            Self { netns, kubeconfig, log, flags, variables, version, child: None };
        controller.start_again()?;
        Ok(controller)
    }

    /// Kills it, and starts it again.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.start_again()
    }

    /// Ends it as a rollout does, and starts it again with these flags instead of its own. It gives its Leases away, so that nobody
    /// waits for their end.
    pub fn restart_with(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        if let Some(child) = &mut self.child {
            kill_process(Pid::from_child(child), Signal::TERM)?;
            wait::until("the end of the controller", || {
                child.try_wait()?.context("it runs").map(drop)
            })?;
        }
        self.start_again()
    }

    /// Starts it again with these variables.
    pub fn restart_in(&mut self, variables: &[(&str, &str)]) -> anyhow::Result<()> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.variables = variables.iter().map(owned).collect();
        self.restart()
    }

    /// Starts it again, as this version.
    pub fn restart_as(&mut self, version: Version) -> anyhow::Result<()> {
        self.version = version;
        self.restart()
    }

    /// Its process id. `nsenter` becomes the controller.
    pub fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.child.as_ref().context("no controller runs")?.id())
    }

    /// Whether its process has not ended.
    pub fn lives(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.as_mut().context("no controller runs")?.try_wait()?.is_none())
    }

    /// Whether it was started, and not killed since.
    pub const fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// What it has logged.
    pub fn logged(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Starts another one for the same cluster.
    pub fn another(&self, flags: &[&str]) -> anyhow::Result<Self> {
        let directory = self.log.parent().context("a log lies in a directory")?;
        let (netns, kubeconfig) = (Arc::clone(&self.netns), self.kubeconfig.clone());
        Self::start(netns, directory, kubeconfig, flags)
    }

    /// Starts it after [`Controller::kill`].
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = program(&self.netns, self.version.variable())?;
        command
            .arg("run")
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .args(["--namespace", NAMESPACE])
            .arg("--log=info,mcs_controller=debug,mcs_kube=debug")
            // Pods of most cases are addresses alone.
            .env("MCS_PROBE_PEERS", "off")
            .envs([("MCS_HEALTH_ADDRESS", "off"), ("MCS_METRICS_ADDRESS", "off")])
            .envs(self.variables.iter().cloned())
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(command.spawn().context("cannot start the controller")?);
        Ok(())
    }

    /// Kills it, and waits for that.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It is not left behind by a case that fails.
        let _ = self.kill();
    }
}
