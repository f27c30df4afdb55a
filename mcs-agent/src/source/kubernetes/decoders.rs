//! Decodes the objects that the agent watches into domain types.

use ipnet::IpNet;
use mcs_kube::{Decoder, NotDecoded, ReadMessage, message};
use serde_json::Value;

use crate::{
    model::{Kind, ObjectKey},
    source::{adopt::ReadObject, decode},
};

/// Decodes ServiceImports.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ImportDecoder;

impl Decoder for ImportDecoder {
    type Value = Option<ReadObject>;

    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        decode::decode(Kind::ServiceImport, key, object).map_err(|error| error.to_string())
    }

    fn decode_text(key: &ObjectKey, text: &str) -> Result<Self::Value, NotDecoded> {
        decode::decode_import_text(key.clone(), text)
    }
}

/// Decodes EndpointSlices; `None` is a slice of no Service.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SliceDecoder;

impl Decoder for SliceDecoder {
    type Value = Option<ReadObject>;

    const MESSAGE: Option<ReadMessage<Self::Value>> = Some(decode::decode_slice_message);

    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        decode::decode(Kind::EndpointSlice, key, object).map_err(|error| error.to_string())
    }

    fn decode_text(key: &ObjectKey, text: &str) -> Result<Self::Value, NotDecoded> {
        decode::decode_slice_text(key, text)
    }
}

/// Decodes Services that other controllers may have written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ServiceDecoder;

impl Decoder for ServiceDecoder {
    type Value = Option<ReadObject>;

    const MESSAGE: Option<ReadMessage<Self::Value>> =
        Some(message::as_json::<message::Service, Self>);

    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        decode::decode(Kind::Service, key, object).map_err(|error| error.to_string())
    }
}

/// What the agent uses of its Node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeValues {
    pub(super) zone: Option<String>,
    pub(super) pod_ranges: Vec<IpNet>,
}

/// Decodes a Node.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NodeDecoder;

impl NodeDecoder {
    const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
}

impl Decoder for NodeDecoder {
    type Value = NodeValues;

    const MESSAGE: Option<ReadMessage<Self::Value>> = Some(message::as_json::<message::Node, Self>);

    fn decode(_: ObjectKey, node: &Value) -> Result<Self::Value, String> {
        let zone = non_empty(&node["metadata"]["labels"][Self::ZONE_LABEL]);
        Ok(NodeValues { zone, pod_ranges: ranges(&node["spec"]["podCIDRs"]) })
    }
}

/// Decodes a ServiceCIDR to its ranges.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ServiceRangeDecoder;

impl Decoder for ServiceRangeDecoder {
    type Value = Vec<IpNet>;

    const MESSAGE: Option<ReadMessage<Self::Value>> =
        Some(message::as_json::<message::ServiceCidr, Self>);

    fn decode(_: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        Ok(ranges(&object["spec"]["cidrs"]))
    }
}

/// The API server has checked them.
fn ranges(list: &Value) -> Vec<IpNet> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn non_empty(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use mcs_kube::{WatchedObject, testing::messages::captured_slice};
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

    /// Texts with escaped characters, and errors, take the tree.
    #[test]
    fn a_slice_is_decoded_from_its_text_as_from_its_tree() {
        let with = |label: &str, note: &str, address: Value| {
            let labels = json!({"multicluster.kubernetes.io/service-name": label});
            let metadata = json!({
                "namespace": "shop", "name": "web-a", "labels": labels, "annotations": {"note": note},
                "managedFields": [{"fieldsV1": {"f:a": {}}}],
            });
            let endpoints = json!([{"addresses": [address], "conditions": {"ready": true}}]);
            json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints})
        };
        let key = ObjectKey::new("shop", "web-a");
        for (object, is_direct) in [
            (with("web", "plain", json!("10.1.0.1")), true),
            (with("", "plain", json!("10.1.0.1")), true),
            (with("web", "\"quoted\"", json!("10.1.0.1")), false),
            (with("web", "plain", json!(7)), false),
        ] {
            let direct = SliceDecoder::decode_text(&key, &object.to_string());
            assert_eq!(direct.is_ok(), is_direct, "{object}");
            if let Ok(value) = direct {
                assert_eq!(Ok(value), SliceDecoder::decode(key.clone(), &object), "{object}");
            }
        }
    }

    #[test]
    fn a_slice_is_decoded_from_its_message_as_from_json() {
        let key = ObjectKey::new("shop", "web-a");
        let (message, object) = captured_slice(&[
            ("kubernetes.io/service-name", "web"),
            ("multicluster.kubernetes.io/source-cluster", "east"),
        ]);
        let read = SliceDecoder::MESSAGE.unwrap()(&key, &message);
        assert!(format!("{read:?}").contains("10.1.0.3"), "{read:?}");
        assert_eq!(read, SliceDecoder::decode(key.clone(), &object));
        let (message, object) = captured_slice(&[
            ("kubernetes.io/service-name", "web"),
            ("multicluster.kubernetes.io/service-name", ""),
        ]);
        let read = SliceDecoder::MESSAGE.unwrap()(&key, &message);
        assert!(format!("{read:?}").contains("10.1.0.3"), "{read:?}");
        assert_eq!(read, SliceDecoder::decode(key, &object));
    }

    /// A wrong import takes the tree, whose error names the field.
    #[test]
    fn an_import_is_decoded_from_its_text_as_from_its_tree() {
        let with = |note: &str, port: Value| {
            let metadata = json!({
                "namespace": "shop", "name": "web", "annotations": {"note": note},
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"},
                "managedFields": [{"fieldsV1": {"f:a": {}}}],
            });
            let spec =
                json!({"type": "ClusterSetIP", "ips": ["10.0.0.1"], "ports": [{"port": port}]});
            json!({"metadata": metadata, "spec": spec})
        };
        let key = ObjectKey::new("shop", "web");
        for (object, is_direct) in [
            (with("plain", json!(80)), true),
            (with("\"quoted\"", json!(80)), true),
            (with("plain", json!("http")), false),
        ] {
            let direct = ImportDecoder::decode_text(&key, &object.to_string());
            assert_eq!(direct.is_ok(), is_direct, "{object}");
            let decoded = ImportDecoder::decode(key.clone(), &object);
            assert_eq!(direct.ok(), decoded.ok(), "{object}");
        }
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
        let service: WatchedObject<ServiceRangeDecoder> = from_value(service).unwrap();
        assert_eq!(service.decoded, Ok(expected));
    }
}
