//! The addresses of this cluster, which no peer and no VIP can have.

use ipnet::IpNet;

use super::State;
use crate::core::clusterset::{Reserved, VipRanges};

impl State {
    /// Addresses that no endpoint of a peer can have.
    pub(super) fn reserved(&self) -> Reserved {
        Reserved {
            ranges: self.reserved_ranges(),
            addresses: self.own.api_servers().collect(),
            nodes: self.own.node_addresses().clone(),
        }
    }

    /// The ranges of this cluster's Services and VIPs.
    pub(crate) fn reserved_ranges(&self) -> Vec<IpNet> {
        let ranges = self.vip_ranges();
        self.own.service_ranges().chain([ranges.v4.into(), ranges.v6.into()]).collect()
    }

    /// The ranges of this cluster's pods, as far as they are known.
    pub(crate) fn pod_ranges(&self) -> &[IpNet] {
        let given = &self.settings.pod_ranges;
        if given.is_empty() { self.own.pod_ranges(&self.vip_ranges()) } else { given }
    }

    /// Passes the ranges of this cluster's pods to the peers. Returns whether that changes the rules for their endpoints.
    pub(super) fn update_own_pods(&mut self) -> bool {
        let (given, vips) = (&self.settings.pod_ranges, self.vip_ranges());
        let ranges = if given.is_empty() { self.own.assigned_pod_ranges(&vips) } else { given };
        self.peers.set_own_pods(ranges)
    }

    pub(crate) fn vip_ranges(&self) -> VipRanges {
        let default = VipRanges::for_clusterset(self.clusterset());
        let given = &self.settings.vip_ranges;
        let v4 = |range: &IpNet| if let IpNet::V4(range) = range { Some(*range) } else { None };
        let v6 = |range: &IpNet| if let IpNet::V6(range) = range { Some(*range) } else { None };
        VipRanges {
            v4: given.iter().find_map(v4).unwrap_or(default.v4),
            v6: given.iter().find_map(v6).unwrap_or(default.v6),
        }
    }
}
