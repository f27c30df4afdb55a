//! What a cluster says of itself: its nodes, whose addresses they report themselves, so they can be wrong, its namespaces
//! and its ClusterProperties (KEP-2149), and Secrets with the kubeconfigs of peers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    mem::take,
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Secret;
use mcs_kube::{
    Decoder, ObjectKey,
    objects::{Bare, ClusterProperty, Node},
};
use serde_json::{Value, json};

use crate::core::clusterset::well_known;

/// The most addresses of a node that count.
const MOST_ADDRESSES: usize = 8;
/// The shortest prefixes that count: a larger range does not belong to one node.
const WIDEST: [u8; 2] = [12, 32];

/// The addresses of a node and of its pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeObject {
    /// The first addresses of `status.addresses` with type `InternalIP` or `ExternalIP`.
    pub addresses: BTreeSet<IpAddr>,
    /// `spec.podCIDRs`, which some networks do not use.
    pub pod_ranges: Vec<IpNet>,
    /// The ranges that are too wide for one node, and do not count.
    pub too_wide: Vec<IpNet>,
}

/// Decodes Nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeDecoder;

impl Decoder for NodeDecoder {
    type Object = Node;
    type Value = NodeObject;

    fn convert(_: &ObjectKey, node: Node) -> Result<NodeObject, String> {
        let addresses = node.status.addresses.iter();
        let addresses =
            addresses.filter(|one| matches!(&*one.address_type, "InternalIP" | "ExternalIP"));
        let addresses = addresses.filter_map(|one| one.address.parse().ok());
        let (too_wide, pod_ranges) = node.spec.pod_ranges().partition(|range: &IpNet| {
            let [v4, v6] = WIDEST;
            range.prefix_len() < if range.addr().is_ipv4() { v4 } else { v6 }
        });
        let addresses = addresses.take(MOST_ADDRESSES).collect();
        Ok(NodeObject { addresses, pod_ranges, too_wide })
    }
}

/// Decodes a Namespace to whether it is not being deleted.
#[derive(Clone, PartialEq, Debug)]
pub struct NamespaceDecoder;

impl Decoder for NamespaceDecoder {
    type Object = Bare;
    type Value = bool;

    fn convert(_: &ObjectKey, namespace: Bare) -> Result<bool, String> {
        Ok(namespace.metadata.deletion_timestamp.is_none())
    }
}

/// A namespace for services of peers, as the controller creates it.
pub fn made_namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {well_known::MANAGED_BY: well_known::CONTROLLER},
        },
    })
}

/// A ClusterProperty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PropertyObject {
    /// `spec.value`.
    pub value: String,
    /// `metadata.uid`.
    pub uid: String,
}

/// Decodes a ClusterProperty. None: it has no value.
#[derive(Clone, PartialEq, Debug)]
pub struct PropertyDecoder;

impl Decoder for PropertyDecoder {
    type Object = ClusterProperty;
    type Value = Option<PropertyObject>;

    fn convert(_: &ObjectKey, mut property: ClusterProperty) -> Result<Self::Value, String> {
        let uid = take(&mut property.metadata.uid);
        Ok(property.value().map(|value| PropertyObject { value, uid }))
    }
}

/// The texts in a Secret. `Debug` hides them.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretObject {
    /// The texts by key, without values that are not UTF-8.
    pub texts: BTreeMap<String, Arc<str>>,
    /// `metadata.resourceVersion`.
    pub version: String,
}

impl fmt::Debug for SecretObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretObject")
    }
}

/// Decodes Secrets.
#[derive(Clone, PartialEq, Debug)]
pub struct SecretDecoder;

impl Decoder for SecretDecoder {
    type Object = Secret;
    type Value = SecretObject;

    fn convert(_: &ObjectKey, secret: Secret) -> Result<Self::Value, String> {
        let data = secret.data.unwrap_or_default().into_iter();
        let texts =
            data.filter_map(|(key, bytes)| Some((key, String::from_utf8(bytes.0).ok()?.into())));
        let version = secret.metadata.resource_version.unwrap_or_default();
        Ok(SecretObject { texts: texts.collect(), version })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::objects::decoded;

    #[test]
    fn a_node_has_few_addresses_and_no_wide_range() {
        let address = |kind: &str, ip: &str| json!({"type": kind, "address": ip});
        let mut addresses =
            vec![address("Hostname", "10.2.0.1"), address("InternalDNS", "10.2.0.2"), json!({})];
        addresses.extend((0..5_000).map(|pod| {
            let kind = if pod % 2 == 0 { "InternalIP" } else { "ExternalIP" };
            address(kind, &format!("10.2.{}.{}", 1 + pod / 250, pod % 250))
        }));
        let ranges = [
            "10.1.2.0/24",
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/11",
            "10.16.0.0/12",
            "fd00::/31",
            "fd00::/32",
        ];
        let node = json!({"metadata": {}, "spec": {"podCIDRs": ranges}, "status": {"addresses": addresses}});
        let node = decoded::<NodeDecoder>(&node).unwrap();
        assert_eq!(node.addresses, (0..8).map(|pod| IpAddr::from([10, 2, 1, pod])).collect());
        let texts = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&node.pod_ranges), ["10.1.2.0/24", "10.16.0.0/12", "fd00::/32"]);
        assert_eq!(texts(&node.too_wide), ["0.0.0.0/0", "::/0", "10.0.0.0/11", "fd00::/31"]);
    }
}
