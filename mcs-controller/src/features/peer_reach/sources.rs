//! Which source address the controllers of peers see: whether addresses are masqueraded on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use futures_util::future::join_all;
use mcs_kube::reach::{
    TIMEOUT,
    source::{self, Source},
};

use crate::core::peers::{Peer, PeerName, Peers};

/// A peer, and where its controller is asked.
pub(super) type Asked = (PeerName, SocketAddr);

/// What the controllers of peers see.
#[derive(Default, Debug)]
pub(super) struct Sources(BTreeMap<PeerName, BTreeSet<Source>>);

impl Sources {
    /// The questions of a round.
    pub(super) fn to_ask(peers: &Peers) -> Vec<Asked> {
        let all = peers.all().iter();
        all.flat_map(|(name, peer)| places(peer).map(|at| (Arc::clone(name), at))).collect()
    }

    /// Records a round. A controller that does not answer sees what it saw before.
    pub(super) fn note(&mut self, round: Vec<(Asked, Option<Source>)>) {
        let mut now: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for ((peer, _), source) in round {
            now.entry(peer).or_default().extend(source);
        }
        for (peer, sources) in now.iter_mut().filter(|(_, sources)| sources.is_empty()) {
            *sources = self.0.remove(peer).unwrap_or_default();
        }
        self.0 = now;
    }

    /// What a peer sees instead of this pod's addresses, as `10.0.0.1 instead of 10.1.0.7`; empty if nothing else.
    pub(super) fn masqueraded(&self, peer: &PeerName) -> String {
        let other = self.0.get(peer).into_iter().flatten().filter(|one| one.is_masqueraded());
        let each: Vec<_> =
            other.map(|one| format!("{} instead of {}", one.seen, one.own)).collect();
        each.join(", ")
    }
}

/// The addresses that a peer's Lease names, if endpoints of the peer may have them.
fn places(peer: &Peer) -> impl Iterator<Item = SocketAddr> {
    let membership = peer.view.lease().and_then(|lease| lease.membership.as_ref());
    let named = membership.into_iter().flat_map(|one| &one.controllers).copied();
    named.filter(|at| peer.rules.endpoints.rejection(at.ip()).is_none())
}

/// Asks all at once: there are two questions for a peer at most.
pub(super) async fn ask(questions: Vec<Asked>) -> Vec<(Asked, Option<Source>)> {
    let ask = |asked: Asked| async move {
        let source = source::ask(asked.1, TIMEOUT).await;
        (asked, source)
    };
    join_all(questions.into_iter().map(ask)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_answer_sees_what_it_saw() {
        let (west, north): (PeerName, PeerName) = ("west".into(), "north".into());
        let at = |name: &PeerName| (Arc::clone(name), "10.2.0.7:16460".parse().unwrap());
        let source = |own: &str, seen: &str| Source {
            own: own.parse().unwrap(),
            seen: seen.parse().unwrap(),
        };
        let mut sources = Sources::default();
        let other = source("10.211.1.0", "10.210.0.11");
        sources.note(vec![(at(&west), Some(other)), (at(&north), Some(source("::1", "::1")))]);
        assert_eq!(sources.masqueraded(&west), "10.210.0.11 instead of 10.211.1.0");
        assert_eq!(sources.masqueraded(&north), "");
        sources.note(vec![(at(&west), None)]);
        assert_eq!(sources.masqueraded(&west), "10.210.0.11 instead of 10.211.1.0");
        sources.note(vec![]);
        assert_eq!(sources.masqueraded(&west), "", "it is no peer any more");
    }
}
