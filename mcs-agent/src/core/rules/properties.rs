//! Properties of the rules for random objects.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{Rules, compute, fields::forbidden};
use crate::core::{
    model::{
        Capacity, ClusterAffinity, DesiredChanges, DesiredState, Endpoint, EndpointSlice,
        EventBatch, Frontend, ImportState, Kind, Location, NodeContext, NodeFacts, Object,
        ObjectEvent, ObjectKey, ObjectRef, RejectionReason, ServiceImport, ServiceType, Tiers,
        Timestamp, TopologyHints, Totals, Traffic,
        fixture::{import, key, slice},
    },
    store::{ObjectStore, Snapshot},
};

/// Addresses that objects contend for, as VIPs and as endpoints.
const ADDRESSES: [&str; 6] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1", "fd00::2"];
/// What is neither a VIP nor an endpoint.
const WRONG: [&str; 5] = ["127.0.0.1", "::1", "::ffff:10.0.0.1", "255.255.255.255", "web"];
const NAMES: [&str; 3] = ["", "http", "dns"];
const PROTOCOLS: [&str; 4] = ["TCP", "TCP", "UDP", "SCTP"];

fn text(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(values).prop_map(str::to_owned)
}

fn addresses() -> impl Strategy<Value = String> {
    prop_oneof![9 => text(&ADDRESSES), 1 => text(&WRONG)]
}

fn flag() -> impl Strategy<Value = Option<bool>> {
    option::of(any::<bool>())
}

fn imports() -> impl Strategy<Value = ServiceImport> {
    let port = (text(&NAMES), select(vec![0, 53, 80, 65536]), option::of(text(&PROTOCOLS)));
    (
        text(&["shop/web", "shop/api", "shop/db", "other/web"]),
        option::of(0_i64..3),
        vec(addresses(), 1..4),
        vec(port, 0..3),
        prop::bool::weighted(0.1),
        option::weighted(0.2, text(&["None", "ClientIP", "Always"])),
        option::weighted(0.2, text(&["Cluster", "Local", "Nearby"])),
        (
            option::weighted(0.3, text(&["", "derived-abc"])),
            option::weighted(0.2, text(&["Present", "Absent"])),
            select(vec![&[][..], &["east", "west"]]),
        ),
        (
            option::weighted(0.3, text(&["PreferSameZone", "PreferSameNode", "PreferPlanet"])),
            option::weighted(0.3, text(&["local", "remote", "nearby"])),
            tiers(),
        ),
    )
        .prop_map(
            |(name, created, ips, ports, headless, affinity, policy, publication, preferences)| {
                let (derived_service, endpoint_slice_objects, clusters) = publication;
                let (distribution, affinity_of_clusters, tiers) = preferences;
                let served = import(&name).port("http", 80);
                let import = ports.into_iter().fold(served, |import, (name, port, protocol)| {
                    import.port_of(&name, port, protocol.as_deref())
                });
                ServiceImport {
                    created: created.map(Timestamp),
                    ips,
                    service_type: if headless {
                        ServiceType::Headless
                    } else {
                        ServiceType::ClusterSetIp
                    },
                    session_affinity: affinity,
                    internal_traffic_policy: policy,
                    traffic_distribution: distribution.map(Into::into),
                    cluster_affinity: affinity_of_clusters.map(|value| {
                        Box::new(ClusterAffinity { annotation: "example.io/affinity", value })
                    }),
                    tiers,
                    derived_service,
                    endpoint_slice_objects,
                    clusters: clusters.iter().copied().map(Arc::from).collect(),
                    ..import
                }
            },
        )
}

fn tiers() -> impl Strategy<Value = Option<Box<Result<Tiers, String>>>> {
    let results = [
        r#"[{"clusters":["east"]},{"clusters":["east","west"]}]"#,
        r#"[{},{"clusters":["west"]},{"clusters":["north"]}]"#,
        "?",
    ];
    option::weighted(0.4, select(results.to_vec()))
        .prop_map(|results| results.map(|results| Box::new(Tiers::parse(results))))
}

