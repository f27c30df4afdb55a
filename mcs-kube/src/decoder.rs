//! Decodes the API server's objects into a program's own types as they arrive.

use std::{fmt, marker::PhantomData};

use prost::{DecodeError, Message as _};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::{
    ObjectKey,
    message::envelope::{Identity, Object},
    one_line_of,
};

/// The most bytes of the error of an object that does not decode. The error can quote the object.
const LONGEST_ERROR: usize = 512;
/// The bytes that an allocation takes in addition to its text: counts of references, and what the allocator adds.
const ALLOCATION: usize = 32;

/// Decodes the protobuf message of an object into a program's own type. The error says which field is wrong.
pub type ReadMessage<V> = fn(&ObjectKey, &[u8]) -> Result<V, String>;

/// Decodes the objects of one resource.
pub trait Decoder: Clone + fmt::Debug + Send + 'static {
    /// The decoded form of an object.
    type Value: Clone + fmt::Debug + PartialEq + Send;

    /// Decodes an object. The error says which field is wrong.
    fn decode(key: ObjectKey, object: &Value) -> Result<Self::Value, String>;

    /// Decodes an object from its JSON text, without a `Value`. After a failure, [`Decoder::decode`] decides.
    fn decode_text(_key: &ObjectKey, _text: &str) -> Result<Self::Value, NotDecoded> {
        Err(NotDecoded)
    }

    /// Decodes objects from protobuf messages, which are cheaper to send and to read. `None`: a custom type, which has no
    /// messages.
    const MESSAGE: Option<ReadMessage<Self::Value>> = None;

    /// The approximate bytes of memory behind the decoded form, for lists with a limit.
    fn weight(_value: &Self::Value) -> usize {
        0
    }

    /// Who pays for the object of this name in a list with a limit: the account that has most gives way to others.
    fn account(name: &str) -> &str {
        name.get(..0).unwrap_or_default()
    }
}

/// A text that needs [`Decoder::decode`].
#[derive(Debug)]
pub struct NotDecoded;

/// An object of the API server, decoded as it arrived. An object that does not decode does not stop the watch. Memory holds
/// only the decoded form.
#[derive(Clone, PartialEq, Debug)]
pub struct WatchedObject<D: Decoder> {
    key: ObjectKey,
    version: Option<String>,
    /// The decoded form, or the error that says which field is wrong.
    pub decoded: Result<D::Value, String>,
    decoder: PhantomData<D>,
}

impl<D: Decoder> WatchedObject<D> {
    fn new(key: ObjectKey, version: Option<String>, decoded: Result<D::Value, String>) -> Self {
        let decoded = decoded.map_err(|error| one_line_of(&error, LONGEST_ERROR));
        Self { key, version, decoded, decoder: PhantomData }
    }

    /// Reads an object from its JSON text.
    pub(crate) fn read(text: &str) -> serde_json::Result<Self> {
        let Envelope { metadata } = serde_json::from_str(text)?;
        let key = metadata.key();
        match D::decode_text(&key, text) {
            Ok(value) => Ok(Self::new(key, metadata.resource_version, Ok(value))),
            Err(NotDecoded) => serde_json::from_str(text),
        }
    }

    /// Reads an object from its protobuf message. A message with readable metadata is an object, even if the content does
    /// not decode.
    pub(crate) fn read_message(
        bytes: &[u8],
        read: ReadMessage<D::Value>,
    ) -> Result<Self, DecodeError> {
        let Identity { name, namespace, resource_version } =
            Object::decode(bytes)?.metadata.unwrap_or_default();
        let key = ObjectKey::new(namespace, name);
        let version = Some(resource_version).filter(|version| !version.is_empty());
        let decoded = read(&key, bytes);
        Ok(Self::new(key, version, decoded))
    }

    /// The namespace, which is empty if there is none, and the name.
    pub fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    /// The approximate bytes of memory that it takes, with the allocations of its texts.
    pub(crate) fn weight(&self) -> usize {
        let ObjectKey { namespace, name } = &self.key;
        let texts = [namespace.len(), name.len(), self.version.as_ref().map_or(0, String::len)];
        let texts: usize = texts.into_iter().map(|length| length + ALLOCATION).sum();
        size_of::<Self>() + texts + self.decoded.as_ref().map_or(LONGEST_ERROR, D::weight)
    }

    /// `metadata.resourceVersion`.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

impl<'de, D: Decoder> Deserialize<'de> for WatchedObject<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        let object = SkipField(&["metadata", "managedFields"]).deserialize(deserializer)?;
        let metadata = Metadata::deserialize(&object["metadata"]).map_err(S::Error::custom)?;
        let key = metadata.key();
        let decoded = D::decode(key.clone(), &object);
        Ok(Self::new(key, metadata.resource_version, decoded))
    }
}

/// The fields of `metadata` that a watch needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

impl Metadata {
    fn key(&self) -> ObjectKey {
        let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
        ObjectKey { namespace: text(&self.namespace), name: text(&self.name) }
    }
}

/// The part of an object that a watch needs.
#[derive(Deserialize)]
struct Envelope {
    metadata: Metadata,
}

/// Reads a map and skips the field at the end of this path. `metadata.managedFields` can be most of an object, and no
/// program uses it.
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

/// Decodes a ClusterProperty (KEP-2149) to its value.
#[derive(Clone, PartialEq, Debug)]
pub struct PropertyDecoder;

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
    fn the_value_of_a_property_is_read() {
        let property = json!({"metadata": {"name": "id"}, "spec": {"value": "east"}});
        let read: WatchedObject<PropertyDecoder> = from_value(property).unwrap();
        assert_eq!(read.decoded, Ok(Some("east".to_owned())));
        assert_eq!(read.key(), ObjectKey::new("", "id"));
    }
}
