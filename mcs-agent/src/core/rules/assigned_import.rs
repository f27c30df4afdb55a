//! An import with its assigned frontends, and the backends that its slices have for them: how they are selected, and which
//! other endpoints serve.

use std::{collections::BTreeMap, mem, net::IpAddr};

use super::{
    Fate,
    candidate::{self, Candidate, Fallback, Recorder, UsableSlices},
    claim::Claim,
    fields::{IpFamily, ObjectProblem},
    preference::{Choice, Preferences},
    slots,
};
use crate::core::{
    model::{
        Backend, EjectionState, Frontend, FrontendId, NodeContext, ObjectKey, Protocol, Rejection,
        Sections, ServiceImport, Slots,
    },
    store::Snapshot,
};

/// An import with its frontends and their backends.
#[derive(Debug)]
pub(crate) struct AssignedImport<'a> {
    pub(super) import: &'a ServiceImport,
    pub(crate) frontends: Vec<(FrontendId, Frontend)>,
    /// As in [`Assignment`](super::claim::Assignment).
    pub(super) has_vip: bool,
    pub(super) has_slices: bool,
    /// A frontend that drained clusters serve, since no other cluster can.
    pub(super) drain_ignored: Option<FrontendId>,
    /// Why a frontend has no backends, if a preference has bounded it.
    pub(super) why_refused: Option<String>,
    /// What preferences say of it.
    pub(super) sections: Sections,
    /// As in [`Claim`].
    pub(super) left_vips: Vec<IpAddr>,
    /// Of the import itself.
    pub(super) problems: Vec<ObjectProblem>,
    /// Of its slices.
    pub(super) slice_rejections: Vec<Rejection>,
}

#[cfg(test)]
impl<'a> AssignedImport<'a> {
    /// An import with an address and slices, of which nothing is wrong.
    pub(super) fn fixture(
        import: &'a ServiceImport,
        frontends: Vec<(FrontendId, Frontend)>,
    ) -> Self {
        Self {
            import,
            frontends,
            has_vip: true,
            has_slices: true,
            drain_ignored: None,
            why_refused: None,
            sections: Sections::default(),
            left_vips: vec![],
            problems: vec![],
            slice_rejections: vec![],
        }
    }
}

impl Claim {
    /// Selects the backends of every frontend from the import's slices. No endpoint may be one of
    /// `vips`.
    pub(crate) fn select_backends<'a>(
        &self,
        import: &'a ServiceImport,
        snapshot: &Snapshot,
        vips: &BTreeMap<IpAddr, ObjectKey>,
        node: &NodeContext,
        preferences: &mut Preferences,
        recorder: &mut dyn Recorder,
    ) -> AssignedImport<'a> {
        let (slices, slice_rejections) =
            UsableSlices::read(snapshot.slices(&import.key), vips, &node.facts, recorder);
        // VIPs of one family share the backends of a port: the first frontend that has them.
        let mut selected: BTreeMap<(usize, IpFamily), usize> = BTreeMap::new();
        let mut drain_ignored = None;
        let mut why_refused = None;
        let mut sections = Sections::default();
        let mut frontends: Vec<(FrontendId, Frontend)> =
            Vec::with_capacity(self.assigned.frontends.len());
        for frontend in &self.assigned.frontends {
            let (port, family) = (&self.ports[frontend.port], IpFamily::of(frontend.id.ip));
            let first = *selected.entry((frontend.port, family)).or_insert(frontends.len());
            let Selection {
                backends,
                slots,
                also_serving,
                ejected,
                ignores_drain,
                is_bounded,
                why_none,
            } = if let Some((_, first)) = frontends.get(first) {
                let Frontend { backends, slots, also_serving, held, is_bounded, .. } =
                    first.clone();
                let ejected = held;
                Selection {
                    backends,
                    slots,
                    also_serving,
                    ejected,
                    is_bounded,
                    ..Selection::default()
                }
            } else {
                let candidates = slices.candidates(port, family);
                recorder.port(port);
                let choice = Choice {
                    node,
                    import,
                    wishes: &self.wishes,
                    frontend: frontend.id,
                    now: preferences.now,
                    shares: Vec::new(),
                    bounded: None,
                    sections: &mut sections,
                    recorder: &mut *recorder,
                };
                let sticky = self.affinity_seconds.is_some();
                select(candidates, sticky, preferences, choice)
            };
            if ignores_drain {
                drain_ignored.get_or_insert(frontend.id);
            }
            why_refused = why_refused.or(why_none);
            let value = Frontend {
                import: import.key.clone(),
                port_name: port.name.clone(),
                affinity_seconds: self.affinity_seconds,
                backends,
                slots,
                also_serving,
                held: ejected,
                is_bounded,
            };
            frontends.push((frontend.id, value));
        }
        AssignedImport {
            import,
            frontends,
            has_vip: self.assigned.has_vip,
            has_slices: slices.has_slices,
            drain_ignored,
            why_refused,
            sections,
            left_vips: self.left_vips.clone(),
            problems: self.problems.clone(),
            slice_rejections,
        }
    }
}

