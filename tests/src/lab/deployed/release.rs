//! The agent as its chart installs it.

use super::{
    Member, PATIENCE,
    agents::{self, NAME, NAMESPACE},
};
use crate::{cluster::Programs, prelude::*};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/mcs-agent");

/// Installs, changes and removes it.
pub struct Release {
    helm: PathBuf,
    values: Vec<PathBuf>,
}

impl Release {
    /// Does nothing yet. `values` are files with values of the chart.
    pub fn new(programs: &Programs, values: &[PathBuf]) -> Result<Self> {
        Ok(Self { helm: programs.find("helm")?, values: values.to_owned() })
    }

    /// Installs it, or changes it to have these values of the chart, as `KEY=VALUE`, and returns
    /// when it is ready on every node.
    pub fn install(&self, member: &Member, values: &[&str]) -> Result {
        // helm is content as soon as the update's strategy allows that many to be unavailable.
        let installed = self.install_beside(member, NAME, values);
        installed.and_then(|()| agents::wait(member)).with_context(|| agents::explain(member))
    }

    /// The same for a release of another name, as ready as helm wants it.
    pub fn install_beside(&self, member: &Member, name: &str, values: &[&str]) -> Result {
        let mut helm = member.helm(&self.helm);
        helm.args(["upgrade", "--install", "--create-namespace", "--namespace", NAMESPACE]);
        // Without values helm would take those of the release before.
        helm.arg("--reset-values");
        // What kustomize has installed is replaced.
        helm.args(["--take-ownership", "--wait", "--timeout", "120s", name, CHART]);
        // Connections of cases before this one can be left.
        helm.args(["--set", "uninstall.drainSeconds=20"]);
        for file in &self.values {
            helm.arg("--values").arg(file);
        }
        for value in values {
            helm.args(["--set", value]);
        }
        process::run(&mut helm, "").map(drop)
    }

    /// Installs it as the chart has it, unless it is there already. One that is not ready is an
    /// error.
    pub fn ensure(&self, member: &Member) -> Result {
        if !self.is_installed(member)? {
            return self.install(member, &[]);
        }
        let status = agents::daemon_set(member)?["status"].take();
        let ready = &status["numberReady"];
        ensure!(ready == &status["desiredNumberScheduled"], "the agent is not ready: {status}");
        Ok(())
    }

    /// Whether it is there.
    pub fn is_installed(&self, member: &Member) -> Result<bool> {
        let mut helm = member.helm(&self.helm);
        // Also where an uninstall was not completed.
        helm.args(["list", "--all", "--namespace", NAMESPACE, "--short", "--filter", NAME]);
        Ok(!process::run(&mut helm, "")?.trim().is_empty())
    }

    /// Removes it as its documentation says.
    pub fn remove(&self, member: &Member) -> Result {
        if !self.is_installed(member)? {
            return Ok(());
        }
        self.uninstall(member, NAME).with_context(|| agents::explain(member))?;
        wait::within(PATIENCE, "the agent's pods to be gone", || {
            let pods = agents::pods(member)?;
            ensure!(pods.is_empty(), "{} are there", pods.len());
            Ok(())
        })
    }

    /// Runs `helm uninstall`.
    pub fn uninstall(&self, member: &Member, name: &str) -> Result {
        process::run(&mut self.uninstall_within(member, name, "120s"), "").map(drop)
    }

    /// Lets helm begin to uninstall it, and give up after a second.
    pub fn begin_to_uninstall(&self, member: &Member) -> Result {
        let ended = process::run(&mut self.uninstall_within(member, NAME, "1s"), "");
        let gave_up = ended.err().context("helm was done within a second")?;
        ensure!(format!("{gave_up:#}").contains("timed out"), "{gave_up:#}");
        Ok(())
    }

    fn uninstall_within(&self, member: &Member, name: &str, timeout: &str) -> Command {
        let mut helm = member.helm(&self.helm);
        helm.args(["uninstall", "--namespace", NAMESPACE, "--wait", "--timeout", timeout, name]);
        helm
    }
}
