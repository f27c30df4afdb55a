//! The rights of agents, as they are shipped.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{ApiServer, documents};

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
    /// Gives agents their rights, and a kubeconfig with a token in that file.
    pub fn grant_agents(&self, kubeconfig: &Path, token_file: &Path) -> anyhow::Result<()> {
        self.api.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "mcs-system" },
        }))?;
        self.api.apply_yaml(RBAC)?;
        self.write_token(&account()?, token_file)?;
        self.write_kubeconfig(kubeconfig, token_file)
    }

    /// Asks for a token of a ServiceAccount, and writes it into a file.
    pub fn write_token(&self, account: &Value, file: &Path) -> anyhow::Result<()> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 3600 },
        });
        let answer = self.api.create_below(account, "token", &request)?;
        let token = answer["status"]["token"].as_str().context("no token")?;
        Ok(fs::write(file, token)?)
    }
}
