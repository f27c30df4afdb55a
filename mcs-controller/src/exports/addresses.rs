//! The addresses of this cluster: those of its Services, API servers, nodes and pods.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{API_SERVERS, OwnChanges, OwnCluster};
use crate::{
    clusterset::{ExportSource, IpFamily, Owner, ServiceName, ServiceType},
    objects::{ImportObject, ServiceObject},
};

impl OwnCluster {
    /// The ranges of the cluster's Services.
    pub fn service_ranges(&self) -> impl Iterator<Item = IpNet> {
        self.given_ranges.iter().chain(self.ranges.values().flatten()).copied()
    }

    /// The addresses of the cluster's API servers.
    pub fn api_servers(&self) -> impl Iterator<Item = IpAddr> {
        let (namespace, name) = API_SERVERS;
        let service = ServiceName::new(namespace, name).ok();
        let slices = service.and_then(|service| self.slices.get(&service));
        let slices = slices.into_iter().flat_map(BTreeMap::values);
        slices.flat_map(|slice| slice.endpoints.iter().map(|endpoint| endpoint.address))
    }

    /// The addresses of the cluster's nodes.
    pub fn node_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.nodes.values().flat_map(|node| node.addresses.iter().copied())
    }

    /// The ranges of the cluster's pods, as far as nodes have them.
    pub fn pod_ranges(&self) -> &[IpNet] {
        self.pod_ranges.get_or_init(|| {
            let ranges = self.nodes.values().flat_map(|node| node.pod_ranges.iter().copied());
            IpNet::aggregate(&ranges.collect())
        })
    }

    /// The same, if most nodes have some: then the cluster gives them to its nodes, and none can choose its own.
    pub fn assigned_pod_ranges(&self) -> &[IpNet] {
        let assigned = self.nodes.values().filter(|node| !node.pod_ranges.is_empty()).count();
        if assigned * 2 > self.nodes.len() { self.pod_ranges() } else { &[] }
    }

    /// The IP families of the cluster's Services. Without ServiceCIDRs, those that Services and the controller's own
    /// imports have had: an import must not lose a family because a right is missing.
    pub fn families(&self) -> Vec<IpFamily> {
        let mut families: Vec<_> =
            self.service_ranges().map(|range| IpFamily::of(range.addr())).collect();
        families.sort_unstable();
        families.dedup();
        if families.is_empty() {
            families.extend(&self.families);
        }
        if families.is_empty() { vec![IpFamily::V4] } else { families }
    }

    /// Headless Services can have families that the cluster lacks.
    pub(super) fn note_service_families(&mut self, service: &ServiceObject) -> OwnChanges {
        match &service.source {
            ExportSource::Service(spec) if spec.service_type == ServiceType::ClusterSetIp => {
                self.note_families(spec.ip_families.iter().copied())
            }
            _ => OwnChanges::default(),
        }
    }

    pub(super) fn note_import_families(&mut self, object: &ImportObject) -> OwnChanges {
        let ips = if object.actual.owner == Owner::Us { &*object.actual.import.ips } else { &[] };
        self.note_families(ips.iter().map(|ip| IpFamily::of(*ip)))
    }

    /// A family that no Service has had gives imports more VIPs, if no ranges say what families there are.
    fn note_families(&mut self, families: impl Iterator<Item = IpFamily>) -> OwnChanges {
        let before = self.families.len();
        self.families.extend(families);
        let all = self.families.len() > before && self.service_ranges().next().is_none();
        OwnChanges { all, ..OwnChanges::default() }
    }
}
