//! The condition `PodsReachable` of a ClusterPeer.

use super::{Reach, ways::problem};
use mcs_kube::reasons::Reason;

use crate::core::{
    objects::PeerCondition,
    peers::{Peer, PeerName},
    status::{condition, former, plain},
};

impl Reach {
    /// Whether pods of this cluster reach pods of the peer, by the connections of this replica.
    pub(super) fn reachable(&self, name: &PeerName, peer: &Peer) -> PeerCondition {
        let kind = "PodsReachable";
        if self.period.is_none() {
            return plain(kind, Reason::Off);
        }
        let ways = self.ways.of(name);
        let broken = || ways.iter().filter(|(_, way)| way.is_whole() == Some(false));
        let problems: Vec<_> = broken().map(|(family, way)| problem(*family, way, peer)).collect();
        if !problems.is_empty() {
            let is_dead = broken().all(|(_, way)| way.lost().0.len() == way.lost().1);
            let reason = if is_dead { Reason::NotReached } else { Reason::PartlyReached };
            return condition(kind, reason, problems.join(". "));
        }
        let is_known = self.has_begun && ways.iter().all(|(_, way)| way.is_whole().is_some());
        if let Some(former) = former(peer, kind).filter(|_| !is_known) {
            return former;
        }
        if self.has_begun && ways.is_empty() {
            return plain(kind, Reason::NoEndpoints);
        }
        if !is_known {
            return condition(kind, Reason::Pending, "too few connections were tried yet");
        }
        let families: Vec<_> = ways.iter().map(|(family, _)| family.to_string()).collect();
        let families = families.join(" and ");
        let message = format!("the pods that the controller connects to are reached by {families}");
        let masqueraded = self.sources.masqueraded(name);
        if masqueraded.is_empty() {
            return condition(kind, Reason::Reached, message);
        }
        let message = format!(
            "{message}. Addresses are masqueraded on the way: pods there see {masqueraded}, and so do network policies and logs"
        );
        condition(kind, Reason::Masqueraded, message)
    }
}
