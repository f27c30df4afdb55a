//! Converts an EndpointSlice to the controller's types.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use mcs_kube::{
    endpoint_slice::{ReadEndpoint, ReadPort, ReadSlice},
    message,
};

use crate::{
    clusterset::{Endpoint, EndpointConditions, Memo, SlicePort, SourceSlice, Stamp, well_known},
    objects::service::{ip_family, protocol},
};

/// A time with nanoseconds and an offset has 35 characters.
const LONGEST_TIME: usize = 40;

/// Names of zones and nodes repeat within a slice, and are stored once.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, Arc<str>>);

impl<'a> Names<'a> {
    fn get(&mut self, name: &'a str) -> Arc<str> {
        Arc::clone(self.0.entry(name).or_insert_with(|| name.into()))
    }
}

/// Of a copy: the generation of the original.
pub(super) fn source_generation(slice: &ReadSlice<'_>) -> i64 {
    let text = slice.annotation(well_known::SOURCE_GENERATION);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Of a copy: when the original was written to the mailbox.
pub(super) fn stamp(slice: &ReadSlice<'_>) -> Stamp {
    let text = slice.annotation(well_known::WRITTEN);
    text.and_then(|text| text.parse().ok()).unwrap_or(Stamp::NONE)
}

/// A publisher of an older version names the nodes of endpoints.
pub(super) fn forget_nodes(slice: &mut ReadSlice<'_>) {
    for endpoint in slice.endpoints.iter_mut().flatten() {
        endpoint.node_name = None;
    }
}

/// The writer of the slice chooses its trigger time, and every importing cluster would store any text.
pub(super) fn forget_invalid_time(slice: &mut ReadSlice<'_>) {
    if slice.annotation(well_known::TRIGGER_TIME).is_some_and(|text| !is_time(text)) {
        slice.remove_annotation(well_known::TRIGGER_TIME);
    }
}

/// The slice as in its source cluster. `None`: it has names instead of addresses.
pub(super) fn into_source(
    slice: &ReadSlice<'_>,
    name: Arc<str>,
    generation: i64,
    stamp: Stamp,
) -> Option<SourceSlice> {
    let trigger_time = slice.annotation(well_known::TRIGGER_TIME).map(Into::into);
    let mut names = Names::default();
    let read = slice.endpoints.as_deref().unwrap_or_default();
    let mut endpoints = Vec::with_capacity(read.len());
    endpoints.extend(read.iter().filter_map(|one| endpoint(one, &mut names)));
    Some(SourceSlice {
        name,
        generation,
        family: ip_family(slice.address_type.unwrap_or_default())?,
        ports: slice.ports.iter().flatten().filter_map(port).collect(),
        endpoints,
        trigger_time,
        stamp,
        memo: Memo::default(),
    })
}

/// Whether it is a time of RFC 3339.
fn is_time(text: &str) -> bool {
    let is_usual = |c: u8| c.is_ascii_digit() || b"TZ:.+-".contains(&c);
    text.len() <= LONGEST_TIME && text.bytes().all(is_usual) && text.parse::<Timestamp>().is_ok()
}

fn port(port: &ReadPort<'_>) -> Option<SlicePort> {
    Some(SlicePort {
        name: port.name.unwrap_or_default().into(),
        protocol: protocol(port.protocol)?,
        port: port.port.map(u16::try_from).transpose().ok()?,
        app_protocol: port.app_protocol.map(Into::into),
    })
}

/// Drops the conditions that the API assumes of a ready endpoint: they are a tenth of the bytes that every node reads of a
/// large slice.
fn conditions(read: message::EndpointConditions) -> EndpointConditions {
    match read {
        message::EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        } => EndpointConditions { ready: Some(true), ..EndpointConditions::default() },
        message::EndpointConditions { ready, serving, terminating } => {
            EndpointConditions { ready, serving, terminating }
        }
    }
}

fn endpoint<'a>(endpoint: &ReadEndpoint<'a>, names: &mut Names<'a>) -> Option<Endpoint> {
    Some(Endpoint {
        address: endpoint.address()?.parse().ok()?,
        conditions: conditions(endpoint.conditions()),
        hostname: endpoint.hostname.map(Into::into),
        zone: endpoint.zone.map(|name| names.get(name)),
        node: endpoint.node_name.map(|name| names.get(name)),
    })
}
