//! The addresses of this cluster's Services, API servers, nodes and pods.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{API_SERVERS, OwnChanges, OwnCluster};
use crate::core::{
    clusterset::{ExportSource, IpFamily, Owner, ServiceName, ServiceType, VipRanges},
    objects::{ImportObject, NodeObject, ServiceObject},
};

impl OwnCluster {
    /// The ranges of the cluster's Services.
    pub fn service_ranges(&self) -> impl Iterator<Item = IpNet> {
        self.given_ranges.iter().chain(self.ranges.values().flatten()).copied()
    }

    /// The Service that has this ClusterIP.
    pub fn service_with(&self, ip: IpAddr) -> Option<(&ServiceName, &ServiceObject)> {
        self.services.get_key_value(self.cluster_ips.get(&ip)?)
    }

    /// The addresses of the cluster's API servers.
    pub fn api_servers(&self) -> impl Iterator<Item = IpAddr> {
        let (namespace, name) = API_SERVERS;
        let service = ServiceName::new(namespace, name).ok();
        let slices = service.and_then(|service| self.slices.get(&service));
        let slices = slices.into_iter().flat_map(BTreeMap::values);
        slices.flat_map(|slice| slice.endpoints.iter().map(|endpoint| endpoint.address))
    }

    /// The addresses that the cluster's nodes report, each with the name of a node.
    pub fn node_addresses(&self) -> &Arc<BTreeMap<IpAddr, Arc<str>>> {
        self.node_addresses.get_or_init(|| {
            let of_node = |(name, node): (&Arc<str>, &NodeObject)| {
                node.addresses.iter().map(|ip| (*ip, Arc::clone(name))).collect::<Vec<_>>()
            };
            Arc::new(self.nodes.iter().flat_map(of_node).collect())
        })
    }

    /// The pod ranges that nodes have. A node that reports a range around a whole VIP range does not reserve it.
    pub fn pod_ranges(&self, vips: &VipRanges) -> &[IpNet] {
        self.pod_ranges.get_or_init(|| {
            let ranges = self.nodes.values().flat_map(|node| &node.pod_ranges);
            IpNet::aggregate(&ranges.filter(|range| !vips.are_within(range)).copied().collect())
        })
    }

    /// The same if most nodes have ranges: then the cluster assigns them, and no node chooses its own.
    pub fn assigned_pod_ranges(&self, vips: &VipRanges) -> &[IpNet] {
        let assigned = self.nodes.values().filter(|node| !node.pod_ranges.is_empty()).count();
        if assigned * 2 > self.nodes.len() { self.pod_ranges(vips) } else { &[] }
    }

    /// The ranges of nodes that contain a whole VIP range.
    pub fn nodes_over(&self, vips: &VipRanges) -> impl Iterator<Item = (&Arc<str>, IpNet)> {
        self.nodes.iter().filter_map(|(name, node)| {
            Some((name, *node.pod_ranges.iter().find(|range| vips.are_within(range))?))
        })
    }

    /// The IP families of the cluster's Services. Without ServiceCIDRs, the families that Services and the controller's own
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

    /// Without known ranges, a new family of a Service gives imports more VIPs.
    fn note_families(&mut self, families: impl Iterator<Item = IpFamily>) -> OwnChanges {
        let before = self.families.len();
        self.families.extend(families);
        let all = self.families.len() > before && self.service_ranges().next().is_none();
        OwnChanges { all, ..OwnChanges::default() }
    }
}
