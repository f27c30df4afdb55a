//! Runs kubectl against a cluster.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde_json::Value;

use super::{layout::Cluster, programs::Programs};
use crate::process;

/// kubectl, as somebody whom a kubeconfig names.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    /// Whether the environment is kept: a proxy's address, or what an authentication plugin needs.
    environment: bool,
}

impl Kubectl {
    /// As the administrator of a cluster, whose kubeconfig need not be there yet.
    pub fn new(programs: &Programs, cluster: Cluster) -> anyhow::Result<Self> {
        let (kubeconfig, cache) = (cluster.kubeconfig(), cluster.directory().join("kubectl"));
        Ok(Self { environment: false, ..Self::with(programs, kubeconfig, cache)? })
    }

    /// With somebody's kubeconfig, and a directory for what kubectl wants to remember.
    pub fn with(programs: &Programs, kubeconfig: PathBuf, cache: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { program: programs.find("kubectl")?, kubeconfig, cache, environment: true })
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A command that the words after `kubectl` are to be added to.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if !self.environment {
            command.env_clear();
        }
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(&self.cache);
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
