use std::{borrow::Cow, fmt, marker::PhantomData};

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
    model::{Kind, Object, ObjectKey},
    source::objects,
};

/// What is made of the objects of one resource.
pub(super) trait Reading: Clone + fmt::Debug + Send + 'static {
    /// What is kept of one.
    type Value: Clone + fmt::Debug + PartialEq + Send;

    /// Makes that of one, or says what is wrong with it.
    fn read(key: ObjectKey, object: &Value) -> Result<Self::Value, String>;
}

/// An object of the API server, read as it arrived. One that cannot be read as what it should be
/// has arrived all the same: the watch goes on, and memory holds what is kept of it alone.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Read<R: Reading> {
    metadata: ObjectMeta,
    pub(super) outcome: Result<R::Value, String>,
    reading: PhantomData<R>,
}

impl<R: Reading> Read<R> {
    /// Its namespace, empty if it has none, and name.
    pub(super) fn key(&self) -> ObjectKey {
        key(&self.metadata)
    }

    /// The version of the resource that it is of.
    pub(super) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

fn key(metadata: &ObjectMeta) -> ObjectKey {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    ObjectKey::new(text(&metadata.namespace), text(&metadata.name))
}

impl<'de, R: Reading> Deserialize<'de> for Read<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Without(&["metadata", "managedFields"]).deserialize(deserializer)?;
        let Identity { namespace, name, resource_version } =
            Identity::deserialize(&object["metadata"]).map_err(D::Error::custom)?;
        let metadata = ObjectMeta { namespace, name, resource_version, ..ObjectMeta::default() };
        let outcome = R::read(key(&metadata), &object);
        Ok(Self { metadata, outcome, reading: PhantomData })
    }
}

/// What is kept of `metadata`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

/// Reads a map without the field at the end of this path. The managed fields can be most of an
/// object, and nothing is made of them.
struct Without(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Without {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Without {
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
                    kept.insert(key, map.next_value_seed(Without(rest))?);
                }
                _ => {
                    kept.insert(key, map.next_value()?);
                }
            }
        }
        Ok(Value::Object(kept))
    }
}

impl<R: Reading> Resource for Read<R> {
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

/// ServiceImports.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Imports;

impl Reading for Imports {
    type Value = Option<Object>;

    fn read(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        read_object(Kind::ServiceImport, key, object)
    }
}

/// Imported EndpointSlices.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Slices;

impl Reading for Slices {
    type Value = Option<Object>;

    fn read(key: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        read_object(Kind::EndpointSlice, key, object)
    }
}

fn read_object(kind: Kind, key: ObjectKey, object: &Value) -> Result<Option<Object>, String> {
    objects::decode(kind, key, object).map_err(|error| error.to_string())
}

/// The zone that a Node's label names.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Zone;

impl Zone {
    const LABEL: &str = "topology.kubernetes.io/zone";
}

impl Reading for Zone {
    type Value = Option<String>;

    fn read(_: ObjectKey, node: &Value) -> Result<Self::Value, String> {
        Ok(non_empty(&node["metadata"]["labels"][Self::LABEL]))
    }
}

/// The value of a ClusterProperty (KEP-2149).
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Property;

impl Reading for Property {
    type Value = Option<String>;

    fn read(_: ObjectKey, property: &Value) -> Result<Self::Value, String> {
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
    fn what_cannot_be_read_has_arrived_all_the_same() {
        let read: Read<Imports> = from_value(json!({
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "7"},
            "spec": {"type": "ClusterSetIP", "ports": [{"port": "http"}]},
        }))
        .unwrap();
        assert_eq!(read.key(), ObjectKey::new("shop", "web"));
        assert_eq!(read.version(), Some("7"));
        let error = read.outcome.unwrap_err();
        assert!(error.starts_with("spec.ports[0].port: "), "{error}");
    }

    #[test]
    fn managed_fields_are_passed_over() {
        let text = r#"{
            "metadata": {"managedFields": [{"fieldsV1": {}}], "name": "web", "labels": {"a": "b"}},
            "managedFields": 1
        }"#;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = Without(&["metadata", "managedFields"]).deserialize(&mut deserializer).unwrap();
        let kept = json!({"metadata": {"name": "web", "labels": {"a": "b"}}, "managedFields": 1});
        assert_eq!(read, kept);
    }

    #[test]
    fn a_slice_may_be_none_of_ours() {
        let read: Read<Slices> = from_value(json!({
            "metadata": {"namespace": "shop", "name": "web-a", "labels": {}},
            "addressType": "IPv4", "endpoints": [],
        }))
        .unwrap();
        assert_eq!(read.outcome, Ok(None));
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
            let read: Read<Zone> = from_value(node).unwrap();
            assert_eq!(read.outcome, Ok(zone.map(str::to_owned)), "{labels}");
        }
        let property = json!({"metadata": {"name": "id"}, "spec": {"value": "east"}});
        let read: Read<Property> = from_value(property).unwrap();
        assert_eq!(read.outcome, Ok(Some("east".to_owned())));
    }
}
