//! The fields of an EndpointSlice that the programs read, from JSON or a protobuf message.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use crate::message;

/// An EndpointSlice. It borrows from the JSON or the message: slices can have a thousand endpoints with many texts, and the
/// programs store few of them.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ReadSlice<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    /// `addressType`.
    #[serde(borrow)]
    pub address_type: Option<&'a str>,
    /// `endpoints`.
    #[serde(borrow)]
    pub endpoints: Option<Vec<ReadEndpoint<'a>>>,
    /// `ports`.
    #[serde(borrow)]
    pub ports: Option<Vec<ReadPort<'a>>>,
}

#[derive(Deserialize, Debug)]
struct Metadata<'a> {
    generation: Option<i64>,
    #[serde(borrow)]
    labels: Option<BTreeMap<&'a str, &'a str>>,
    #[serde(borrow)]
    annotations: Option<BTreeMap<&'a str, &'a str>>,
}

/// An endpoint.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ReadEndpoint<'a> {
    #[serde(borrow)]
    addresses: Option<First<'a>>,
    conditions: Option<message::EndpointConditions>,
    /// `hostname`.
    #[serde(borrow)]
    pub hostname: Option<&'a str>,
    /// `nodeName`.
    #[serde(borrow)]
    pub node_name: Option<&'a str>,
    /// `zone`.
    #[serde(borrow)]
    pub zone: Option<&'a str>,
    /// `hints`.
    #[serde(borrow)]
    pub hints: Option<ReadHints<'a>>,
}

impl<'a> ReadEndpoint<'a> {
    /// The first address; kube-proxy ignores the others too.
    #[must_use]
    pub fn address(&self) -> Option<&'a str> {
        self.addresses.as_ref()?.0
    }

    /// `conditions`, all absent by default.
    #[must_use]
    pub fn conditions(&self) -> message::EndpointConditions {
        self.conditions.unwrap_or_default()
    }
}

/// `hints` of an endpoint.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ReadHints<'a> {
    #[serde(borrow)]
    for_nodes: Option<Vec<Named<'a>>>,
    #[serde(borrow)]
    for_zones: Option<Vec<Named<'a>>>,
}

impl<'a> ReadHints<'a> {
    /// The names in `forNodes`.
    pub fn nodes(&self) -> impl Iterator<Item = &'a str> {
        names(self.for_nodes.as_deref())
    }

    /// The names in `forZones`.
    pub fn zones(&self) -> impl Iterator<Item = &'a str> {
        names(self.for_zones.as_deref())
    }
}

fn names<'a>(list: Option<&[Named<'a>]>) -> impl Iterator<Item = &'a str> {
    list.unwrap_or_default().iter().map(|named| named.name.unwrap_or_default())
}

#[derive(Deserialize, Debug)]
struct Named<'a> {
    #[serde(borrow)]
    name: Option<&'a str>,
}

/// A port.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ReadPort<'a> {
    /// `name`.
    #[serde(borrow)]
    pub name: Option<&'a str>,
    /// `protocol`.
    #[serde(borrow)]
    pub protocol: Option<&'a str>,
    /// `port`.
    pub port: Option<i32>,
    /// `appProtocol`.
    #[serde(borrow)]
    pub app_protocol: Option<&'a str>,
}

impl<'a> From<&'a message::EndpointSlice> for ReadSlice<'a> {
    fn from(slice: &'a message::EndpointSlice) -> Self {
        let message::EndpointSlice { metadata, endpoints, ports, address_type } = slice;
        let texts = |map: &'a BTreeMap<String, String>| {
            Some(map.iter().map(|(key, value)| (&**key, &**value)).collect())
        };
        let metadata = metadata.as_ref().map(|metadata| Metadata {
            generation: Some(metadata.generation),
            labels: texts(&metadata.labels),
            annotations: texts(&metadata.annotations),
        });
        Self {
            metadata,
            address_type: Some(address_type),
            endpoints: Some(endpoints.iter().map(ReadEndpoint::from).collect()),
            ports: Some(ports.iter().map(ReadPort::from).collect()),
        }
    }
}

impl<'a> From<&'a message::Endpoint> for ReadEndpoint<'a> {
    fn from(endpoint: &'a message::Endpoint) -> Self {
        let named = |list: &'a [message::Named]| {
            Some(list.iter().map(|named| Named { name: Some(&named.name) }).collect())
        };
        let hints = endpoint.hints.as_ref().map(|hints| ReadHints {
            for_nodes: named(&hints.for_nodes),
            for_zones: named(&hints.for_zones),
        });
        Self {
            addresses: Some(First(endpoint.addresses.first().map(String::as_str))),
            conditions: endpoint.conditions,
            hostname: endpoint.hostname.as_deref(),
            node_name: endpoint.node_name.as_deref(),
            zone: endpoint.zone.as_deref(),
            hints,
        }
    }
}

impl<'a> From<&'a message::EndpointPort> for ReadPort<'a> {
    fn from(port: &'a message::EndpointPort) -> Self {
        Self {
            name: port.name.as_deref(),
            protocol: port.protocol.as_deref(),
            port: port.port,
            app_protocol: port.app_protocol.as_deref(),
        }
    }
}

/// The first of a list of texts.
#[derive(Debug)]
struct First<'a>(Option<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = First<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<First<'de>, A::Error> {
                let first = texts.next_element()?;
                while texts.next_element::<&str>()?.is_some() {}
                Ok(First(first))
            }
        }

        deserializer.deserialize_seq(Texts)
    }
}

impl<'a> ReadSlice<'a> {
    /// A label, unless it is empty.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let labels = self.metadata.as_ref()?.labels.as_ref()?;
        labels.get(name).copied().filter(|value| !value.is_empty())
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&'a str> {
        self.metadata.as_ref()?.annotations.as_ref()?.get(name).copied()
    }

    /// Forgets an annotation.
    pub fn remove_annotation(&mut self, name: &str) {
        if let Some(annotations) = self.metadata.as_mut().and_then(|all| all.annotations.as_mut()) {
            annotations.remove(name);
        }
    }

    /// `metadata.generation`.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.metadata.as_ref().and_then(|metadata| metadata.generation).unwrap_or_default()
    }
}
