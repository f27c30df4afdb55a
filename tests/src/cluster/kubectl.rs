//! Asking the API server of a cluster.

use std::{path::PathBuf, process::Command};

use anyhow::Context as _;
use serde_json::Value;

use super::{layout::Cluster, programs::Programs};
use crate::process;

/// kubectl, as the administrator of one cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// That of a cluster, whose kubeconfig need not be there yet.
    pub fn new(programs: &Programs, cluster: Cluster) -> anyhow::Result<Self> {
        Ok(Self { program: programs.find("kubectl")?, kubeconfig: cluster.kubeconfig() })
    }

    /// A command that the words after `kubectl` are to be added to. No proxy is between it and the
    /// cluster.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--cache-dir").arg(self.kubeconfig.with_file_name("kubectl"));
        command
    }

    /// Runs it with these words, and returns what it prints.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        process::run(self.command().args(words), "")
    }

    /// Applies manifests, YAML or JSON.
    pub fn apply(&self, manifests: &str) -> anyhow::Result<()> {
        let words = ["apply", "--server-side", "--filename", "-"];
        process::run(self.command().args(words), manifests).map(drop)
    }

    /// What `kubectl get` says.
    pub fn get(&self, words: &[&str]) -> anyhow::Result<Value> {
        let printed = process::run(self.command().arg("get").args(words).args(["-o", "json"]), "")?;
        serde_json::from_str(&printed).context("kubectl prints no JSON")
    }
}
