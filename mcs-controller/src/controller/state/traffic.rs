//! The ClusterProperty for agents with weights, drains and preference of source clusters, and with the silent ones to
//! eject.

use std::time::Instant;

use mcs_kube::{ClusterTraffic, Drain, TRAFFIC_PROPERTY, Traffic, Unreachable};

use super::State;
use crate::{
    clusterset::{ClusterId, well_known},
    objects::WhenStale,
    peers::Peer,
};

impl State {
    /// The new value for agents, if it differs from the present one.
    pub(in crate::controller) fn traffic_property(&self, now: Instant) -> Option<Traffic> {
        let told = match self.own.property(TRAFFIC_PROPERTY) {
            None => Some(Traffic::default()),
            Some(value) => Traffic::parse(value).ok(),
        };
        let wanted = self.traffic(told.as_ref().unwrap_or(&Traffic::default()), now);
        (told.as_ref() != Some(&wanted)).then_some(wanted)
    }

    /// Why the weight, the drain or the preference of this cluster cannot be used.
    pub(in crate::controller) fn traffic_problem(&self) -> Option<String> {
        let problem = self.own_weight().err().or_else(|| self.own_drain().err());
        problem.or_else(|| self.own_preference().err())
    }

    /// Whether peers should prefer other clusters. While the value is unusable, the Lease keeps its former value.
    pub(super) fn own_drain_said(&self) -> Option<Drain> {
        self.own_drain().unwrap_or_else(|_| self.own_mailbox.lease()?.drain)
    }

    /// The settings for each source cluster. An unknown setting keeps its former value.
    fn traffic(&self, told: &Traffic, now: Instant) -> Traffic {
        let mut wanted = Traffic::default();
        let mut want = |cluster: &ClusterId, traffic: ClusterTraffic| {
            if traffic != ClusterTraffic::default() {
                wanted.0.insert(cluster.as_str().into(), traffic);
            }
        };
        let own = told.0.get(self.cluster.as_str()).copied().unwrap_or_default();
        let own_drain = self.own_drain().unwrap_or_else(|_| told.drain(self.cluster.as_str()));
        want(
            &self.cluster,
            ClusterTraffic {
                weight: self.own_weight().unwrap_or(own.weight),
                preferred: self.own_preference().unwrap_or(own.preferred),
                ..drained(own_drain)
            },
        );
        for peer in self.peers.by_cluster(&self.cluster) {
            let cluster = &peer.object.cluster;
            want(cluster, of_peer(peer, told, now));
        }
        let unread = self.peers.unread();
        for (cluster, traffic) in &told.0 {
            let is_unread =
                |cluster: &ClusterId| unread.others || unread.clusters.contains(cluster);
            if cluster.parse().is_ok_and(|cluster| is_unread(&cluster)) {
                wanted.0.entry(cluster.clone()).or_insert(*traffic);
            }
        }
        wanted
    }

    fn own_weight(&self) -> Result<Option<u32>, String> {
        let name = well_known::WEIGHT_PROPERTY;
        let Some(value) = self.own.property(name) else { return Ok(None) };
        let weight = value.parse().map_err(|_| format!("{value:?} is no weight"));
        let weight = weight.and_then(Traffic::check_weight);
        weight.map(Some).map_err(|error| format!("ClusterProperty {name}: {error}"))
    }

    fn own_drain(&self) -> Result<Option<Drain>, String> {
        let name = well_known::DRAIN_PROPERTY;
        let Some(value) = self.own.property(name) else { return Ok(None) };
        Drain::parse(value).ok_or_else(|| {
            format!(
                "ClusterProperty {name}: {value:?} is neither true nor false nor a deadline such as 2026-12-01T06:00:00Z"
            )
        })
    }

    /// Whether clients in this cluster prefer it, unless the owner of a service says otherwise.
    fn own_preference(&self) -> Result<bool, String> {
        let name = well_known::PREFERENCE_PROPERTY;
        match self.own.property(name) {
            None => Ok(false),
            Some("local-first") => Ok(true),
            Some(value) => Err(format!("ClusterProperty {name}: {value:?} is not local-first")),
        }
    }
}

/// The settings for a peer. An unknown setting keeps its former value.
fn of_peer(peer: &Peer, told: &Traffic, now: Instant) -> ClusterTraffic {
    let object = &peer.object;
    let cluster = object.cluster.as_str();
    let former = told.drain(cluster);
    let is_stale = peer.is_fresh(now).map(|is_fresh| !is_fresh);
    let is_withdrawn = object.when_stale == WhenStale::Withdraw
        && is_stale.unwrap_or_else(|| told.is_withdrawn(cluster));
    let drain = Drain::and(object.drain, peer.view.drain_or(former));
    ClusterTraffic {
        weight: object.weight,
        unreachable: (object.when_stale == WhenStale::EjectUnreachable
            && is_stale.unwrap_or_else(|| told.may_eject(cluster)))
        .then_some(Unreachable::Eject),
        ..drained(Drain::and(drain, is_withdrawn.then(Drain::default)))
    }
}

fn drained(drain: Option<Drain>) -> ClusterTraffic {
    ClusterTraffic {
        drain: drain.is_some(),
        deadline: drain.and_then(|drain| drain.deadline),
        ..ClusterTraffic::default()
    }
}