fn endpoints() -> impl Strategy<Value = Endpoint> {
    (
        addresses(),
        (flag(), flag(), flag()),
        (option::of(text(&["n1", "n2"])), option::of(text(&["z1", "z2"]))),
        vec(text(&["n1", "n2"]), 0..2),
        vec(text(&["z1", "z2"]), 0..2),
    )
        .prop_map(|(address, conditions, (node_name, zone), nodes, zones)| {
            let (ready, serving, terminating) = conditions;
            Endpoint {
                address: (&*address).into(),
                ready,
                serving,
                terminating,
                location: Some(Arc::new(Location {
                    node_name: node_name.map(Into::into),
                    zone: zone.map(Into::into),
                })),
                hints: Some(Arc::new(TopologyHints { nodes, zones })),
            }
        })
}

fn slices() -> impl Strategy<Value = EndpointSlice> {
    let port = (text(&NAMES), option::of(select(vec![0, 53, 8080])), option::of(text(&PROTOCOLS)));
    (
        text(&["shop/a", "shop/b", "shop/c", "shop/d", "other/a"]),
        text(&["web", "api", "db"]),
        option::of(text(&["east", "west", "north"])),
        text(&["IPv4", "IPv4", "IPv4", "IPv6", "FQDN"]),
        vec(endpoints(), 0..6),
        vec(port, 0..3),
    )
        .prop_map(|(name, service, source_cluster, address_type, endpoints, ports)| {
            let served = slice(&name, &service).port("http", 8080);
            let slice = ports.into_iter().fold(served, |slice, (name, port, protocol)| {
                slice.port_of(&name, port, protocol.as_deref())
            });
            let source_cluster = source_cluster.unwrap_or_default().into();
            EndpointSlice { source_cluster, address_type, endpoints: endpoints.into(), ..slice }
        })
}

/// Objects as events: each once, since of two that share a name the order does matter.
fn events() -> impl Strategy<Value = Vec<ObjectEvent>> {
    let malformed = (
        select(vec![Kind::ServiceImport, Kind::EndpointSlice]),
        text(&["shop/web", "shop/api", "shop/a"]),
    )
        .prop_map(|(kind, name)| ObjectEvent::Malformed {
            object: ObjectRef { kind, key: key(&name) },
            message: "not a map".to_owned(),
        });
    let imports = vec(imports().prop_map(|import| ObjectEvent::Apply(import.into())), 0..5);
    let slices = vec(slices().prop_map(|slice| ObjectEvent::Apply(slice.into())), 0..6);
    (imports, slices, vec(malformed, 0..2)).prop_map(|(imports, slices, malformed)| {
        let mut seen = BTreeSet::new();
        let mut events: Vec<_> = imports.into_iter().chain(slices).chain(malformed).collect();
        events.retain(|event| seen.insert(reference(event)));
        events
    })
}

fn nodes() -> impl Strategy<Value = NodeContext> {
    let capacity = (0_u32..4, 0_u32..6, 0_u32..12, 0_u32..4).prop_map(
        |(refused, frontends, endpoints, clusters)| {
            let vips = frontends + refused;
            Capacity { vips, frontends, endpoints, clusters, imports: frontends }
        },
    );
    (
        option::of(text(&["n1"])),
        option::of(text(&["z1"])),
        option::of(text(&["east"])),
        prop_oneof![Just(Capacity::default()), capacity],
        option::of(select(vec![&["172.30.0.0/16"][..], &["10.0.0.0/30", "fd00::/127"]])),
        select(vec![
            "{}",
            r#"{"east":{"weight":3},"west":{"weight":1}}"#,
            r#"{"west":{"weight":10}}"#,
            r#"{"east":{"drain":true},"west":{"weight":5}}"#,
            r#"{"east":{"preferred":true}}"#,
        ]),
    )
        .prop_map(|(node_name, zone, cluster_id, capacity, service_ranges, traffic)| {
            NodeContext {
                node_name,
                facts: NodeFacts {
                    zone,
                    cluster_id,
                    traffic: Traffic::parse(traffic).unwrap(),
                    service_ranges: service_ranges
                        .map(|ranges| ranges.iter().map(|range| range.parse().unwrap()).collect()),
                    ..NodeFacts::default()
                },
                capacity,
                node_addresses: [IpAddr::from([10, 0, 0, 2])].into(),
                ..NodeContext::default()
            }
        })
}

