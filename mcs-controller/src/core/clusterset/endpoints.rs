//! How many endpoints of an import are ready, by the clusters that export it and by port: the condition `EndpointsReady`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    ops::AddAssign,
    sync::Arc,
};

use mcs_kube::reasons::Reason;

use super::{
    ClusterId, Condition, ConditionStatus, ConditionType, Conflict, IpFamily, Merged, Protocol,
    ServicePort, SourceSlice,
};

/// How many ports a message names.
const NAMED: usize = 5;

/// Endpoints, and how many of them are ready.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct EndpointCount {
    /// All.
    pub all: usize,
    /// Those that are ready for clients of the import.
    pub ready: usize,
}

impl AddAssign for EndpointCount {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.ready += other.ready;
    }
}

/// The endpoints of one family of a cluster.
#[derive(Default, Debug)]
struct OfFamily {
    /// An endpoint that has no port of the import is not ready for it.
    count: EndpointCount,
    /// The endpoints that are ready, whatever ports they have.
    ready: usize,
    /// How many of these lack a port.
    lacking: BTreeMap<Arc<str>, usize>,
}

/// The endpoints of each cluster, by their family.
#[derive(Default, Debug)]
pub(super) struct Endpoints(BTreeMap<ClusterId, BTreeMap<IpFamily, OfFamily>>);

/// The ports that a slice lacks. Slices refer to ports by name and protocol.
fn lacking<'a>(ports: &[&'a ServicePort], slice: &SourceSlice) -> Vec<&'a ServicePort> {
    fn key(port: &ServicePort) -> (&str, Protocol) {
        (&port.name, port.protocol)
    }
    let own: Vec<_> = slice.ports.iter().map(|port| (&*port.name, port.protocol)).collect();
    // A control plane writes them in this order.
    if own.len() == ports.len() && own.iter().zip(ports).all(|(own, port)| *own == key(port)) {
        return vec![];
    }
    let own: BTreeSet<_> = own.into_iter().collect();
    ports.iter().copied().filter(|port| !own.contains(&key(port))).collect()
}

impl Endpoints {
    /// A cluster exports the service.
    pub(super) fn note_cluster(&mut self, cluster: &ClusterId) {
        self.0.entry(cluster.clone()).or_default();
    }

    /// Counts those of a slice, which clients reach by these ports.
    pub(super) fn add(
        &mut self,
        cluster: &ClusterId,
        slice: &SourceSlice,
        count: EndpointCount,
        ports: &[&ServicePort],
    ) {
        let of = self.0.entry(cluster.clone()).or_default().entry(slice.family).or_default();
        let lack = if count.ready == 0 { vec![] } else { lacking(ports, slice) };
        let has_a_port = ports.is_empty() || lack.len() < ports.len();
        of.count += EndpointCount { ready: if has_a_port { count.ready } else { 0 }, ..count };
        of.ready += count.ready;
        for port in lack {
            *of.lacking.entry(Arc::clone(&port.name)).or_default() += count.ready;
        }
    }

    /// Sets the number of endpoints that each conflict costs.
    pub(super) fn weigh(&self, conflicts: &mut [Conflict]) {
        for loss in conflicts.iter_mut().flat_map(|conflict| &mut conflict.losses) {
            loss.endpoints = self.0.get(&loss.cluster).map_or(0, |families| most(families).all);
        }
    }

    /// Of each cluster.
    pub(super) fn counts(&self) -> BTreeMap<ClusterId, EndpointCount> {
        self.0.iter().map(|(cluster, families)| (cluster.clone(), most(families))).collect()
    }

    /// The condition of the import.
    pub(super) fn condition(&self, merged: &Merged, cut: impl Fn(String) -> String) -> Condition {
        let mut total = EndpointCount::default();
        let mut told = Vec::new();
        for (cluster, families) in &self.0 {
            let count = most(families);
            total += count;
            told.push(format!("{cluster} {} of {}", count.ready, count.all));
        }
        let ports = self.ports(merged);
        let (status, reason) = if ports.iter().any(|port| port.ready == 0) {
            (ConditionStatus::False, Reason::PortNotReady)
        } else if total.ready == 0 {
            (ConditionStatus::False, Reason::NoneReady)
        } else if ports.iter().any(|port| port.is_lost) {
            (ConditionStatus::True, Reason::PortPartlyReady)
        } else {
            (ConditionStatus::True, Reason::Ready)
        };
        let counts = format!("{} of {} ready: {}", total.ready, total.all, told.join(", "));
        let message = cut(counts + &shown(&ports));
        Condition::new(ConditionType::EndpointsReady, status, reason, message)
    }

    /// The ports that ready endpoints lack, and those without ready endpoint, which come first. None if nothing is ready: the
    /// counts say so.
    fn ports<'a>(&'a self, merged: &'a Merged) -> Vec<OfPort<'a>> {
        let mut families = self.0.values().flat_map(BTreeMap::values);
        if !families.any(|of| of.ready > 0) {
            return vec![];
        }
        let mut ports = BTreeMap::new();
        for (cluster, families) in &self.0 {
            for port in merged.ports_of(cluster) {
                let lack = |of: &OfFamily| of.lacking.get(&port.name).copied().unwrap_or_default();
                let ready =
                    families.values().map(|of| of.ready - lack(of)).max().unwrap_or_default();
                let lack = families.values().map(lack).max().unwrap_or_default();
                let new = OfPort { port, ready: 0, lack: vec![], is_lost: false };
                let all = ports.entry(&port.name).or_insert(new);
                all.ready += ready;
                all.lack.extend((lack > 0).then_some((cluster, lack)));
                all.is_lost |= ready == 0 && lack > 0;
            }
        }
        let mut ports: Vec<_> = ports.into_values().collect();
        ports.retain(|port| port.ready == 0 || !port.lack.is_empty());
        ports.sort_by_key(|port| port.ready > 0);
        ports
    }
}

/// A port of the import.
struct OfPort<'a> {
    port: &'a ServicePort,
    ready: usize,
    /// How many ready endpoints of each cluster lack it.
    lack: Vec<(&'a ClusterId, usize)>,
    /// Whether a cluster has ready endpoints, and all of them lack it.
    is_lost: bool,
}

/// `; port http: 2 ready, 3 endpoints of east lack it`.
fn shown(ports: &[OfPort<'_>]) -> String {
    let mut text = String::new();
    for OfPort { port, ready, lack, .. } in ports.iter().take(NAMED) {
        // Writing to a String cannot fail.
        let _ = match ready {
            0 => write!(text, "; port {}: none ready", port.label()),
            _ => write!(text, "; port {}: {ready} ready", port.label()),
        };
        for (cluster, count) in lack {
            let _ = write!(text, ", {count} of {cluster} lack it");
        }
    }
    if let Some(more @ 1..) = ports.len().checked_sub(NAMED) {
        let _ = write!(text, "; and {more} more ports");
    }
    text
}

/// A pod with addresses of two families counts once.
fn most(families: &BTreeMap<IpFamily, OfFamily>) -> EndpointCount {
    families.values().map(|of| of.count).max().unwrap_or_default()
}
