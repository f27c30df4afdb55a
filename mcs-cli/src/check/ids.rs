//! Clusters of one id: their controllers take each other for themselves, and no other finding could tell them apart.

use std::collections::BTreeMap;

use anyhow::anyhow;
use mcs_kube::reasons::ClusterCheck;

use super::Finding;
use crate::{cluster::Cluster, contexts::Identity, fleet};

/// Takes out the clusters that share an id, with one finding for each id. Two kubeconfigs of one cluster count once.
pub(super) async fn sift(clusters: Vec<Cluster>) -> (Vec<Cluster>, Vec<Finding>) {
    let identities = fleet::each(&clusters, Identity::of).await;
    let (kept, findings) = sifted(&identities);
    let mut kept = kept.into_iter().peekable();
    let numbered = clusters.into_iter().enumerate();
    let left = numbered.filter(|(place, _)| kept.next_if_eq(place).is_some());
    (left.map(|(_, cluster)| cluster).collect(), findings)
}

/// The places of the clusters that have an id of their own, in order.
pub(super) fn sifted(identities: &[Identity]) -> (Vec<usize>, Vec<Finding>) {
    let mut of_id: BTreeMap<&str, Vec<(usize, &Identity)>> = BTreeMap::new();
    for (place, identity) in identities.iter().enumerate() {
        let known = of_id.entry(&identity.id).or_default();
        // Who may not read the uids cannot tell two clusters from one with two URLs.
        if !known.iter().any(|(_, other)| other.may_be_of_one(identity)) {
            known.push((place, identity));
        }
    }
    let (mut kept, mut findings) = (Vec::new(), Vec::new());
    for (id, clusters) in of_id {
        if let [(place, _)] = &*clusters {
            kept.push(*place);
            continue;
        }
        let servers: Vec<_> = clusters.iter().map(|(_, one)| &*one.server).collect();
        let error = anyhow!(
            "{} clusters have the id {id}, those at {}: each takes what the other exports for its own. Every cluster needs an id of \
             its own: change the ClusterProperty cluster.clusterset.k8s.io (spec.value) of all but one, restart their controllers, and \
             link them again. Nothing else of them was checked",
            servers.len(),
            servers.join(" and "),
        );
        findings.push(Finding::new(id, ClusterCheck::Id, Err(error)));
    }
    kept.sort_unstable();
    (kept, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_of_one_id_are_one_finding() {
        let of = |id: &str, uid: &str, server: &str| Identity {
            id: id.to_owned(),
            uid: Some(uid.to_owned()),
            server: server.to_owned(),
        };
        let all = [
            of("west", "1", "https://a"),
            of("east", "2", "https://b"),
            of("south", "3", "https://c"),
            of("east", "4", "https://d"),
            of("west", "1", "https://e"),
        ];
        let (kept, findings) = sifted(&all);
        assert_eq!(kept, [0, 2], "west was given twice");
        let [one] = &*findings else { panic!("{findings:?}") };
        assert_eq!((&*one.cluster, one.check, one.result()), ("east", ClusterCheck::Id, "FAILED"));
        assert!(
            one.message.contains("2 clusters have the id east, those at https://b and https://d")
        );
        assert!(sifted(&all[..3]).1.is_empty());
    }
}
