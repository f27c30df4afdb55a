//! The agent as its chart installs it.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use mcs_tests::{cluster::Programs, process, wait};
use serde_json::Value;

use crate::member::{Member, PATIENCE};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/mcs-agent");
/// The name of the release and of the DaemonSet, and its namespace.
const NAME: &str = "mcs-agent";
const NAMESPACE: &str = "mcs-system";
const SELECTOR: &str = "app.kubernetes.io/name=mcs-agent";

/// Installs, changes and removes it.
pub(crate) struct Release {
    helm: PathBuf,
    values: Vec<PathBuf>,
}

impl Release {
    /// Does nothing yet. `values` are files with values of the chart.
    pub(crate) fn new(programs: &Programs, values: &[PathBuf]) -> anyhow::Result<Self> {
        Ok(Self { helm: programs.find("helm")?, values: values.to_owned() })
    }

    /// Installs it, or changes it to have these values of the chart, as `KEY=VALUE`, and returns
    /// when it is ready on every node.
    pub(crate) fn install(&self, member: &Member, values: &[&str]) -> anyhow::Result<()> {
        let mut helm = member.helm(&self.helm);
        helm.args(["upgrade", "--install", "--create-namespace", "--namespace", NAMESPACE]);
        // What kustomize has installed is replaced.
        helm.args(["--take-ownership", "--wait", "--timeout", "120s", NAME, CHART]);
        for file in &self.values {
            helm.arg("--values").arg(file);
        }
        for value in values {
            helm.args(["--set", value]);
        }
        // helm is content as soon as the update's strategy allows that many to be unavailable.
        let installed = process::run(&mut helm, "").and_then(|_| self.wait(member));
        installed.with_context(|| self.explain(member))
    }

    /// What pods say when they do not get ready.
    fn explain(&self, member: &Member) -> String {
        let describe = kubectl(member, &["describe", "pods", "--selector", SELECTOR]);
        let logs = kubectl(member, &["logs", "--tail=20", "--selector", SELECTOR]);
        [describe, logs].map(|text| text.unwrap_or_else(|error| format!("{error:#}"))).join("\n")
    }

    /// Installs it as the chart has it, unless it is there already. One that is not ready is an
    /// error.
    pub(crate) fn ensure(&self, member: &Member) -> anyhow::Result<()> {
        if !self.is_installed(member)? {
            return self.install(member, &[]);
        }
        let status = self.daemon_set(member)?["status"].take();
        let ready = &status["numberReady"];
        ensure!(ready == &status["desiredNumberScheduled"], "the agent is not ready: {status}");
        Ok(())
    }

    /// Whether it is there.
    pub(crate) fn is_installed(&self, member: &Member) -> anyhow::Result<bool> {
        let mut helm = member.helm(&self.helm);
        helm.args(["list", "--namespace", NAMESPACE, "--short", "--filter", NAME]);
        Ok(!process::run(&mut helm, "")?.trim().is_empty())
    }

    /// Removes it as its documentation says.
    pub(crate) fn remove(&self, member: &Member) -> anyhow::Result<()> {
        if !self.is_installed(member)? {
            return Ok(());
        }
        self.install(member, &["cleanup=true"])?;
        self.uninstall(member)
    }

    /// Removes its objects, and nothing from nodes.
    pub(crate) fn uninstall(&self, member: &Member) -> anyhow::Result<()> {
        let mut helm = member.helm(&self.helm);
        helm.args(["uninstall", "--namespace", NAMESPACE, "--wait", "--timeout", "60s", NAME]);
        process::run(&mut helm, "")?;
        wait::within(PATIENCE, "the agent's pods to be gone", || {
            let pods = self.pods(member)?;
            ensure!(pods.is_empty(), "{} are there", pods.len());
            Ok(())
        })
    }

    /// The DaemonSet.
    pub(crate) fn daemon_set(&self, member: &Member) -> anyhow::Result<Value> {
        member.kubectl.get(&["daemonset", NAME, "--namespace", NAMESPACE])
    }

    /// Its pods.
    pub(crate) fn pods(&self, member: &Member) -> anyhow::Result<Vec<Value>> {
        let mut list = self.get_pods(member)?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    fn get_pods(&self, member: &Member) -> anyhow::Result<Value> {
        member.kubectl.get(&["pods", "--namespace", NAMESPACE, "--selector", SELECTOR])
    }

    /// Deletes its pods, and returns when others are ready in their place.
    pub(crate) fn delete_pods(&self, member: &Member) -> anyhow::Result<()> {
        kubectl(member, &["delete", "pods", "--selector", SELECTOR])?;
        self.wait(member)
    }

    /// What `mcs-agent` prints in each of its pods.
    pub(crate) fn ask(&self, member: &Member, words: &[&str]) -> anyhow::Result<Vec<String>> {
        let ask = |pod: Value| {
            let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
            kubectl(member, &[&["exec", name, "--", "mcs-agent"], words].concat())
        };
        self.pods(member)?.into_iter().map(ask).collect()
    }

    /// What a pod has logged.
    pub(crate) fn log(&self, member: &Member, pod: &Value) -> anyhow::Result<String> {
        let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
        kubectl(member, &["logs", name])
    }

    /// Changes the DaemonSet by a JSON patch, without waiting for what comes of it.
    pub(crate) fn patch(&self, member: &Member, patch: &Value) -> anyhow::Result<()> {
        let patch = patch.to_string();
        kubectl(member, &["patch", "daemonset", NAME, "--type=json", "--patch", &patch]).map(drop)
    }

    /// Waits until every pod is as the DaemonSet wants it, and ready.
    pub(crate) fn wait(&self, member: &Member) -> anyhow::Result<()> {
        kubectl(member, &["rollout", "status", "daemonset", NAME, "--timeout=90s"]).map(drop)
    }
}

/// Runs kubectl in the agent's namespace.
fn kubectl(member: &Member, words: &[&str]) -> anyhow::Result<String> {
    member.kubectl.run(&[&["--namespace", NAMESPACE], words].concat())
}
