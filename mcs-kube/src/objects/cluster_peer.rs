//! `ClusterPeer`: another cluster of the clusterset, as the operator of this one describes it.
//!
//! The comments on fields are the descriptions that `kubectl explain` prints.

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Condition,
    patterns::{CIDR, LABEL, NAMESPACES},
};

#[derive(Clone, PartialEq, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "clusterset.mcs-agent.io",
    version = "v1alpha1",
    kind = "ClusterPeer",
    category = "mcs",
    status = "ClusterPeerStatus",
    doc = "A cluster that this one imports from. An operator writes it, or `mcs link`.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterId"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(
        name = "Connected",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Connected")].status"#
    ),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Synced")].status"#
    ),
    printcolumn(
        name = "Fresh",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Fresh")].status"#
    ),
    printcolumn(
        name = "Pods",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="PodsReachable")].status"#
    ),
    printcolumn(name = "Services", type_ = "integer", json_path = ".status.services"),
    printcolumn(name = "Endpoints", type_ = "integer", json_path = ".status.endpoints"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPeerSpec {
    /// The peer's ClusterProperty cluster.clusterset.k8s.io. The controller imports nothing if the peer says another one.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "clusterId does not change: delete the ClusterPeer and create another",
    }]))]
    pub cluster_id: String,
    /// The uid of the namespace kube-system of the peer. A cluster that is made anew under its id has another one, and the
    /// controller imports nothing of it until this field says so. Absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub cluster_uid: Option<String>,
    /// The Secret with the kubeconfig of the API server that holds the peer's mailbox, in the namespace of the controller.
    pub kubeconfig_secret_ref: SecretReference,
    /// The namespace that the peer publishes in. mcs-<cluster> on a hub, and mcs-mailbox in the peer's own cluster.
    #[serde(default = "default_mailbox")]
    #[schemars(length(min = 1, max = 63))]
    pub mailbox: String,
    /// The namespaces that are imported from the peer. A * at the end stands for any rest.
    #[serde(default)]
    pub namespaces: NamespaceRules,
    /// The addresses that the peer's endpoints can have, such as 10.2.0.0/16 or fd02::/48. The controller refuses others. An
    /// address of two clusters belongs to the narrower range. No range has every address.
    #[serde(default, rename = "podCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(!default, length(min = 1, max = 256), inner(length(max = 49), regex(pattern = CIDR)))]
    pub pod_cidrs: Vec<String>,
    /// How long the peer can be silent before the condition Fresh is False. It renews its Lease every 10 seconds, so that less
    /// than 20s counts as 20s.
    #[serde(default = "default_stale_after")]
    #[schemars(regex(pattern = "^([0-9]+(s|m|h))+$"))]
    pub stale_after: String,
    /// What becomes of the peer's endpoints then. keep: clients use them as before. eject-unreachable: new clients get other
    /// clusters on each node that reaches none of the peer's pods. withdraw: new clients get other clusters. In each case they
    /// get the peer's endpoints if no other cluster has a ready one.
    #[serde(default)]
    pub when_stale: WhenStale,
    /// How much of the peer's mailbox is kept. If there is more, what was imported stays, nothing is deleted, and the condition
    /// WithinLimits is False. Absent or 0 means the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<PeerLimits>,
    /// The peer's share of new clients, in proportion to the weights of other clusters that serve the same service. A cluster
    /// without a weight counts with 100. As long as no cluster of a service has one, each endpoint gets an equal share. 0 means
    /// drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0, max = 1000))]
    pub weight: Option<u32>,
    /// New clients get other clusters, as long as another one has a ready endpoint. Connections stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<bool>,
    /// While drain is true: from then on UDP clients move too, and TCP connections of sockets if the agents run with
    /// --stale-tcp=destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub drain_deadline: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WhenStale {
    #[default]
    Keep,
    EjectUnreachable,
    Withdraw,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PeerLimits {
    /// ExportedServices. The default is 20000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub services: Option<usize>,
    /// Endpoints of all slices. The default is 1000000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub endpoints: Option<usize>,
    /// Bytes of memory that they take. The default is 134217728 (128 MiB).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub bytes: Option<usize>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceRules {
    /// Only these. Absent or empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 63), regex(pattern = NAMESPACES)))]
    pub allow: Vec<String>,
    /// None of these. Absent means default and kube-*.
    #[serde(default = "default_deny")]
    #[schemars(inner(length(max = 63), regex(pattern = NAMESPACES)))]
    pub deny: Vec<String>,
}

impl Default for NamespaceRules {
    /// All but `default` and `kube-*`: these exist in every cluster with different contents.
    fn default() -> Self {
        Self { allow: vec![], deny: default_deny() }
    }
}

impl NamespaceRules {
    /// Whether the rules allow the namespace.
    #[must_use]
    pub fn allows(&self, namespace: &str) -> bool {
        let is_one_of =
            |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, namespace));
        (self.allow.is_empty() || is_one_of(&self.allow)) && !is_one_of(&self.deny)
    }
}

fn matches(pattern: &str, namespace: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => namespace.starts_with(start),
        None => pattern == namespace,
    }
}

#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub struct SecretReference {
    #[schemars(length(min = 1))]
    pub name: String,
    #[serde(default = "default_key")]
    #[schemars(length(min = 1))]
    pub key: String,
}

impl SecretReference {
    /// The kubeconfig in the Secret of that name.
    #[must_use]
    pub fn named(name: String) -> Self {
        Self { name, key: default_key() }
    }
}

fn default_mailbox() -> String {
    "mcs-mailbox".to_owned()
}

fn default_deny() -> Vec<String> {
    vec!["default".to_owned(), "kube-*".to_owned()]
}

fn default_stale_after() -> String {
    "40s".to_owned()
}

fn default_key() -> String {
    "kubeconfig".to_owned()
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPeerStatus {
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The number of services that the peer exports to this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<u32>,
    /// The number of their endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<u32>,
    /// The number of endpoints that this cluster refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_endpoints: Option<u32>,
    /// When the token of the kubeconfig expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub token_expires: Option<String>,
    /// When the peer's API server last answered, to the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_contact: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_every_cluster_are_not_the_same() {
        let rules = NamespaceRules::default();
        for (namespace, allowed) in [
            ("shop", true),
            ("default", false),
            ("kube-system", false),
            ("default-2", true),
            ("kube", true),
        ] {
            assert_eq!(rules.allows(namespace), allowed, "{namespace}");
        }
    }

    #[test]
    fn deny_is_stronger_than_allow() {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let rules = NamespaceRules { allow: owned(&["a-*", "b"]), deny: owned(&["a-x"]) };
        for (namespace, allowed) in [("a-1", true), ("b", true), ("b-1", false), ("a-x", false)] {
            assert_eq!(rules.allows(namespace), allowed, "{namespace}");
        }
        let none = NamespaceRules { allow: vec![], deny: owned(&["*"]) };
        assert!(!none.allows("shop"));
    }
}