fn reference(event: &ObjectEvent) -> ObjectRef {
    match event {
        ObjectEvent::Apply(object) => object.reference(),
        ObjectEvent::Malformed { object, .. } => object.clone(),
        other => panic!("not generated: {other:?}"),
    }
}

fn snapshot(batches: Vec<Vec<ObjectEvent>>) -> Snapshot {
    let mut store = ObjectStore::default();
    for events in batches {
        store.apply(EventBatch { events, ..EventBatch::default() });
    }
    store.snapshot()
}

/// The objects of which nothing is used: their removal must go unnoticed.
fn rejected(desired: &DesiredState) -> Vec<ObjectRef> {
    let whole = [RejectionReason::Malformed, RejectionReason::AddressTypeUnsupported];
    let imports = desired.imports.iter().filter(|report| report.state == ImportState::Rejected);
    imports
        .map(|report| ObjectRef { kind: Kind::ServiceImport, key: report.import.clone() })
        .chain(
            desired
                .rejections
                .iter()
                .filter(|rejection| whole.contains(&rejection.reason))
                .map(|rejection| rejection.object.clone()),
        )
        .collect()
}

/// Every import's state but that of `object`.
fn states(desired: &DesiredState, object: &ObjectRef) -> Vec<(ObjectKey, ImportState)> {
    desired
        .imports
        .iter()
        .filter(|report| object.kind != Kind::ServiceImport || report.import != object.key)
        .map(|report| (report.import.clone(), report.state))
        .collect()
}

