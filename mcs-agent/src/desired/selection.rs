//! Selects the backends of a frontend from the endpoints of its slices.

use super::{
    candidate::{self, Candidate},
    topology,
    traffic_policy::{LocalNode, TrafficPolicy},
};
use crate::model::{Backend, NodeContext};

/// Selects the backends of a frontend. The order of the steps is that of kube-proxy's
/// `CategorizeEndpoints`.
///
/// Under `Local`, draining endpoints of other nodes do not count, and hints do not count. If the
/// agent does not know its node and cluster, no endpoint is local, and every client is refused.
pub(super) fn backends(
    mut candidates: Vec<Candidate<'_>>,
    policy: TrafficPolicy,
    node: &NodeContext,
) -> Vec<Backend> {
    candidate::keep_one_per_address(&mut candidates);
    if policy == TrafficPolicy::Local {
        let Ok(local) = LocalNode::of(node) else { return vec![] };
        candidates.retain(|c| local.hosts(c.cluster, c.endpoint.node_name.as_deref()));
    }
    if candidates.iter().any(|candidate| candidate.conditions().ready) {
        candidates.retain(|candidate| candidate.conditions().ready);
        if policy == TrafficPolicy::Cluster {
            topology::prefer(&mut candidates, node);
        }
    } else {
        candidates.retain(|candidate| candidate.conditions().draining());
    }
    candidates.iter().map(Candidate::backend).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::candidate::{numbered, of_clusters};
    use crate::model::{
        Endpoint,
        fixture::{endpoint, node},
    };

    fn here() -> Endpoint {
        endpoint("").node("n1")
    }

    fn elsewhere() -> Endpoint {
        endpoint("").node("n2")
    }

    /// The ports of the backends: endpoints are numbered from 1.
    fn chosen(
        policy: TrafficPolicy,
        node: &NodeContext,
        endpoints: &[(&str, Endpoint)],
    ) -> Vec<u16> {
        let endpoints = of_clusters(endpoints);
        let candidates = numbered(&endpoints);
        backends(candidates, policy, node).iter().map(|b| b.address.port()).collect()
    }

    #[test]
    fn ready_ones_else_draining_ones_never_others() {
        let unready = || elsewhere().conditions(false, true, false);
        let gone = || elsewhere().conditions(false, false, true);
        for (endpoints, expected) in [
            (vec![elsewhere(), elsewhere()], vec![1, 2]),
            (vec![elsewhere().draining(), elsewhere(), unready()], vec![2]),
            (vec![elsewhere().draining(), unready(), gone()], vec![1]),
            (vec![unready(), gone()], vec![]),
            (vec![], vec![]),
        ] {
            let endpoints: Vec<_> = endpoints.into_iter().map(|e| ("east", e)).collect();
            assert_eq!(chosen(TrafficPolicy::Cluster, &node(), &endpoints), expected);
        }
    }

    #[test]
    fn local_falls_back_on_its_own() {
        for (endpoints, local, cluster) in [
            (vec![("east", here()), ("east", elsewhere())], vec![1], vec![1, 2]),
            (vec![("west", here()), ("east", elsewhere())], vec![], vec![1, 2]),
            (vec![("east", here().draining()), ("east", elsewhere())], vec![1], vec![2]),
            (vec![("east", here()), ("east", here().draining())], vec![1], vec![1]),
            (vec![("east", elsewhere().draining())], vec![], vec![1]),
        ] {
            assert_eq!(chosen(TrafficPolicy::Local, &node(), &endpoints), local);
            assert_eq!(chosen(TrafficPolicy::Cluster, &node(), &endpoints), cluster);
        }
    }

    #[test]
    fn local_is_never_widened() {
        let endpoints = [("east", here()), ("", here())];
        for node in
            [NodeContext { node_name: None, ..node() }, NodeContext { cluster_id: None, ..node() }]
        {
            assert_eq!(chosen(TrafficPolicy::Local, &node, &endpoints), [0; 0]);
        }
    }

    #[test]
    fn hints_concern_ready_endpoints_under_cluster_alone() {
        let near = || here().for_zone("z1");
        let far = || here().for_zone("z2");
        for (policy, endpoints, expected) in [
            (TrafficPolicy::Cluster, vec![near(), far()], vec![1]),
            (TrafficPolicy::Local, vec![near(), far()], vec![1, 2]),
            (TrafficPolicy::Cluster, vec![near(), far(), here().draining()], vec![1]),
            (TrafficPolicy::Cluster, vec![near().draining(), far()], vec![2]),
            (TrafficPolicy::Cluster, vec![near().draining(), far().draining()], vec![1, 2]),
        ] {
            let endpoints: Vec<_> = endpoints.into_iter().map(|e| ("east", e)).collect();
            assert_eq!(chosen(policy, &node(), &endpoints), expected, "{policy:?}");
        }
    }
}
