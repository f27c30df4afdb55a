//! The ways to the pods of the peers: the choice of endpoints, and the messages about them.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use mcs_kube::reach::{Attempt, Outcome, SILENT_ROUNDS, Way};

use crate::core::{
    clusterset::{EndpointRules, IpFamily, Protocol, ServiceName},
    mailbox::Believed,
    own_cluster::OwnCluster,
    peers::{Peer, PeerName, Peers},
};

/// The endpoints of a peer in a round, in each IP family.
const ENDPOINTS: usize = 4;

/// The results of the rounds for all peers.
#[derive(Default, Debug)]
pub(super) struct Ways {
    pub(super) by_peer: BTreeMap<(PeerName, IpFamily), Way<ServiceName>>,
}

/// An endpoint to connect to: its peer and service.
pub(super) type ProbedService = (PeerName, IpFamily, ServiceName);

impl Ways {
    /// The endpoints of the next round, of imported services and of families that this cluster has.
    pub(super) fn choose(
        &mut self,
        peers: &Peers,
        own: &OwnCluster,
    ) -> Vec<(ProbedService, SocketAddr)> {
        let families = own.families();
        let mut round = Vec::new();
        let mut ways = BTreeMap::new();
        for (name, peer) in peers.all() {
            for &family in &families {
                let key = (Arc::clone(name), family);
                let mut way = self.by_peer.remove(&key).unwrap_or_default();
                let chosen = choose(&mut way, peer, own, family);
                if chosen.is_empty() {
                    continue;
                }
                ways.insert(key, way);
                round.extend(
                    chosen
                        .into_iter()
                        .map(|(service, address)| ((Arc::clone(name), family, service), address)),
                );
            }
        }
        self.by_peer = ways;
        round
    }

    /// Records a round.
    pub(super) fn note(&mut self, round: Vec<(ProbedService, Attempt)>) {
        let mut rounds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((peer, family, service), attempt) in round {
            rounds.entry((peer, family)).or_default().push((service, attempt));
        }
        for (key, round) in rounds {
            if let Some(way) = self.by_peer.get_mut(&key) {
                way.note(round);
            }
        }
    }

    /// The ways to the pods of a peer, one for each family in which it has endpoints.
    pub(super) fn of(&self, peer: &PeerName) -> Vec<(IpFamily, &Way<ServiceName>)> {
        let families = [IpFamily::V4, IpFamily::V6].into_iter();
        families
            .filter_map(|family| Some((family, self.by_peer.get(&(Arc::clone(peer), family))?)))
            .collect()
    }
}

fn choose(
    way: &mut Way<ServiceName>,
    peer: &Peer,
    own: &OwnCluster,
    family: IpFamily,
) -> Vec<(ServiceName, SocketAddr)> {
    let believed = peer.view.believed();
    let has_some = |believed: &Believed| {
        let mut slices = believed.slices.values();
        slices.any(|slice| slice.family == family && !slice.endpoints.is_empty())
    };
    let services = believed
        .iter()
        .filter(|(name, one)| has_some(one) && own.is_imported_from(name, &peer.object.cluster))
        .map(|(name, _)| name.clone())
        .collect();
    let endpoints = |name: &ServiceName| {
        let believed = believed.get(name);
        believed.map(|one| endpoints(one, family, &peer.rules.endpoints)).unwrap_or_default()
    };
    way.choose(services, endpoints, |_| false, ENDPOINTS)
}

/// The ready endpoints of a service with a TCP port that the rules accept.
fn endpoints(believed: &Believed, family: IpFamily, rules: &EndpointRules) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for slice in believed.slices.values().filter(|slice| slice.family == family) {
        let mut tcp = slice.ports.iter().filter(|port| port.protocol == Protocol::Tcp);
        let Some(port) = tcp.find_map(|port| port.port) else { continue };
        let ready = slice.endpoints.iter().filter(|one| one.conditions.ready != Some(false));
        let accepted = ready.filter(|one| rules.rejection(one.address).is_none());
        all.extend(accepted.map(|one| SocketAddr::new(one.address, port)));
    }
    all
}

/// What is wrong with a way, and what to do.
pub(super) fn problem(family: IpFamily, way: &Way<ServiceName>, peer: &Peer) -> String {
    let (silent, probed) = way.lost();
    let each: Vec<_> =
        silent.iter().map(|(address, outcome)| format!("{address} {}", outcome.text())).collect();
    let outcomes: Vec<_> = silent.iter().map(|(_, outcome)| *outcome).collect();
    let ranges = peer.object.pod_ranges.iter().flatten();
    let ranges = ranges.filter(|range| IpFamily::of(range.addr()) == family);
    let ranges: Vec<_> = ranges.map(ToString::to_string).collect();
    format!(
        "{family}: {} of {probed} pods are not reached, {SILENT_ROUNDS} times in a row or more: {}. {}",
        silent.len(),
        each.join("; "),
        advice(&ranges.join(", "), &outcomes)
    )
}

/// What to do about pods in these ranges that are not reached.
pub fn advice(ranges: &str, outcomes: &[Outcome]) -> String {
    let ranges = if ranges.is_empty() { "the pod ranges" } else { ranges };
    if outcomes.iter().all(|outcome| *outcome == Outcome::Unreachable) {
        return format!(
            "A router or firewall says so: let the nodes of this cluster route {ranges} to the nodes of that one"
        );
    }
    format!(
        "Packets are lost: let the nodes of each cluster route the pod ranges of the other ({ranges} of the peer), \
         and let firewalls and NetworkPolicies of both pass TCP between pods, with the addresses of pods"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::{
        SourceSlice, Stamp,
        fixture::{export, slice, spec},
    };

    #[test]
    fn endpoints_are_ready_accepted_and_have_a_tcp_port() {
        let mut web = slice("web-1", &["10.2.0.1", "10.2.0.2", "10.9.0.1"]);
        web.endpoints[1].conditions.ready = Some(false);
        let mut dns = slice("dns-1", &["10.2.0.3"]);
        dns.ports[0].protocol = Protocol::Udp;
        let mut any_port = slice("any-1", &["10.2.0.4"]);
        any_port.ports[0].port = None;
        let v6 = SourceSlice { family: IpFamily::V6, ..slice("web-2", &["fd02::1"]) };
        let believed = Believed {
            export: export("west", 0, spec()),
            slices: [web, dns, any_port, v6]
                .map(|one| (Arc::clone(&one.name), Arc::new(one)))
                .into(),
            missing: 0,
            stamp: Stamp::NONE,
        };
        let ranges = ["10.2.0.0/16", "fd02::/16"].map(|range| range.parse().unwrap());
        let rules = EndpointRules { pod_ranges: Some(ranges.into()), ..EndpointRules::default() };
        let of = |family| {
            let all = endpoints(&believed, family, &rules);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(IpFamily::V4), ["10.2.0.1:8080"]);
        assert_eq!(of(IpFamily::V6), ["[fd02::1]:8080"]);
    }
}
