//! A controller that runs as a process, with the rights that are shipped.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::Context as _;
use mcs_tests::netns::Namespace;

/// The variable with the path of `mcs`.
const COMMAND_LINE: &str = "MCS_CLI";
/// The namespace that it is installed in.
pub(crate) const NAMESPACE: &str = "mcs-controller";
/// The namespace that it publishes in.
pub(crate) const MAILBOX: &str = "mcs-mailbox";

/// Which controller runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    This,
    /// One that acts as the next version.
    Next,
    /// One of an earlier commit, which is there by request alone.
    Earlier,
}

impl Version {
    /// The variable with its path.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Self::This => "MCS_CONTROLLER",
            Self::Next => "MCS_CONTROLLER_NEXT",
            Self::Earlier => "MCS_CONTROLLER_EARLIER",
        }
    }
}

/// `mcs-controller`, which will run in a namespace.
pub(crate) fn command(netns: &Namespace) -> anyhow::Result<Command> {
    program(netns, Version::This.variable())
}

/// `mcs`, which will run in a namespace.
pub(crate) fn command_line(netns: &Namespace) -> anyhow::Result<Command> {
    program(netns, COMMAND_LINE)
}

fn program(netns: &Namespace, variable: &str) -> anyhow::Result<Command> {
    let program = env::var_os(variable).with_context(|| format!("{variable} names no program"))?;
    Ok(netns.command(program))
}

/// `mcs-controller run`. It is killed when this is dropped.
pub(crate) struct Controller {
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
    pub(crate) fn start(
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
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.start_again()
    }

    /// Starts it again with these flags instead of its own.
    pub(crate) fn restart_with(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self.restart()
    }

    /// Starts it again with these variables.
    pub(crate) fn restart_in(&mut self, variables: &[(&str, &str)]) -> anyhow::Result<()> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.variables = variables.iter().map(owned).collect();
        self.restart()
    }

    /// Starts it again, as this version.
    pub(crate) fn restart_as(&mut self, version: Version) -> anyhow::Result<()> {
        self.version = version;
        self.restart()
    }

    /// Its process id. `nsenter` becomes the controller.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.child.as_ref().context("no controller runs")?.id())
    }

    /// Whether its process has not ended.
    pub(crate) fn lives(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.as_mut().context("no controller runs")?.try_wait()?.is_none())
    }

    /// Whether it was started, and not killed since.
    pub(crate) const fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// What it has logged.
    pub(crate) fn logged(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Starts another one for the same cluster.
    pub(crate) fn another(&self, flags: &[&str]) -> anyhow::Result<Self> {
        let directory = self.log.parent().context("a log lies in a directory")?;
        let (netns, kubeconfig) = (Arc::clone(&self.netns), self.kubeconfig.clone());
        Self::start(netns, directory, kubeconfig, flags)
    }

    /// Starts it after [`Controller::kill`].
    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
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
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
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
