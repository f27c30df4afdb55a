//! Selects the backends of a frontend from the endpoints of its slices, and lists the others that serve.

use super::{
    candidate::{self, Candidate},
    fate::{Fallback, Fate, Recorder},
    preference::Preferences,
    slots,
    spill::SpillContext,
};
use crate::model::{Backend, EjectionState, NodeContext, Protocol, Slots, TierShare};

/// The endpoints of a port that serve. All lists are in the order of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Selection {
    pub(super) backends: Vec<Backend>,
    pub(super) slots: Slots,
    /// As [`crate::model::Frontend::also_serving`].
    pub(super) also_serving: Vec<Backend>,
    /// How many ready endpoints new clients do not get since they were found dead.
    pub(super) ejected: usize,
    /// Whether drained clusters serve, since no other cluster has a ready endpoint.
    pub(super) ignores_drain: bool,
    /// Of each tier, if the import asks for spill.
    pub(super) shares: Vec<TierShare>,
}

/// Selects the backends of a port and their slots, and lists the other endpoints that serve: endpoints of other zones or
/// nodes, of drained clusters, ejected endpoints, and endpoints that terminate while others are ready. `sticky`: clients
/// return to the backend that they had.
pub(super) fn select(
    mut candidates: Vec<Candidate<'_>>,
    protocol: Protocol,
    sticky: bool,
    preferences: &Preferences,
    node: &NodeContext,
    spill: &mut SpillContext<'_>,
    recorder: &mut impl Recorder,
) -> Selection {
    let import = spill.import;
    recorder.step(&mut candidates, |candidates| {
        candidate::keep_one_per_address(candidates);
        Fate::Duplicate
    });
    let traffic = &node.facts.traffic;
    // A TCP connection to a cluster that this node does not reach may go on all the same. Of UDP nobody would notice.
    let is_left = |candidate: &Candidate<'_>| {
        traffic.is_past_deadline(candidate.cluster)
            || (protocol == Protocol::Udp
                && traffic.is_ejected(candidate.cluster, candidate.address.ip()))
    };
    let answers =
        |candidate: &&Candidate<'_>| candidate.conditions().answers() && !is_left(candidate);
    let mut others = match protocol {
        // A TCP connection keeps its backend in any case, unless the agent destroys sockets.
        Protocol::Tcp if !node.stale_tcp => Vec::new(),
        Protocol::Tcp | Protocol::Udp => candidates.iter().filter(answers).copied().collect(),
    };
    let ejects = protocol == Protocol::Tcp && preferences.eject();
    let state = |one: &Candidate<'_>| node.ejections.state(import, one.address);
    let is_dead =
        |one: &&Candidate<'_>| one.conditions().ready && state(one) == Some(EjectionState::Ejected);
    let dead: Vec<_> =
        if ejects { candidates.iter().filter(is_dead).copied().collect() } else { vec![] };
    let shares = preferences.keep(&mut candidates, node, spill, recorder);
    let ignores_drain =
        candidates.iter().any(|one| traffic.is_passed_over(one.cluster, one.address.ip()));
    if ignores_drain {
        recorder.falls_back(|| Fallback::DrainedServe);
    }
    if candidates.iter().any(|one| one.conditions().draining()) {
        recorder.falls_back(|| Fallback::TerminatingServe);
    }
    let counts = match shares.as_slice() {
        [] => slots::by_weight(&candidates, node, sticky).filter(|_| !ignores_drain),
        shares => Some(slots::by_share(&candidates, shares, !ignores_drain, node, sticky)),
    };
    let counts = slots::with_half_open(counts, &candidates, |one| {
        ejects && state(one) == Some(EjectionState::HalfOpen)
    });
    let slots = match counts {
        None => Slots::ONE_EACH,
        Some(counts) => {
            recorder.step(&mut candidates, |candidates| {
                let mut each = counts.iter();
                candidates.retain(|_| each.next().is_some_and(|count| *count > 0));
                Fate::NoSlot
            });
            Slots::new(counts.into_iter().filter(|count| *count > 0))
        }
    };
    recorder.used(&candidates);
    let backends: Vec<_> = candidates.iter().map(Candidate::backend).collect();
    let is_backend = |address| backends.binary_search_by_key(&address, |one| one.address).is_ok();
    others.retain(|candidate| !is_backend(candidate.address));
    let ejected = dead.iter().filter(|candidate| !is_backend(candidate.address)).count();
    let also_serving = others.iter().map(Candidate::backend).collect();
    Selection { backends, slots, also_serving, ejected, ignores_drain, shares }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::{
        candidate::{numbered, of_clusters},
        spill::Spills,
        traffic_policy::TrafficPolicy,
    };
    use crate::model::{
        Endpoint, FrontendId, Traffic, Unreachable,
        fixture::{endpoint, key, knowing, node},
    };

    fn here() -> Endpoint {
        endpoint("").node("n1")
    }

    fn elsewhere() -> Endpoint {
        endpoint("").node("n2")
    }

    fn selected(
        protocol: Protocol,
        policy: TrafficPolicy,
        node: &NodeContext,
        endpoints: &[(&str, Endpoint)],
    ) -> [Vec<u16>; 2] {
        let endpoints = of_clusters(endpoints);
        let spill = &mut SpillContext {
            spills: &mut Spills::default(),
            import: &key("shop/web"),
            frontend: FrontendId { ip: [10, 0, 0, 1].into(), port: 80, protocol },
        };
        let selection =
            select(numbered(&endpoints), protocol, false, &policy.into(), node, spill, &mut ());
        [selection.backends, selection.also_serving]
            .map(|list| list.iter().map(|b| b.address.port()).collect())
    }

    /// The ports of the backends: endpoints are numbered from 1.
    fn chosen(
        policy: TrafficPolicy,
        node: &NodeContext,
        endpoints: &[(&str, Endpoint)],
    ) -> Vec<u16> {
        let [backends, others] = selected(Protocol::Tcp, policy, node, endpoints);
        assert_eq!(others, [0; 0], "TCP");
        backends
    }

    #[test]
    fn udp_lists_the_others_that_serve() {
        let unready = || elsewhere().conditions(false, true, false);
        let gone = || elsewhere().conditions(false, false, true);
        let near = || here().for_zone("z1");
        let far = || here().for_zone("z2");
        for (policy, endpoints, backends, others) in [
            (TrafficPolicy::Cluster, vec![near(), far()], vec![1], vec![2]),
            (TrafficPolicy::Cluster, vec![here(), here().draining()], vec![1], vec![2]),
            (TrafficPolicy::Cluster, vec![here(), unready(), gone()], vec![1], vec![2]),
            (TrafficPolicy::Cluster, vec![unready(), gone()], vec![], vec![1]),
            (TrafficPolicy::Cluster, vec![gone()], vec![], vec![]),
            (TrafficPolicy::Local, vec![elsewhere(), here()], vec![2], vec![1]),
            (TrafficPolicy::Local, vec![elsewhere()], vec![], vec![1]),
        ] {
            let endpoints: Vec<_> = endpoints.into_iter().map(|e| ("east", e)).collect();
            let found = selected(Protocol::Udp, policy, &node(), &endpoints);
            assert_eq!(found, [backends, others], "{policy:?} {endpoints:?}");
            let destroying = NodeContext { stale_tcp: true, ..node() };
            assert_eq!(selected(Protocol::Tcp, policy, &destroying, &endpoints), found);
        }
        let endpoints = [("east", here()), ("west", here())];
        for (past, others) in [(false, vec![2]), (true, vec![])] {
            let drained = knowing(node(), |facts| {
                facts.traffic = Traffic::parse(r#"{"west":{"drain":true}}"#).unwrap();
                let clusters = if past { ["west".into()].into() } else { [].into() };
                facts.traffic.note_past_deadline(&clusters);
            });
            let found = selected(Protocol::Udp, TrafficPolicy::Cluster, &drained, &endpoints);
            assert_eq!(found, [vec![1], others], "past its deadline: {past}");
            let found = selected(Protocol::Udp, TrafficPolicy::Cluster, &drained, &endpoints[1..]);
            assert_eq!(found, [vec![1], vec![]], "nobody else serves");
        }
        for how in [Unreachable::Eject, Unreachable::Ejected, Unreachable::EjectedV6] {
            let silent = knowing(node(), |facts| {
                facts.traffic = Traffic::parse(r#"{"west":{"unreachable":"eject"}}"#).unwrap();
                facts.traffic.eject(&[("west".into(), how)].into());
            });
            // IPv4 is not concerned.
            let is_used = matches!(how, Unreachable::Eject | Unreachable::EjectedV6);
            let expected = if is_used { [vec![1, 2], vec![]] } else { [vec![1], vec![]] };
            let found = selected(Protocol::Udp, TrafficPolicy::Cluster, &silent, &endpoints);
            assert_eq!(found, expected, "{how:?}");
            let destroying = NodeContext { stale_tcp: true, ..silent.clone() };
            let [_, kept] =
                selected(Protocol::Tcp, TrafficPolicy::Cluster, &destroying, &endpoints);
            assert_eq!(kept, if is_used { vec![] } else { vec![2] }, "TCP connections go on");
            let found = selected(Protocol::Udp, TrafficPolicy::Cluster, &silent, &endpoints[1..]);
            assert_eq!(found, [vec![1], vec![]], "nobody else serves");
        }
        let unknown = NodeContext { node_name: None, ..node() };
        let found = selected(Protocol::Udp, TrafficPolicy::Local, &unknown, &endpoints);
        assert_eq!(found, [vec![], vec![1, 2]], "the node is not known");
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
        for node in [
            NodeContext { node_name: None, ..node() },
            knowing(node(), |facts| facts.cluster_id = None),
        ] {
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
