//! Converts an EndpointSlice to the controller's types.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use mcs_kube::objects::{self, EndpointPort, EndpointSlice};

use crate::core::{
    clusterset::{Endpoint, EndpointConditions, Memo, SlicePort, SourceSlice, Stamp, well_known},
    objects::service::{ip_family, protocol},
};

/// A time with nanoseconds and an offset has 35 characters.
const LONGEST_TIME: usize = 40;

/// Of a copy: the generation of the original.
pub(super) fn source_generation(slice: &EndpointSlice) -> i64 {
    let text = slice.metadata.annotation(well_known::SOURCE_GENERATION);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Of a copy: when the original was written to the mailbox.
pub(super) fn stamp(slice: &EndpointSlice) -> Stamp {
    let text = slice.metadata.annotation(well_known::WRITTEN);
    text.and_then(|text| text.parse().ok()).unwrap_or(Stamp::NONE)
}

/// The nodes of a peer mean nothing here, and a name can be that of a node of this cluster.
pub(super) fn forget_nodes(slice: &mut EndpointSlice) {
    for endpoint in &mut slice.endpoints {
        endpoint.node_name = None;
    }
}

/// The writer of the slice chooses its trigger time, and every importing cluster would store any text.
pub(super) fn forget_invalid_time(slice: &mut EndpointSlice) {
    if slice.metadata.annotation(well_known::TRIGGER_TIME).is_some_and(|text| !is_time(text)) {
        slice.metadata.annotations.remove(well_known::TRIGGER_TIME);
    }
}

/// The slice as in its source cluster. `None`: it has names instead of addresses.
pub(super) fn into_source(
    slice: &EndpointSlice,
    name: Arc<str>,
    generation: i64,
    stamp: Stamp,
) -> Option<SourceSlice> {
    let mut names = Names::default();
    let mut endpoints = Vec::with_capacity(slice.endpoints.len());
    endpoints.extend(slice.endpoints.iter().filter_map(|one| endpoint(one, &mut names)));
    Some(SourceSlice {
        name,
        generation,
        family: ip_family(&slice.address_type)?,
        ports: slice.ports.iter().filter_map(port).collect(),
        endpoints,
        trigger_time: slice.metadata.annotation(well_known::TRIGGER_TIME).map(Into::into),
        stamp,
        memo: Memo::default(),
    })
}

/// Whether it is a time of RFC 3339.
fn is_time(text: &str) -> bool {
    let is_usual = |c: u8| c.is_ascii_digit() || b"TZ:.+-".contains(&c);
    text.len() <= LONGEST_TIME && text.bytes().all(is_usual) && text.parse::<Timestamp>().is_ok()
}

fn port(port: &EndpointPort) -> Option<SlicePort> {
    Some(SlicePort {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol: protocol(port.protocol.as_deref())?,
        port: port.port.map(u16::try_from).transpose().ok()?,
        app_protocol: port.app_protocol.as_deref().map(Into::into),
    })
}

/// Drops the conditions that the API assumes of a ready endpoint: they are a tenth of the bytes that every node reads of a
/// large slice.
fn conditions(read: EndpointConditions) -> EndpointConditions {
    let EndpointConditions { ready, serving, terminating } = read;
    match (ready, serving, terminating) {
        (Some(true), Some(true), Some(false)) => {
            EndpointConditions { ready, ..EndpointConditions::default() }
        }
        _ => read,
    }
}

/// Names of zones and nodes repeat within a slice, and are stored once.
type Names<'a> = HashMap<&'a str, Arc<str>>;

fn endpoint<'a>(endpoint: &'a objects::Endpoint, names: &mut Names<'a>) -> Option<Endpoint> {
    let mut shared =
        |name: &'a String| Arc::clone(names.entry(name).or_insert_with(|| (&**name).into()));
    Some(Endpoint {
        address: endpoint.address()?.parse().ok()?,
        conditions: conditions(endpoint.conditions.unwrap_or_default()),
        hostname: endpoint.hostname.as_deref().map(Into::into),
        zone: endpoint.zone.as_ref().map(&mut shared),
        node: endpoint.node_name.as_ref().map(shared),
    })
}
