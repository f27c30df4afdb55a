//! The addresses of this cluster, which no peer and no VIP can have.

use std::{net::IpAddr, time::Instant};

use ipnet::IpNet;

use super::State;
use crate::clusterset::{
    Actual, ActualImport, LostVip, Owner, Reserved, ServiceName, VipRanges, Wanted, WantedImport,
};

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

    /// Passes the ranges of this cluster's pods to the peers. Returns whether that changes the rules for their endpoints.
    pub(super) fn update_own_pods(&mut self) -> bool {
        let (given, vips) = (&self.settings.pod_ranges, self.vip_ranges());
        let ranges = if given.is_empty() { self.own.assigned_pod_ranges(&vips) } else { given };
        self.peers.set_own_pods(ranges)
    }

    pub(super) fn vip_ranges(&self) -> VipRanges {
        let default = VipRanges::for_clusterset(self.clusterset());
        let given = &self.settings.vip_ranges;
        let v4 = |range: &IpNet| if let IpNet::V4(range) = range { Some(*range) } else { None };
        let v6 = |range: &IpNet| if let IpNet::V6(range) = range { Some(*range) } else { None };
        VipRanges {
            v4: given.iter().find_map(v4).unwrap_or(default.v4),
            v6: given.iter().find_map(v6).unwrap_or(default.v6),
        }
    }

    /// The VIPs of an import within a range of Services that no Service of its namespace has. A later Service that is not
    /// derived from the import got the address from the API server by chance.
    pub(super) fn lost_vips(&self, name: &ServiceName, actual: &Actual) -> Vec<LostVip> {
        let may_write = |import: &&ActualImport| self.settings.adopt || import.owner == Owner::Us;
        let Some(import) = actual.import.as_ref().filter(may_write) else { return vec![] };
        let is_said = import.status.conditions.iter().any(|one| one.reason == LostVip::REASON);
        let until = self.lost.get(name);
        let lost = |vip: &IpAddr| {
            if !self.own.service_ranges().any(|range| range.contains(vip)) {
                return None;
            }
            let is_given_up = match self.own.service_with(*vip) {
                None => until == Some(&None),
                Some((service, object)) => {
                    let is_near = service.namespace() == name.namespace();
                    let is_derived = object.is_derived
                        && object.import().is_none_or(|import| import == name.name());
                    if is_near && (is_derived || !is_said && until.is_none()) {
                        return None;
                    }
                    true
                }
            };
            Some(LostVip { vip: *vip, is_given_up })
        };
        import.import.ips.iter().filter_map(lost).collect()
    }

    /// Reports each lost VIP, and each VIP that is given up, once.
    pub(super) fn note_lost(&mut self, name: &ServiceName, lost: &[LostVip], wanted: &Wanted) {
        let is_written = matches!(wanted.import, WantedImport::Present(..));
        let Some(first) = lost.first().filter(|_| is_written) else {
            self.lost.remove(name);
            return;
        };
        if !self.lost.contains_key(name) {
            self.lost.insert(name.clone(), Some(Instant::now() + LostVip::GRACE));
            tracing::warn!("ServiceImport {name}: {first}");
            self.tell_of_import(name, LostVip::REASON, first.to_string());
        }
        let planned = self.planned_vips.get(name).cloned();
        for LostVip { vip, .. } in lost {
            let was_planned = planned.as_ref().is_none_or(|planned| planned.contains(vip));
            if was_planned && !wanted.vips().is_empty() && !wanted.vips().contains(vip) {
                let vips: Vec<_> = wanted.vips().iter().map(ToString::to_string).collect();
                let vips = vips.join(", ");
                let note = format!(
                    "{vip} was the address of a Service that is gone: the import has {vips} now"
                );
                tracing::warn!("ServiceImport {name}: {note}");
                self.tell_of_import(name, "AddressChanged", note);
            }
        }
    }

    /// Reports which ranges of this cluster overlap with VIP ranges, whenever that changes.
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