impl AssignedImport<'_> {
    /// The source clusters of all backends. A cluster can come more than once.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.frontends
            .iter()
            .flat_map(|(_, frontend)| frontend.clusters())
            .map(|run| &**run.cluster)
    }

    /// Removes the backends of the source clusters that are excluded.
    pub(super) fn drop_clusters(&mut self, is_excluded: impl Fn(&str) -> bool) {
        for (_, frontend) in &mut self.frontends {
            let slots = mem::take(&mut frontend.slots);
            let all = mem::take(&mut frontend.backends);
            let counts = slots.counts(all.len());
            let (dropped, kept): (Vec<_>, Vec<_>) =
                all.into_iter().zip(counts).partition(|(one, _)| is_excluded(&one.cluster));
            let (kept, counts): (_, Vec<_>) = kept.into_iter().unzip();
            (frontend.backends, frontend.slots) = (kept, Slots::new(counts));
            note_dropped(frontend, dropped.into_iter().map(|(one, _)| one).collect());
        }
    }
}

/// Adds backends that did not fit to the endpoints that still serve: their UDP clients stay with them, and nobody destroys
/// their TCP sockets.
pub(super) fn note_dropped(frontend: &mut Frontend, dropped: Vec<Backend>) {
    if !dropped.is_empty() {
        frontend.also_serving.extend(dropped);
        frontend.also_serving.sort();
    }
}

/// The endpoints of a port that serve. All lists are in the order of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Selection {
    backends: Vec<Backend>,
    slots: Slots,
    /// As [`crate::core::model::Frontend::also_serving`].
    also_serving: Vec<Backend>,
    /// How many ready endpoints new clients do not get since they were found dead.
    ejected: usize,
    /// Whether drained clusters serve, since no other cluster has a ready endpoint.
    ignores_drain: bool,
    /// As [`crate::core::model::Frontend::is_bounded`].
    is_bounded: bool,
    /// Why nothing serves, if a preference has bounded it.
    why_none: Option<String>,
}

/// Selects the backends of a port and their slots, and lists the other endpoints that serve: endpoints of other zones or
/// nodes, of drained clusters, ejected endpoints, and endpoints that terminate while others are ready. `sticky`: clients
/// return to the backend that they had.
fn select(
    mut candidates: Vec<Candidate<'_>>,
    sticky: bool,
    preferences: &mut Preferences,
    mut choice: Choice<'_>,
) -> Selection {
    let (node, import, protocol) = (choice.node, &choice.import.key, choice.frontend.protocol);
    choice.recorder.step(&mut candidates, &mut |candidates| {
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
    preferences.bound(&mut candidates, &mut choice);
    let is_bounded = choice.bounded.as_ref().is_some_and(|bounded| bounded.ends_clients);
    if is_bounded {
        others = match protocol {
            Protocol::Tcp if !node.stale_tcp => candidates.clone(),
            Protocol::Tcp | Protocol::Udp => candidates.iter().filter(answers).copied().collect(),
        };
    }
    let ejects = protocol == Protocol::Tcp && choice.wishes.ejects;
    let state = |one: &Candidate<'_>| node.ejections.state(import, one.address);
    let is_dead =
        |one: &&Candidate<'_>| one.conditions().ready && state(one) == Some(EjectionState::Ejected);
    let dead: Vec<_> =
        if ejects { candidates.iter().filter(is_dead).copied().collect() } else { vec![] };
    preferences.keep(&mut candidates, &mut choice);
    let Choice { shares, recorder, bounded, .. } = choice;
    let ignores_drain =
        candidates.iter().any(|one| traffic.is_passed_over(one.cluster, one.address.ip()));
    if ignores_drain {
        recorder.falls_back(&|| Fallback::DrainedServe);
    }
    if candidates.iter().any(|one| one.conditions().draining()) {
        recorder.falls_back(&|| Fallback::TerminatingServe);
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
            recorder.step(&mut candidates, &mut |candidates| {
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
    let why_none = bounded.map(|one| one.why_none).filter(|_| backends.is_empty());
    Selection { backends, slots, also_serving, ejected, ignores_drain, is_bounded, why_none }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        model::{
            Endpoint, Traffic, Unreachable,
            fixture::{endpoint, import, knowing, node},
        },
        rules::{
            candidate::{numbered, of_clusters},
            topology::TrafficPolicy,
        },
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
        let choice = Choice {
            node,
            import: &import("shop/web"),
            wishes: &policy.into(),
            frontend: FrontendId { ip: [10, 0, 0, 1].into(), port: 80, protocol },
            now: None,
            shares: vec![],
            bounded: None,
            sections: &mut Sections::default(),
            recorder: &mut (),
        };
        let preferences = &mut Preferences::default();
        let selection = select(numbered(&endpoints), false, preferences, choice);
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
