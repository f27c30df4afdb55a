//! The agent as its chart installs it.

use std::path::{Path, PathBuf};

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
        helm.args(["--wait", "--timeout", "120s", NAME, CHART]);
        for file in &self.values {
            helm.arg("--values").arg(file);
        }
        for value in values {
            helm.args(["--set", value]);
        }
        process::run(&mut helm, "").with_context(|| self.explain(member))?;
        let daemon_set = self.daemon_set(member)?;
        let status = &daemon_set["status"];
        let [wanted, ready, updated] =
            ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled"]
                .map(|field| status[field].as_u64().unwrap_or_default());
        ensure!(wanted > 0 && ready == wanted && updated == wanted, "{status}");
        Ok(())
    }

    /// What pods say when they do not get ready.
    fn explain(&self, member: &Member) -> String {
        let words = ["--namespace", NAMESPACE, "--selector", SELECTOR];
        let describe = member.kubectl.run(&[["describe", "pods"].as_slice(), &words].concat());
        let logs = member.kubectl.run(&[["logs", "--tail=20"].as_slice(), &words].concat());
        [describe, logs].map(|text| text.unwrap_or_else(|error| format!("{error:#}"))).join("\n")
    }

    /// Installs it as the chart has it, unless it is there already.
    pub(crate) fn ensure(&self, member: &Member) -> anyhow::Result<()> {
        if self.is_installed(member)? { Ok(()) } else { self.install(member, &[]) }
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
        let kubectl = |words: &[&str]| {
            member.kubectl.run(&[&["--namespace", NAMESPACE], words].concat()).map(drop)
        };
        kubectl(&["delete", "pods", "--selector", SELECTOR])?;
        kubectl(&["rollout", "status", "daemonset", NAME, "--timeout=90s"])
    }

    /// What `mcs-agent` prints in each of its pods.
    pub(crate) fn ask(&self, member: &Member, words: &[&str]) -> anyhow::Result<Vec<String>> {
        let ask = |pod: Value| {
            let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
            let command = ["--namespace", NAMESPACE, "exec", name, "--", "mcs-agent"];
            member.kubectl.run(&[command.as_slice(), words].concat())
        };
        self.pods(member)?.into_iter().map(ask).collect()
    }

    /// A manifest of the chart.
    pub(crate) fn namespace(&self) -> &'static str {
        NAMESPACE
    }

    /// Where the chart is.
    pub(crate) fn chart(&self) -> &'static Path {
        Path::new(CHART)
    }
}
