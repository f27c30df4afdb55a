//! The ClusterProperty for agents with weights, drains and preference of source clusters, and with the silent ones to
//! eject.

use std::time::Instant;

use mcs_kube::{ClusterTraffic, Drain, TRAFFIC_PROPERTY, Traffic, Unreachable};

use super::State;
use crate::{
    clusterset::{ClusterId, setting, setting_problem, well_known},
    objects::WhenStale,
    peers::Peer,
    status::{Notice, Regarding},
};

impl State {
    /// The new value for agents, if it differs from the present one.
    pub(in crate::controller) fn traffic_property(&self, now: Instant) -> Option<Traffic> {
        let told = self.told();
        let wanted = self.traffic(told.as_ref().unwrap_or(&Traffic::default()), now);
        (told.as_ref() != Some(&wanted)).then_some(wanted)
    }

    /// What agents were told. `None`: they cannot read it.
    fn told(&self) -> Option<Traffic> {
        let value = self.own.property(TRAFFIC_PROPERTY);
        value.map_or_else(|| Some(Traffic::default()), |value| Traffic::parse(value).ok())
    }

    /// Whether agents were told this of a cluster.
    pub(in crate::controller) fn is_told(&self, wanted: &Traffic, cluster: &ClusterId) -> bool {
        let of = |traffic: &Traffic| traffic.0.get(cluster.as_str()).copied().unwrap_or_default();
        self.told().is_some_and(|told| of(&told) == of(wanted))
    }

    /// Why a ClusterProperty of this cluster, one of [`SETTINGS`](crate::clusterset::SETTINGS), cannot be used.
    pub(in crate::controller) fn setting_problem(&self, name: &str) -> Option<String> {
        setting_problem(name, self.own.property(name)?)
    }

    /// An event about a ClusterProperty of this cluster. None if there is none.
    pub(in crate::controller) fn setting_notice(
        &self,
        name: &str,
        is_warning: bool,
        reason: &str,
        note: String,
    ) -> Option<Notice> {
        let regarding = Regarding {
            api_version: format!("about.k8s.io/{}", self.own.property_version()),
            kind: "ClusterProperty",
            namespace: None,
            name: name.to_owned(),
            uid: self.own.property_uid(name)?.to_owned(),
        };
        Some(Notice { regarding, is_warning, reason: reason.to_owned(), note })
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
        self.own.property(well_known::WEIGHT_PROPERTY).map(setting::weight).transpose()
    }

    fn own_drain(&self) -> Result<Option<Drain>, String> {
        self.own.property(well_known::DRAIN_PROPERTY).map_or(Ok(None), setting::drain)
    }

    fn own_preference(&self) -> Result<bool, String> {
        self.own.property(well_known::PREFERENCE_PROPERTY).map_or(Ok(false), setting::preference)
    }
}

/// The settings for a peer. An unknown setting keeps its former value.
fn of_peer(peer: &Peer, told: &Traffic, now: Instant) -> ClusterTraffic {
    let object = &peer.object;
    let cluster = object.cluster.as_str();
    let former = told.drain(cluster);
    let is_stale = peer.is_fresh(now).map(|is_fresh| !is_fresh);
    // A controller before `withdrawn` told of a drain alone.
    let was_drained = told.0.get(cluster).is_some_and(|told| told.drain);
    let is_withdrawn = object.when_stale == WhenStale::Withdraw && is_stale.unwrap_or(was_drained);
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
