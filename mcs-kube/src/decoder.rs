//! Decodes the API server's objects into a program's own types as they arrive.

use std::{fmt, marker::PhantomData};

use ipnet::IpNet;
use prost::{DecodeError, Message as _};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::{
    ObjectKey,
    envelope::Identified,
    objects::{self, ClusterProperty, Object, ReadMessage, ServiceCidr},
    one_line_of,
};

/// The most bytes of the error of an object that does not decode. The error can quote the object.
const LONGEST_ERROR: usize = 512;
/// The bytes that an allocation takes in addition to its text: counts of references, and what the allocator adds.
const ALLOCATION: usize = 32;

/// Decodes the objects of one resource.
pub trait Decoder: Clone + fmt::Debug + Send + 'static {
    /// An object as the API server sends it.
    type Object: Object;
    /// What the program keeps of it.
    type Value: Clone + fmt::Debug + PartialEq + Send;

    /// Converts an object. The error says what is wrong with it.
    fn convert(key: &ObjectKey, object: Self::Object) -> Result<Self::Value, String>;

    /// The approximate bytes of memory behind what is kept, for lists with a limit.
    fn weight(_value: &Self::Value) -> usize {
        0
    }

    /// Who pays for the object of this name in a list with a limit: the account that has most gives way to others.
    fn account(name: &str) -> &str {
        name.get(..0).unwrap_or_default()
    }
}

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
    fn new((key, version): (ObjectKey, Option<String>), decoded: Result<D::Value, String>) -> Self {
        let decoded = decoded.map_err(|error| one_line_of(&error, LONGEST_ERROR));
        Self { key, version, decoded, decoder: PhantomData }
    }

    fn of(object: D::Object) -> Self {
        let (key, version) = object.identity();
        let decoded = D::convert(&key, object);
        Self::new((key, version), decoded)
    }

    /// Reads an object from its JSON text. Only an object of another form becomes a `Value`.
    pub(crate) fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text).map(Self::of).or_else(|_| serde_json::from_str(text))
    }

    /// Reads an object from its protobuf message. A message with readable metadata is an object, even if the content does
    /// not decode.
    pub(crate) fn read_message(
        bytes: &[u8],
        read: ReadMessage<D::Object>,
    ) -> Result<Self, DecodeError> {
        read(bytes).map(Self::of).or_else(|error| {
            let Identified { metadata } = Identified::decode(bytes)?;
            Ok(Self::new(metadata.split(), Err(error)))
        })
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
        let object = Value::deserialize(deserializer)?;
        objects::read(&object).map(Self::of).or_else(|error| {
            let Identified { metadata } =
                Identified::deserialize(&object).map_err(S::Error::custom)?;
            Ok(Self::new(metadata.split(), Err(error)))
        })
    }
}

/// Decodes a ClusterProperty (KEP-2149) to its value.
#[derive(Clone, PartialEq, Debug)]
pub struct PropertyDecoder;

impl Decoder for PropertyDecoder {
    type Object = ClusterProperty;
    type Value = Option<String>;

    fn convert(_: &ObjectKey, property: ClusterProperty) -> Result<Self::Value, String> {
        Ok(property.value())
    }
}

/// Decodes a ServiceCIDR to its ranges. The API server has checked them.
#[derive(Clone, PartialEq, Debug)]
pub struct RangeDecoder;

impl Decoder for RangeDecoder {
    type Object = ServiceCidr;
    type Value = Vec<IpNet>;

    fn convert(_: &ObjectKey, object: ServiceCidr) -> Result<Self::Value, String> {
        Ok(object.spec.cidrs.iter().filter_map(|range| range.parse().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_value_of_a_property_is_read() {
        let property = json!({"metadata": {"name": "id"}, "spec": {"value": "east"}});
        let read: WatchedObject<PropertyDecoder> = from_value(property).unwrap();
        assert_eq!(read.decoded, Ok(Some("east".to_owned())));
        assert_eq!(read.key(), ObjectKey::new("", "id"));
    }
    #[test]
    fn an_object_of_another_form_is_rejected_alone() {
        let read = |value: &str| {
            let text = format!(
                r#"{{"metadata": {{"managedFields": [{{"fieldsV1": {{}}}}], "name": "id", "resourceVersion": "7",
                    "annotations": {{"note": "\"quoted\""}}}}, "spec": {{"value": {value}}}}}"#
            );
            WatchedObject::<PropertyDecoder>::read(&text).unwrap()
        };
        for (value, decoded) in [
            (r#""east""#, Ok(Some("east".to_owned()))),
            ("7", Err("spec.value: invalid type: integer `7`, expected a string".to_owned())),
        ] {
            let object = read(value);
            assert_eq!((object.key(), object.version()), (ObjectKey::new("", "id"), Some("7")));
            assert_eq!(object.decoded, decoded);
        }
        assert!(WatchedObject::<PropertyDecoder>::read("{}").is_err(), "it is no object");
    }
}
