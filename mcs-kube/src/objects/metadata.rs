//! What objects of every kind have: metadata, times and conditions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use prost::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::nullable;
use crate::ObjectKey;

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
    #[prost(int64, tag = "7")]
    pub generation: i64,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// See [`Object::identity`](super::Object::identity).
    pub(crate) fn identity(&self) -> (ObjectKey, Option<String>) {
        let key = ObjectKey::new(&*self.namespace, &*self.name);
        (key, Some(&self.resource_version).filter(|version| !version.is_empty()).cloned())
    }

    /// A label, unless it is empty.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    #[prost(string, tag = "1")]
    pub kind: String,
}

/// A time. Kubernetes' zero time is an empty message.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Time {
    /// The time, unless it is the zero time or none.
    #[must_use]
    pub fn timestamp(self) -> Option<Timestamp> {
        let is_none = self == Self::default();
        Timestamp::new(self.seconds, self.nanos).ok().filter(|_| !is_none)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.timestamp().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = Timestamp::deserialize(deserializer)?;
        Ok(Self { seconds: time.as_second(), nanos: time.subsec_nanosecond() })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
pub struct Condition {
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub condition_type: String,
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    #[schemars(length(max = 32768))]
    pub message: String,
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
