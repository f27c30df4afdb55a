//! What agents are to be told of source clusters: weights, drains and preference, and the silent ones to eject.

use std::time::Instant;

use mcs_kube::{ClusterTraffic, Drain, TRAFFIC_PROPERTY, Traffic, Unreachable};

use super::setting;
use crate::core::{
    clusterset::{ClusterId, well_known},
    control::State,
    objects::WhenStale,
    peers::Peer,
};

/// The new value for agents, if it differs from the present one.
pub(super) fn traffic_property(state: &State, now: Instant) -> Option<Traffic> {
    let told = told(state);
    let wanted = traffic(state, told.as_ref().unwrap_or(&Traffic::default()), now);
    (told.as_ref() != Some(&wanted)).then_some(wanted)
}

/// What agents were told. `None`: they cannot read it.
fn told(state: &State) -> Option<Traffic> {
    let value = state.own.property(TRAFFIC_PROPERTY);
    value.map_or_else(|| Some(Traffic::default()), |value| Traffic::parse(value).ok())
}

/// Whether agents were told this of a cluster.
pub(super) fn is_told(state: &State, wanted: &Traffic, cluster: &ClusterId) -> bool {
    let of = |traffic: &Traffic| traffic.0.get(cluster.as_str()).copied().unwrap_or_default();
    told(state).is_some_and(|told| of(&told) == of(wanted))
}

/// Whether peers should prefer other clusters. While the value is unusable, the Lease keeps its former value.
pub(super) fn own_drain_said(state: &State) -> Option<Drain> {
    own_drain(state).unwrap_or_else(|_| state.own_mailbox.lease()?.drain)
}

/// The settings for each source cluster. An unknown setting keeps its former value.
fn traffic(state: &State, told: &Traffic, now: Instant) -> Traffic {
    let mut wanted = Traffic::default();
    let mut want = |cluster: &ClusterId, traffic: ClusterTraffic| {
        if traffic != ClusterTraffic::default() {
            wanted.0.insert(cluster.as_str().into(), traffic);
        }
    };
    let own = told.0.get(state.cluster().as_str()).copied().unwrap_or_default();
    let own_drain = own_drain(state).unwrap_or_else(|_| told.drain(state.cluster().as_str()));
    want(
        state.cluster(),
        ClusterTraffic {
            weight: own_weight(state).unwrap_or(own.weight),
            preferred: own_preference(state).unwrap_or(own.preferred),
            ..drained(own_drain)
        },
    );
    for peer in state.peers.by_cluster(state.cluster()) {
        let cluster = &peer.object.cluster;
        want(cluster, of_peer(peer, told, now));
    }
    let unread = state.peers.unread();
    for (cluster, traffic) in &told.0 {
        let is_unread = |cluster: &ClusterId| unread.others || unread.clusters.contains(cluster);
        if cluster.parse().is_ok_and(|cluster| is_unread(&cluster)) {
            wanted.0.entry(cluster.clone()).or_insert(*traffic);
        }
    }
    wanted
}

fn own_weight(state: &State) -> Result<Option<u32>, String> {
    state.own.property(well_known::WEIGHT_PROPERTY).map(setting::weight).transpose()
}

fn own_drain(state: &State) -> Result<Option<Drain>, String> {
    state.own.property(well_known::DRAIN_PROPERTY).map_or(Ok(None), setting::drain)
}

fn own_preference(state: &State) -> Result<bool, String> {
    state.own.property(well_known::PREFERENCE_PROPERTY).map_or(Ok(false), setting::preference)
}

/// The settings for a peer. An unknown setting keeps its former value.
fn of_peer(peer: &Peer, told: &Traffic, now: Instant) -> ClusterTraffic {
    let object = &peer.object;
    let cluster = object.cluster.as_str();
    let former = told.drain(cluster);
    let is_stale = peer.is_fresh(now).map(|is_fresh| !is_fresh);
    let was_withdrawn = told.0.get(cluster).is_some_and(|told| told.withdrawn);
    let is_withdrawn =
        object.when_stale == WhenStale::Withdraw && is_stale.unwrap_or(was_withdrawn);
    let drain = Drain::and(object.drain, peer.view.drain_or(former));
    ClusterTraffic {
        weight: object.weight,
        withdrawn: is_withdrawn && drain.is_none(),
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
