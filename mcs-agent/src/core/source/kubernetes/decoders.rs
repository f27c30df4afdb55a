//! Decodes the objects that the agent watches into domain types.

use ipnet::IpNet;
use mcs_kube::{
    Decoder,
    objects::{self, Node, ServiceImport},
};

use crate::core::{
    model::{EndpointSlice, ObjectKey},
    source::objects::{LabelledImport, endpoint_slice, service_import},
};

/// Decodes ServiceImports.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ImportDecoder;

impl Decoder for ImportDecoder {
    type Object = ServiceImport;
    type Value = LabelledImport;

    fn convert(key: &ObjectKey, import: ServiceImport) -> Result<Self::Value, String> {
        Ok(service_import::convert(import, key.clone()))
    }
}

/// Decodes EndpointSlices; `None` is a slice of no import.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SliceDecoder;

impl Decoder for SliceDecoder {
    type Object = objects::EndpointSlice;
    type Value = Option<EndpointSlice>;

    fn convert(key: &ObjectKey, slice: Self::Object) -> Result<Self::Value, String> {
        Ok(endpoint_slice::convert(slice, key.clone()))
    }
}

/// What the agent uses of its Node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeValues {
    pub(super) zone: Option<String>,
    pub(super) pod_ranges: Vec<IpNet>,
}

/// Decodes a Node.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NodeDecoder;

impl Decoder for NodeDecoder {
    type Object = Node;
    type Value = NodeValues;

    fn convert(_: &ObjectKey, node: Node) -> Result<Self::Value, String> {
        let zone = node.metadata.label("topology.kubernetes.io/zone").map(str::to_owned);
        Ok(NodeValues { zone, pod_ranges: node.spec.pod_ranges().collect() })
    }
}

#[cfg(test)]
mod tests {
    use mcs_kube::{RangeDecoder, WatchedObject};
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn an_object_that_does_not_decode_is_no_error_of_the_watch() {
        let read: WatchedObject<ImportDecoder> = from_value(json!({
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "7"},
            "spec": {"type": "ClusterSetIP", "ports": [{"port": "http"}]},
        }))
        .unwrap();
        assert_eq!(read.key(), ObjectKey::new("shop", "web"));
        assert_eq!(read.version(), Some("7"));
        let error = read.decoded.unwrap_err();
        assert!(error.starts_with("spec.ports[0].port: "), "{error}");
    }

    #[test]
    fn a_slice_without_a_service_name_is_not_imported() {
        let read: WatchedObject<SliceDecoder> = from_value(json!({
            "metadata": {"namespace": "shop", "name": "web-a", "labels": {}},
            "addressType": "IPv4", "endpoints": [],
        }))
        .unwrap();
        assert_eq!(read.decoded, Ok(None));
    }

    #[test]
    fn the_zone_may_be_absent() {
        for (labels, zone) in [
            (json!({"topology.kubernetes.io/zone": "a"}), Some("a")),
            (json!({"topology.kubernetes.io/zone": ""}), None),
            (json!({}), None),
            (json!(null), None),
        ] {
            let node = json!({"metadata": {"name": "n1", "labels": labels}});
            let read: WatchedObject<NodeDecoder> = from_value(node).unwrap();
            let expected = NodeValues { zone: zone.map(str::to_owned), pod_ranges: vec![] };
            assert_eq!(read.decoded, Ok(expected), "{labels}");
        }
    }

    #[test]
    fn ranges_of_pods_and_services_are_read() {
        let listed = || json!(["10.244.3.0/24", "fd00:244:3::/64"]);
        let expected: Vec<IpNet> =
            ["10.244.3.0/24", "fd00:244:3::/64"].map(|range| range.parse().unwrap()).into();
        let node = json!({"metadata": {"name": "n1"}, "spec": {"podCIDRs": listed()}});
        let node: WatchedObject<NodeDecoder> = from_value(node).unwrap();
        assert_eq!(node.decoded.unwrap().pod_ranges, expected);
        let service = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": listed()}});
        let service: WatchedObject<RangeDecoder> = from_value(service).unwrap();
        assert_eq!(service.decoded, Ok(expected));
    }
}
