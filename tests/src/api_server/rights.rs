//! The rights of agents, as they are shipped.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Api, ApiServer, documents};

/// As it is shipped.
const RBAC: &str = include_str!("../../../deploy/kustomize/base/rbac.yaml");

/// The agent's ServiceAccount.
pub fn account() -> anyhow::Result<Value> {
    shipped("ServiceAccount")
}

/// Its role, and what binds it to that.
pub fn role_and_binding() -> anyhow::Result<[Value; 2]> {
    Ok([shipped("ClusterRole")?, shipped("ClusterRoleBinding")?])
}

fn shipped(kind: &str) -> anyhow::Result<Value> {
    let mut all = documents(RBAC)?.into_iter();
    all.find(|one| one["kind"] == kind).with_context(|| format!("no {kind} is shipped"))
}

impl ApiServer {
    /// Gives agents their rights, a token and a kubeconfig.
    pub fn grant_agents(&self) -> anyhow::Result<()> {
        self.api.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "mcs-system" },
        }))?;
        self.api.apply_yaml(RBAC)?;
        self.write_token(&account()?, &self.agents_token())?;
        self.write_kubeconfig(&self.agents_kubeconfig(), &self.agents_token())
    }

    /// The kubeconfig of agents.
    pub fn agents_kubeconfig(&self) -> PathBuf {
        self.directory().join("agents.kubeconfig")
    }

    /// The file with the token of agents.
    pub fn agents_token(&self) -> PathBuf {
        self.directory().join("agents.token")
    }

    /// Writes a new token of a ServiceAccount into a file.
    pub fn write_token(&self, account: &Value, file: &Path) -> anyhow::Result<()> {
        Ok(fs::write(file, self.api.issue_token(account)?)?)
    }
}

impl Api {
    /// A new token of a ServiceAccount.
    pub fn issue_token(&self, account: &Value) -> anyhow::Result<String> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 7200 },
        });
        let answer = self.create_below(account, "token", &request)?;
        Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
    }
}