proptest! {
    #[test]
    fn the_order_in_which_objects_come_does_not_matter(
        (events, shuffled) in events().prop_flat_map(|e| (Just(e.clone()), Just(e).prop_shuffle())),
        node in nodes(),
    ) {
        let at_once = compute(&snapshot(vec![events]), &node, &DesiredState::default());
        let one_by_one = shuffled.into_iter().map(|event| vec![event]).collect();
        prop_assert_eq!(compute(&snapshot(one_by_one), &node, &DesiredState::default()), at_once);
    }

    #[test]
    fn every_sequence_of_rounds_ends_as_a_full_round_does(
        batches in vec(events(), 1..8),
        nodes in vec(nodes(), 1..3),
        retiered in vec((any::<prop::sample::Index>(), tiers()), 8),
    ) {
        let mut store = ObjectStore::default();
        let mut rules = Rules::default();
        for (turn, events) in batches.into_iter().enumerate() {
            let node = &nodes[turn / 4 % nodes.len()];
            let slices = |event: &ObjectEvent| reference(event).kind == Kind::EndpointSlice;
            // Half of the time only slices change, and some objects go.
            let mut events = events;
            if turn % 4 > 1 {
                events.retain(slices);
            }
            if turn % 4 != 0 {
                for event in events.iter_mut().skip(1).step_by(3) {
                    *event = ObjectEvent::Delete(reference(event));
                }
            }
            // Sometimes the tiers of an import change with them.
            let (which, tiers) = &retiered[turn];
            let known: Vec<_> = store.snapshot().imports().cloned().collect();
            if turn % 4 > 1 && !known.is_empty() {
                let import = which.get(&known).clone();
                events.push(ObjectEvent::Apply(ServiceImport { tiers: tiers.clone(), ..import }.into()));
            }
            store.apply(EventBatch { events, ..EventBatch::default() });
            let before = rules.desired().clone();
            let snapshot = store.snapshot();
            let round = rules.evaluate(&snapshot, store.take_dirty(), node, None);

            let desired = rules.desired();
            prop_assert_eq!(desired, &compute(&snapshot, node, &before));
            prop_assert_eq!(rules.totals(), &Totals::of(desired));
            let others = |all: &DesiredState| {
                let (mut frontends, mut vips) = (all.frontends.clone(), all.vips.clone());
                if let DesiredChanges::Parts(parts) = &round.changes {
                    frontends.retain(|id, _| !parts.frontends.contains(id));
                    vips.retain(|ip| !parts.vips.contains(ip));
                }
                (frontends, vips)
            };
            if round.changes != DesiredChanges::Everything {
                prop_assert_eq!(others(desired), others(&before));
            }
            let gone: BTreeSet<IpAddr> = &before.vips - &desired.vips;
            prop_assert_eq!(round.departures.into_keys().collect::<BTreeSet<_>>(), gone);
            for rejection in round.new_rejections {
                prop_assert!(!before.rejections.contains(&rejection), "{:?}", rejection);
            }
        }
    }

    #[test]
    fn what_is_desired_can_be_done(events in events(), node in nodes()) {
        let imports = events.iter().map(reference).filter(|o| o.kind == Kind::ServiceImport).count();
        let DesiredState { vips, frontends, imports: reports, rejections, .. } =
            compute(&snapshot(vec![events]), &node, &DesiredState::default());

        for vip in &vips {
            prop_assert!(forbidden(*vip).is_none() && !node.node_addresses.contains(vip));
        }
        for (id, frontend) in &frontends {
            prop_assert!(vips.contains(&id.ip) && id.port != 0, "{}", id);
            let addresses: Vec<_> = frontend.backends.iter().map(|b| b.address).collect();
            prop_assert!(addresses.is_sorted_by(|a, b| a < b), "{:?}", addresses);
            for address in addresses {
                let ip = address.ip();
                prop_assert!(ip.is_ipv4() == id.ip.is_ipv4() && address.port() != 0, "{}", address);
                prop_assert!(forbidden(ip).is_none() && !vips.contains(&ip), "{}", address);
            }
        }
        let backends = || frontends.values().flat_map(|frontend| &frontend.backends);
        let clusters: BTreeSet<&str> = backends().map(|backend| &*backend.cluster).collect();
        let fits = |count: usize, allowed: u32| count <= allowed as usize;
        prop_assert!(fits(vips.len(), node.capacity.vips));
        prop_assert!(fits(frontends.len(), node.capacity.frontends));
        prop_assert!(fits(frontends.values().map(Frontend::slot_count).sum(), node.capacity.endpoints));
        prop_assert!(fits(clusters.len(), node.capacity.clusters));

        prop_assert_eq!(reports.len(), imports);
        prop_assert!(reports.is_sorted_by(|a, b| a.import < b.import));
        prop_assert!(rejections.is_sorted());
    }

    #[test]
    fn a_rejected_object_might_as_well_not_be_there(mut events in events(), node in nodes()) {
        // A slice that nothing can be used of still takes an import from Services and from other imports.
        for event in &mut events {
            if let ObjectEvent::Apply(Object::Import(import)) = event {
                import.derived_service = None;
            }
        }
        for name in ["shop/web", "shop/api", "shop/db", "other/web"] {
            let service = key(name).name;
            events.push(ObjectEvent::Apply(slice(&format!("{name}-empty"), &service).into()));
        }
        let with = compute(&snapshot(vec![events.clone()]), &node, &DesiredState::default());
        for object in rejected(&with) {
            let others = events.iter().filter(|event| reference(event) != object).cloned();
            let without = compute(&snapshot(vec![others.collect()]), &node, &DesiredState::default());
            prop_assert_eq!(&without.vips, &with.vips, "without {}", object);
            prop_assert_eq!(&without.frontends, &with.frontends, "without {}", object);
            prop_assert_eq!(states(&without, &object), states(&with, &object));
        }
    }
}
