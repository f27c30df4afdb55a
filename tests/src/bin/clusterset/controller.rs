//! A controller that runs as a process, with the rights that are shipped.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, ensure};
use mcs_tests::{netns::Namespace, wait};
use rustix::process::{Pid, Signal, kill_process};

/// The variable with the controller's path.
const VARIABLE: &str = "MCS_CONTROLLER";
/// The namespace that it is installed in.
pub(crate) const NAMESPACE: &str = "mcs-controller";
/// The namespace that it publishes in.
pub(crate) const MAILBOX: &str = "mcs-mailbox";

/// `mcs-controller run`. It is killed when this is dropped.
pub(crate) struct Controller {
    netns: Arc<Namespace>,
    kubeconfig: PathBuf,
    log: PathBuf,
    flags: Vec<String>,
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
        let mut controller = Self { netns, kubeconfig, log, flags, child: None };
        controller.start_again()?;
        Ok(controller)
    }

    /// Starts it after [`Controller::kill`].
    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        let program =
            env::var_os(VARIABLE).with_context(|| format!("{VARIABLE} names no controller"))?;
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = self.netns.command(PathBuf::from(program));
        command
            .arg("run")
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .args(["--namespace", NAMESPACE, "--mailbox", MAILBOX])
            .arg("--log=info,mcs_controller=debug")
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

    /// Stops it (SIGSTOP), with its connections open.
    pub(crate) fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it continue (SIGCONT).
    pub(crate) fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let child = self.child.as_mut().context("the controller is not started")?;
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "the controller ended: see {}", self.log.display());
        Ok(())
    }

    /// Waits until its log has a line with this text, from now on.
    pub(crate) fn wait_for_log(&self, from: usize, text: &str) -> anyhow::Result<()> {
        wait::until(&format!("a line with {text:?} in {}", self.log.display()), || {
            let said = fs::read_to_string(&self.log)?;
            ensure!(said.get(from..).is_some_and(|said| said.contains(text)), "it is not there");
            Ok(())
        })
    }

    /// How much it has logged.
    pub(crate) fn logged(&self) -> anyhow::Result<usize> {
        Ok(fs::read_to_string(&self.log)?.len())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let child = self.child.as_ref().context("the controller is not started")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It is not left behind by a case that fails.
        let _ = self.kill();
    }
}
