//! The envelopes of protobuf messages of any kind. The tags are from `generated.proto` in k8s.io/apimachinery
//! (pkg/apis/meta/v1, pkg/runtime).

use prost::{
    Message,
    bytes::{Buf as _, Bytes},
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ObjectKey;

/// A null counts as absent, as in the API.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The first bytes of an envelope.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// The content of a frame of a watch.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchEvent {
    #[prost(string, tag = "1")]
    pub(crate) type_: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) object: Option<RawExtension>,
}

/// An object in its envelope.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) raw: Bytes,
}

/// The envelope of an object or a list, behind [`MAGIC`].
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) raw: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TypeMeta {
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
}

impl Unknown {
    /// Opens an envelope. `None`: the bytes are not an envelope.
    pub(crate) fn open(mut bytes: Bytes) -> Option<Self> {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        bytes.advance(MAGIC.len());
        Self::decode(bytes).ok()
    }
}

/// An object of any kind, or of another form than its kind has.
#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
pub(crate) struct Identified {
    #[prost(message, required, tag = "1")]
    pub(crate) metadata: Identity,
}

/// The fields of `metadata` that a watch needs.
#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Identity {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[prost(string, tag = "6")]
    #[serde(deserialize_with = "nullable")]
    resource_version: String,
}

impl Identity {
    /// The key, and the version if there is one.
    pub(crate) fn split(self) -> (ObjectKey, Option<String>) {
        let version = Some(self.resource_version).filter(|version| !version.is_empty());
        (ObjectKey::new(self.namespace, self.name), version)
    }
}

/// `metadata` of a list.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(crate) resource_version: String,
}

/// The answer of an API server that refuses a request.
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub(crate) struct Status {
    #[prost(string, tag = "3")]
    pub(crate) message: String,
    #[prost(string, tag = "4")]
    pub(crate) reason: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) details: Option<StatusDetails>,
    #[prost(uint32, tag = "6")]
    pub(crate) code: u32,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusDetails {
    #[prost(message, repeated, tag = "4")]
    pub(crate) causes: Vec<StatusCause>,
    #[prost(uint32, tag = "5")]
    pub(crate) retry_after_seconds: u32,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub(crate) struct StatusCause {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
}

impl Status {
    /// Reads a status as kube's type. `None`: another message.
    pub(crate) fn read(bytes: &[u8]) -> Option<kube::core::Status> {
        let status = Self::decode(bytes).ok()?;
        serde_json::from_value(serde_json::to_value(status).ok()?).ok()
    }
}
