//! What the controller reads of an EndpointSlice. It borrows from the JSON or the message, because a hub can have millions of
//! endpoints, and most of their texts are not kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use mcs_kube::message;
use serde::Deserialize;

use crate::{
    clusterset::{Endpoint, EndpointConditions, Memo, SlicePort, SourceSlice, Stamp, well_known},
    objects::service::{ip_family, protocol},
};

/// With nanoseconds and an offset it has 35 characters.
const LONGEST_TIME: usize = 40;

/// An EndpointSlice.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadSlice<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    address_type: &'a str,
    #[serde(borrow)]
    ports: Option<Vec<ReadPort<'a>>>,
    #[serde(borrow)]
    endpoints: Option<Vec<ReadEndpoint<'a>>>,
}

#[derive(Deserialize, Default, Debug)]
struct Metadata<'a> {
    generation: Option<i64>,
    #[serde(borrow)]
    labels: Option<HashMap<&'a str, &'a str>>,
    #[serde(borrow)]
    annotations: Option<HashMap<&'a str, &'a str>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ReadPort<'a> {
    #[serde(borrow)]
    name: Option<&'a str>,
    #[serde(borrow)]
    protocol: Option<&'a str>,
    port: Option<i32>,
    #[serde(borrow)]
    app_protocol: Option<&'a str>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ReadEndpoint<'a> {
    #[serde(borrow)]
    addresses: Vec<&'a str>,
    conditions: Option<message::EndpointConditions>,
    #[serde(borrow)]
    hostname: Option<&'a str>,
    #[serde(borrow)]
    zone: Option<&'a str>,
    #[serde(borrow)]
    node_name: Option<&'a str>,
}

impl<'a> From<&'a message::EndpointSlice> for ReadSlice<'a> {
    fn from(slice: &'a message::EndpointSlice) -> Self {
        let message::EndpointSlice { metadata, endpoints, ports, address_type } = slice;
        let texts = |map: &'a BTreeMap<String, String>| {
            Some(map.iter().map(|(key, value)| (&**key, &**value)).collect())
        };
        let metadata = metadata.as_ref().map_or_else(Metadata::default, |metadata| Metadata {
            generation: Some(metadata.generation),
            labels: texts(&metadata.labels),
            annotations: texts(&metadata.annotations),
        });
        Self {
            metadata,
            address_type,
            ports: Some(ports.iter().map(ReadPort::from).collect()),
            endpoints: Some(endpoints.iter().map(ReadEndpoint::from).collect()),
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

impl<'a> From<&'a message::Endpoint> for ReadEndpoint<'a> {
    fn from(endpoint: &'a message::Endpoint) -> Self {
        Self {
            addresses: endpoint.addresses.iter().map(String::as_str).collect(),
            conditions: endpoint.conditions,
            hostname: endpoint.hostname.as_deref(),
            zone: endpoint.zone.as_deref(),
            node_name: endpoint.node_name.as_deref(),
        }
    }
}

/// Names of zones and nodes repeat within a slice, and are kept once.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, Arc<str>>);

impl<'a> Names<'a> {
    fn get(&mut self, name: &'a str) -> Arc<str> {
        Arc::clone(self.0.entry(name).or_insert_with(|| name.into()))
    }
}

impl<'a> ReadSlice<'a> {
    /// A label that is not empty.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        self.metadata.labels.as_ref()?.get(name).copied().filter(|value| !value.is_empty())
    }

    /// An annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.metadata.annotations.as_ref()?.get(name).copied()
    }

    /// `metadata.generation`.
    pub(super) fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// Of a copy, the generation of the slice that it is of.
    pub(super) fn source_generation(&self) -> i64 {
        let text = self.annotation(well_known::SOURCE_GENERATION);
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Of a copy, when the slice that it is of was written to the mailbox.
    pub(super) fn stamp(&self) -> Stamp {
        let text = self.annotation(well_known::WRITTEN);
        text.and_then(|text| text.parse().ok()).unwrap_or(Stamp::NONE)
    }

    /// A publisher of an older version names the nodes of endpoints.
    pub(super) fn without_nodes(mut self) -> Self {
        for endpoint in self.endpoints.iter_mut().flatten() {
            endpoint.node_name = None;
        }
        self
    }

    /// Whoever writes the slice writes its trigger time too, and every importing cluster would store any text.
    pub(super) fn with_valid_time(mut self) -> Self {
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.retain(|name, text| *name != well_known::TRIGGER_TIME || is_time(text));
        }
        self
    }

    /// The slice as it is in its source cluster. `None`: it has names instead of addresses.
    pub(super) fn into_source(
        self,
        name: Arc<str>,
        generation: i64,
        stamp: Stamp,
    ) -> Option<SourceSlice> {
        let trigger_time = self.annotation(well_known::TRIGGER_TIME).map(Into::into);
        let mut names = Names::default();
        let read = self.endpoints.unwrap_or_default();
        let mut endpoints = Vec::with_capacity(read.len());
        endpoints.extend(read.into_iter().filter_map(|one| one.into_endpoint(&mut names)));
        Some(SourceSlice {
            name,
            generation,
            family: ip_family(self.address_type)?,
            ports: self.ports.into_iter().flatten().filter_map(ReadPort::into_port).collect(),
            endpoints,
            trigger_time,
            stamp,
            memo: Memo::default(),
        })
    }
}

/// Whether it is a time of RFC 3339.
fn is_time(text: &str) -> bool {
    let is_usual = |c: u8| c.is_ascii_digit() || b"TZ:.+-".contains(&c);
    text.len() <= LONGEST_TIME && text.bytes().all(is_usual) && text.parse::<Timestamp>().is_ok()
}

impl ReadPort<'_> {
    fn into_port(self) -> Option<SlicePort> {
        Some(SlicePort {
            name: self.name.unwrap_or_default().into(),
            protocol: protocol(self.protocol)?,
            port: self.port.map(u16::try_from).transpose().ok()?,
            app_protocol: self.app_protocol.map(Into::into),
        })
    }
}

impl<'a> ReadEndpoint<'a> {
    fn into_endpoint(self, names: &mut Names<'a>) -> Option<Endpoint> {
        let message::EndpointConditions { ready, serving, terminating } =
            self.conditions.unwrap_or_default();
        Some(Endpoint {
            address: self.addresses.first()?.parse().ok()?,
            conditions: EndpointConditions { ready, serving, terminating },
            hostname: self.hostname.map(Into::into),
            zone: self.zone.map(|name| names.get(name)),
            node: self.node_name.map(|name| names.get(name)),
        })
    }
}
