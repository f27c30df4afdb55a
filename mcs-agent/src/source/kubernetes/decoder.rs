//! Decodes the API server's objects into domain types as they arrive.

use std::{borrow::Cow, fmt, marker::PhantomData};

use ipnet::IpNet;
use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
    core::DynamicResourceScope,
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::{
    model::{Kind, ObjectKey},
    source::{adopt::ReadObject, objects},
};

/// Decodes the objects of one resource.
pub(super) trait Decoder: Clone + fmt::Debug + Send + 'static {
    /// The decoded form of an object.
    type Value: Clone + fmt::Debug + PartialEq + Send;

    /// Decodes an object. The error says which field is wrong.
    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String>;
}

/// An object of the API server, decoded as it arrived. An object that does not decode is no error of
/// the watch, which goes on. Memory holds the decoded form alone.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct WatchedObject<D: Decoder> {
    metadata: ObjectMeta,
    pub(super) decoded: Result<D::Value, String>,
    decoder: PhantomData<D>,
}

impl<D: Decoder> WatchedObject<D> {
    /// The namespace, which is empty if there is none, and the name.
    pub(super) fn key(&self) -> ObjectKey {
        key(&self.metadata)
    }

    /// `metadata.resourceVersion`.
    pub(super) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

fn key(metadata: &ObjectMeta) -> ObjectKey {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    ObjectKey::new(text(&metadata.namespace), text(&metadata.name))
}

impl<'de, D: Decoder> Deserialize<'de> for WatchedObject<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        let object = SkipField(&["metadata", "managedFields"]).deserialize(deserializer)?;
        let MetadataFields { namespace, name, resource_version } =
            MetadataFields::deserialize(&object["metadata"]).map_err(S::Error::custom)?;
        let metadata = ObjectMeta { namespace, name, resource_version, ..ObjectMeta::default() };
        let decoded = D::decode(key(&metadata), &object);
        Ok(Self { metadata, decoded, decoder: PhantomData })
    }
}

/// The fields of `metadata` that a watch needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataFields {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

/// Reads a map and skips the field at the end of this path. `metadata.managedFields` can be most of an
/// object, and the agent does not use it.
struct SkipField(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for SkipField {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SkipField {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match self.0.split_first() {
                Some((first, [])) if *first == key => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some((first, rest)) if *first == key => {
                    kept.insert(key, map.next_value_seed(SkipField(rest))?);
                }
                _ => {
                    kept.insert(key, map.next_value()?);
                }
            }
        }
        Ok(Value::Object(kept))
    }
}

impl<D: Decoder> Resource for WatchedObject<D> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Decodes ServiceImports.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ImportDecoder;

impl Decoder for ImportDecoder {
    type Value = Option<ReadObject>;

    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        objects::decode(Kind::ServiceImport, key, object).map_err(|error| error.to_string())
    }
}

/// Decodes imported EndpointSlices; `None` is a slice that is not imported.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SliceDecoder;

impl Decoder for SliceDecoder {
    type Value = Option<ReadObject>;

    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        objects::decode(Kind::EndpointSlice, key, object).map_err(|error| error.to_string())
    }
}

/// Decodes EndpointSlices that other controllers may have written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct AdoptableSliceDecoder;

impl Decoder for AdoptableSliceDecoder {
    type Value = Option<ReadObject>;

    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        let decoded = objects::decode_adoptable(Kind::EndpointSlice, key, object);
        decoded.map_err(|error| error.to_string())
    }
}

/// Decodes Services that other controllers may have written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ServiceDecoder;

impl Decoder for ServiceDecoder {
    type Value = Option<ReadObject>;

    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        objects::decode_adoptable(Kind::Service, key, object).map_err(|error| error.to_string())
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

    fn decode(_: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        Ok(ranges(&object["spec"]["cidrs"]))
    }
}

/// The API server has checked them.
fn ranges(list: &Value) -> Vec<IpNet> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Decodes a ClusterProperty (KEP-2149) to its value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PropertyDecoder;

impl Decoder for PropertyDecoder {
    type Value = Option<String>;

    fn decode(_: ObjectKey, property: &Value) -> Result<Self::Value, String> {
        Ok(non_empty(&property["spec"]["value"]))
    }
}

fn non_empty(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
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
    fn managed_fields_are_skipped() {
        let text = r#"{
            "metadata": {"managedFields": [{"fieldsV1": {}}], "name": "web", "labels": {"a": "b"}},
            "managedFields": 1
        }"#;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read =
            SkipField(&["metadata", "managedFields"]).deserialize(&mut deserializer).unwrap();
        let kept = json!({"metadata": {"name": "web", "labels": {"a": "b"}}, "managedFields": 1});
        assert_eq!(read, kept);
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
    fn zone_and_cluster_id_may_be_absent() {
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
        let property = json!({"metadata": {"name": "id"}, "spec": {"value": "east"}});
        let read: WatchedObject<PropertyDecoder> = from_value(property).unwrap();
        assert_eq!(read.decoded, Ok(Some("east".to_owned())));
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
