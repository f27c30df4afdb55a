//! Exports and slices for tests. Each has the fields of a plain service; a test sets the fields that it is about.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{
    Audience, ClusterId, Endpoint, EndpointConditions, Export, ExportSource, ImportedSlice,
    Importer, InternalTrafficPolicy, IpFamily, Memo, Protocol, ServiceName, ServicePort,
    ServiceSpec, ServiceType, SessionAffinity, SlicePort, SourceSlice, Stamp, Timestamp, VipRanges,
};

pub(crate) fn cluster(id: &str) -> ClusterId {
    id.parse().expect("a cluster id")
}

pub(crate) fn name(text: &str) -> ServiceName {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    ServiceName::new(namespace, name).expect("a name")
}

pub(crate) fn port(name: &str, port: u16) -> ServicePort {
    ServicePort { name: name.into(), protocol: Protocol::Tcp, port, app_protocol: None }
}

/// A ClusterSetIP service of IPv4 with port http 80.
pub(crate) fn spec() -> ServiceSpec {
    ServiceSpec {
        service_type: ServiceType::ClusterSetIp,
        ports: vec![port("http", 80)],
        ip_families: vec![IpFamily::V4],
        session_affinity: SessionAffinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

/// A time, in seconds after the zero of all fixtures.
pub(crate) const fn time(seconds: i64) -> Timestamp {
    Timestamp(1_767_225_600 + seconds)
}

/// The export of `shop/web`.
pub(crate) fn export(id: &str, created: i64, spec: ServiceSpec) -> Export {
    Export {
        cluster: cluster(id),
        name: name("shop/web"),
        created: time(created),
        source: ExportSource::Service(spec),
        vips: vec![],
        audience: Audience::All,
    }
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<Arc<str>, Arc<str>> {
    pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect()
}

/// An IPv4 slice with port http 8080 and these addresses.
pub(crate) fn slice(name: &str, addresses: &[&str]) -> SourceSlice {
    let http = SlicePort {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: Some(8080),
        app_protocol: None,
    };
    SourceSlice {
        name: name.into(),
        generation: 1,
        family: IpFamily::V4,
        ports: vec![http],
        endpoints: addresses.iter().map(|address| endpoint(address)).collect(),
        trigger_time: None,
        stamp: Stamp::NONE,
        memo: Memo::default(),
    }
}

/// A copy of a slice of `shop/web`, without endpoints.
pub(crate) fn imported_slice(id: &str) -> ImportedSlice {
    ImportedSlice {
        service: name("shop/web"),
        name: "web".into(),
        cluster: cluster(id),
        source_name: "web".into(),
        source_generation: 1,
        family: IpFamily::V4,
        ports: vec![],
        endpoints: vec![],
        has_zone_hints: false,
        has_derived_service: false,
        trigger_time: None,
        stamp: Stamp::NONE,
    }
}

pub(crate) fn endpoint(address: &str) -> Endpoint {
    Endpoint {
        address: ip(address),
        conditions: EndpointConditions { ready: Some(true), ..EndpointConditions::default() },
        hostname: Some("pod-0".into()),
        zone: Some("zone-1".into()),
        node: Some("node-1".into()),
    }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A dual-stack cluster.
pub(crate) fn importer(id: &str) -> Importer {
    Importer {
        cluster: cluster(id),
        families: vec![IpFamily::V4, IpFamily::V6],
        vip_ranges: VipRanges::for_clusterset("test"),
        told_ranges: vec![],
        reserved: vec![],
        adopts: false,
        creates_namespaces: false,
        derives_services: false,
    }
}
