//! Generates thousands of ServiceImports and EndpointSlices, as the agent's sources deliver them.

use std::{net::Ipv4Addr, sync::Arc};

use mcs_agent::core::model::{
    Endpoint, EndpointAddress, EndpointSlice, ImportPort, Kind, Location, Object, ObjectEvent,
    ObjectKey, ServiceImport, SlicePort, Timestamp,
};

const PORT: &str = "http";
const PROTOCOL: &str = "TCP";
const NODES: u32 = 5000;

/// Endpoints are from here on.
pub const FIRST_ENDPOINT: u32 = u32::from_be_bytes([100, 64, 0, 0]);

/// The ClusterSetIP of a service; they are numbered from 1.
pub fn vip(service: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from_be_bytes([10, 0, 0, 0]) + service)
}

/// An import with one port.
pub fn import(key: ObjectKey, vip: Ipv4Addr) -> Object {
    Object::Import(ServiceImport {
        created: Some(Timestamp(0)),
        ips: vec![vip.to_string()],
        ports: vec![ImportPort {
            name: PORT.to_owned(),
            protocol: Some(PROTOCOL.to_owned()),
            port: 80,
        }],
        ..ServiceImport::new(Kind::ServiceImport, key)
    })
}

/// A slice of a service's ready endpoints in a source cluster.
pub fn slice(
    key: ObjectKey,
    service: &str,
    source_cluster: &str,
    addresses: impl IntoIterator<Item = u32>,
) -> Object {
    Object::Slice(EndpointSlice {
        key,
        service: service.into(),
        source_cluster: source_cluster.into(),
        address_type: "IPv4".to_owned(),
        endpoints: addresses.into_iter().map(endpoint).collect(),
        ports: vec![SlicePort {
            name: PORT.to_owned(),
            protocol: Some(PROTOCOL.to_owned()),
            port: Some(8080),
        }],
        trigger_time: None,
    })
}

fn endpoint(address: u32) -> Endpoint {
    Endpoint {
        address: EndpointAddress::Ip(Ipv4Addr::from(address).into()),
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        location: Some(Arc::new(Location {
            node_name: Some(format!("node-{}", address % NODES).into()),
            zone: None,
        })),
        hints: None,
    }
}

/// The lists of many services in ten clusters. Each service has `endpoints` endpoints, in slices of 100, as controllers write them.
pub fn many(services: u32, endpoints: u32) -> Vec<ObjectEvent> {
    const SLICE: u32 = 100;
    let mut addresses = FIRST_ENDPOINT..;
    let (mut imports, mut of_all) = (Vec::new(), Vec::new());
    for service in 1..=services {
        let namespace = format!("team-{}", service % 100);
        let name = format!("service-{service:06}");
        let cluster = format!("cluster-{}", service % 10);
        imports.push(import(ObjectKey::new(&*namespace, &*name), vip(service)));
        for (number, first) in (0..endpoints).step_by(SLICE as usize).enumerate() {
            let count = SLICE.min(endpoints - first) as usize;
            let key = ObjectKey::new(&*namespace, format!("{name}-{number}"));
            of_all.push(slice(key, &name, &cluster, addresses.by_ref().take(count)));
        }
    }
    lists(imports, of_all)
}

/// The lists of everything there is.
pub fn lists(imports: Vec<Object>, slices: Vec<Object>) -> Vec<ObjectEvent> {
    vec![
        ObjectEvent::Relist { kind: Kind::ServiceImport, objects: imports },
        ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: slices },
    ]
}
