//! The addresses of this cluster, which no peer and no VIP can have.

use ipnet::IpNet;

use super::State;
use crate::clusterset::{Reserved, VipRanges};

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
    pub(in crate::controller) fn reserved_ranges(&self) -> Vec<IpNet> {
        let ranges = self.vip_ranges();
        self.own.service_ranges().chain([ranges.v4.into(), ranges.v6.into()]).collect()
    }

    /// The ranges of this cluster's pods, as far as they are known.
    pub(in crate::controller) fn pod_ranges(&self) -> &[IpNet] {
        let given = &self.settings.pod_ranges;
        if given.is_empty() { self.own.pod_ranges(&self.vip_ranges()) } else { given }
    }

    /// Tells peers which ranges this cluster's pods have. Returns whether that changes which endpoints they can have.
    pub(super) fn claim(&mut self) -> bool {
        let (given, vips) = (&self.settings.pod_ranges, self.vip_ranges());
        let ranges = if given.is_empty() { self.own.assigned_pod_ranges(&vips) } else { given };
        self.peers.claim(ranges)
    }

    pub(super) fn vip_ranges(&self) -> VipRanges {
        let default = VipRanges::for_clusterset(self.clusterset());
        VipRanges {
            v4: self.settings.vips_v4.unwrap_or(default.v4),
            v6: self.settings.vips_v6.unwrap_or(default.v6),
        }
    }

    /// Says which ranges of this cluster VIP ranges overlap with, whenever that changes.
    pub(in crate::controller) fn tell_overlaps(&mut self) {
        let overlaps = self.overlaps();
        if overlaps != self.overlaps {
            for overlap in &overlaps {
                tracing::warn!("{overlap}");
            }
            self.overlaps = overlaps;
        }
    }

    pub(super) fn overlaps(&self) -> Vec<String> {
        let vips = self.vip_ranges();
        let services: Vec<_> = self.own.service_ranges().collect();
        let mut overlaps = vips.overlaps(&services, "Services");
        overlaps.extend(vips.overlaps(self.pod_ranges(), "pods"));
        if self.settings.pod_ranges.is_empty() {
            let told = self.own.nodes_over(&vips).take(1).map(|(node, range)| {
                format!(
                    "{range} of Node {node} has a whole VIP range in it, so it is ignored. If it is the range of this \
                     cluster's pods, give the controller --pod-cidr, and all clusters another --vip-cidr"
                )
            });
            overlaps.extend(told);
        }
        overlaps
    }
}
