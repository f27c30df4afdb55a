//! The rights of agents, as they are shipped.

use super::{Api, ApiServer, documents};
use crate::prelude::*;

/// As it is shipped.
const RBAC: &str = include_str!("../../../../deploy/kustomize/base/rbac.yaml");

/// The agent's ServiceAccount.
pub fn account() -> Result<Value> {
    shipped("ServiceAccount")
}

/// Its role, and what binds it to that.
pub fn role_and_binding() -> Result<[Value; 2]> {
    Ok([shipped("ClusterRole")?, shipped("ClusterRoleBinding")?])
}

/// A Role of a namespace, or a `ClusterRole`.
pub fn role(namespace: Option<&str>, name: &str, rules: &Value) -> Value {
    let mut role = rbac("Role", namespace, name);
    role["rules"].clone_from(rules);
    role
}

/// Gives a service account a role, in a namespace or everywhere. `role`: its kind and name; `account`: its namespace and name.
pub fn binding(
    namespace: Option<&str>,
    name: &str,
    role: (&str, &str),
    account: (&str, &str),
) -> Value {
    let mut binding = rbac("RoleBinding", namespace, name);
    binding["roleRef"] =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1 });
    binding["subjects"] =
        json!([{ "kind": "ServiceAccount", "namespace": account.0, "name": account.1 }]);
    binding
}

fn rbac(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let scope = if namespace.is_some() { "" } else { "Cluster" };
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{scope}{kind}"),
        "metadata": { "name": name },
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// A `ClusterRole`, and the binding that gives it to a service account. Both have this name.
pub fn everywhere(name: &str, rules: &Value, account: (&str, &str)) -> [Value; 2] {
    [role(None, name, rules), binding(None, name, ("ClusterRole", name), account)]
}

fn shipped(kind: &str) -> Result<Value> {
    let mut all = documents(RBAC)?.into_iter();
    all.find(|one| one["kind"] == kind).with_context(|| format!("no {kind} is shipped"))
}

impl ApiServer {
    /// Gives agents their rights, a token and a kubeconfig.
    pub fn grant_agents(&self) -> Result {
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
    pub fn write_token(&self, account: &Value, file: &Path) -> Result {
        Ok(fs::write(file, self.api.issue_token(account)?)?)
    }
}

impl Api {
    /// A new token of a ServiceAccount.
    pub fn issue_token(&self, account: &Value) -> Result<String> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 7200 },
        });
        let answer = self.create_below(account, "token", &request)?;
        Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
    }
}
