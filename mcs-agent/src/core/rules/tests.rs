//! Tests of all rules together: objects in, frontends and reports out.

use super::{EjectsAll, Rules, compute};
use crate::core::{
    model::{
        Capacity, Departure, DesiredChanges, DesiredState, Ejection, EjectionState, EndpointSlice,
        EventBatch, ImportState, Kind, NodeContext, Object, ObjectEvent, ObjectRef,
        RejectionReason, ServiceImport, ServiceType, Tiers,
        fixture::{endpoint, import, key, knowing, plain_node, slice, snapshot},
    },
    store::{DirtyObjects, ObjectStore},
};

fn web() -> ServiceImport {
    import("shop/web").ip("10.0.0.1").port("http", 80)
}

fn east() -> EndpointSlice {
    slice("shop/web-east", "web").cluster("east").port("http", 8080)
}

fn west() -> EndpointSlice {
    slice("shop/web-west", "web").cluster("west").port("http", 8081)
}

fn desired(objects: impl IntoIterator<Item = Object>) -> DesiredState {
    compute(&snapshot(objects), &plain_node(), &DesiredState::default())
}

/// One line per frontend: `VIP -> cluster/backend ...`.
fn frontends(desired: &DesiredState) -> Vec<String> {
    desired
        .frontends
        .iter()
        .map(|(id, frontend)| {
            let backends = frontend
                .backends
                .iter()
                .map(|backend| format!(" {}/{}", backend.cluster, backend.address));
            format!("{id} ->{}", backends.collect::<String>())
        })
        .collect()
}

fn vips(desired: &DesiredState) -> Vec<String> {
    desired.vips.iter().map(ToString::to_string).collect()
}

fn report(desired: &DesiredState, import: &str) -> (ImportState, String) {
    let report = desired.imports.iter().find(|report| report.import == key(import)).unwrap();
    (report.state, report.message.clone())
}

fn rejections(desired: &DesiredState) -> Vec<(String, RejectionReason)> {
    desired.rejections.iter().map(|r| (r.object.to_string(), r.reason)).collect()
}

#[test]
fn spreads_over_the_endpoints_of_every_cluster() {
    let desired = desired([
        web().into(),
        west().address("10.2.0.1").into(),
        east().address("10.1.0.2").address("10.1.0.1").into(),
    ]);
    assert_eq!(
        frontends(&desired),
        ["10.0.0.1:80/TCP -> east/10.1.0.1:8080 east/10.1.0.2:8080 west/10.2.0.1:8081"]
    );
    assert_eq!(vips(&desired), ["10.0.0.1"]);
    assert_eq!(report(&desired, "shop/web"), (ImportState::Ready, String::new()));
    assert_eq!(desired.rejections, []);
}

#[test]
fn makes_a_frontend_per_address_port_and_protocol() {
    let dual = web().ip("10.0.0.2").ip("fd00::1").port_of("dns", 53, Some("UDP"));
    let desired = desired([
        dual.into(),
        east().port_of("dns", Some(5353), Some("UDP")).address("10.1.0.1").into(),
        slice("shop/web-v6", "web").v6().port("http", 8080).address("fd00:1::1").into(),
    ]);
    assert_eq!(
        frontends(&desired),
        [
            "10.0.0.1:53/UDP -> east/10.1.0.1:5353",
            "10.0.0.1:80/TCP -> east/10.1.0.1:8080",
            "10.0.0.2:53/UDP -> east/10.1.0.1:5353",
            "10.0.0.2:80/TCP -> east/10.1.0.1:8080",
            "[fd00::1]:53/UDP ->",
            "[fd00::1]:80/TCP -> east/[fd00:1::1]:8080",
        ]
    );
    assert_eq!(
        report(&desired, "shop/web"),
        (ImportState::Partial, "no usable endpoint for [fd00::1]:53/UDP".to_owned())
    );
}

#[test]
fn carries_port_name_and_affinity() {
    let import =
        ServiceImport { session_affinity: Some("ClientIP".to_owned()), ..web().port("", 81) };
    let desired = desired([import.into()]);
    let actual: Vec<_> = desired
        .frontends
        .values()
        .map(|f| (f.import.to_string(), f.port_name.as_str(), f.affinity_seconds))
        .collect();
    assert_eq!(
        actual,
        [("shop/web".to_owned(), "http", Some(10_800)), ("shop/web".to_owned(), "", Some(10_800))]
    );
}

#[test]
fn claims_and_refuses_without_usable_endpoints() {
    let unready = || endpoint("10.1.0.1").conditions(false, true, false);
    for (slices, message) in [
        (vec![], "no EndpointSlice"),
        (vec![east()], "no usable endpoint"),
        (vec![east().endpoint(unready())], "no usable endpoint"),
        (
            vec![slice("shop/web-east", "web").port("tls", 1).address("10.1.0.1")],
            "no usable endpoint",
        ),
    ] {
        let objects = slices.into_iter().map(Object::from).chain([web().into()]);
        let desired = desired(objects);
        assert_eq!(frontends(&desired), ["10.0.0.1:80/TCP ->"]);
        assert_eq!(vips(&desired), ["10.0.0.1"]);
        assert_eq!(report(&desired, "shop/web"), (ImportState::Refusing, message.to_owned()));
    }
}

#[test]
fn a_vip_is_ours_without_a_port_that_can_be_served() {
    let sctp = import("shop/web").ip("10.0.0.1").port_of("s", 42, Some("SCTP"));
    let desired = desired([sctp.into(), east().address("10.1.0.1").into()]);
    assert_eq!(frontends(&desired), [""; 0]);
    assert_eq!(vips(&desired), ["10.0.0.1"]);
    let (state, message) = report(&desired, "shop/web");
    assert_eq!(state, ImportState::Refusing);
    assert!(message.contains("42/SCTP"), "{message}");
}

#[test]
fn an_import_left_alone_claims_nothing() {
    let absent = ServiceImport { endpoint_slice_objects: Some("Absent".to_owned()), ..web() };
    let desired = desired([
        absent.into(),
        east().address("127.0.0.1").into(),
        import("shop/young").created(9).ip("10.0.0.1").port("http", 80).into(),
    ]);
    assert_eq!(report(&desired, "shop/web").0, ImportState::LeftAlone);
    assert_eq!(report(&desired, "shop/young").0, ImportState::Refusing);
    assert_eq!(desired.frontends.values().next().unwrap().import, key("shop/young"));
    assert_eq!(desired.rejections, []);
}

#[test]
fn a_rejected_update_withdraws_what_the_object_made() {
    let mut store = ObjectStore::default();
    let mut apply = |import: ServiceImport| {
        let events = vec![ObjectEvent::Apply(import.into())];
        store.apply(EventBatch { events, ..EventBatch::default() });
        compute(&store.snapshot(), &plain_node(), &DesiredState::default())
    };
    assert_eq!(apply(web()).vips.len(), 1);
    let desired = apply(ServiceImport { session_affinity: Some("Always".to_owned()), ..web() });
    assert!(desired.vips.is_empty() && desired.frontends.is_empty());
    let (state, message) = report(&desired, "shop/web");
    assert_eq!(state, ImportState::Rejected);
    assert_eq!(message, desired.rejections[0].message);
    assert_eq!(
        rejections(&desired),
        [("ServiceImport shop/web".to_owned(), RejectionReason::AffinityInvalid)]
    );
}

#[test]
fn reports_what_cannot_be_read() {
    let mut store = ObjectStore::default();
    let malformed = |kind, name| ObjectEvent::Malformed {
        object: ObjectRef { kind, key: key(name) },
        message: format!("{name} is not a map"),
    };
    let events = vec![
        ObjectEvent::Apply(web().into()),
        malformed(Kind::EndpointSlice, "shop/web-east"),
        malformed(Kind::ServiceImport, "shop/broken"),
    ];
    store.apply(EventBatch { events, ..EventBatch::default() });
    let desired = compute(&store.snapshot(), &plain_node(), &DesiredState::default());
    assert_eq!(
        rejections(&desired),
        [
            ("ServiceImport shop/broken".to_owned(), RejectionReason::Malformed),
            ("EndpointSlice shop/web-east".to_owned(), RejectionReason::Malformed),
        ]
    );
    assert_eq!(
        report(&desired, "shop/broken"),
        (ImportState::Rejected, "shop/broken is not a map".to_owned())
    );
    assert_eq!(report(&desired, "shop/web").0, ImportState::Refusing);
}

#[test]
fn an_endpoint_that_is_a_vip_makes_way_for_the_next_best() {
    let api = import("shop/api").ip("10.0.0.9").port("http", 80);
    let draining = endpoint("10.1.0.1").draining();
    let desired =
        desired([web().into(), api.into(), east().address("10.0.0.9").endpoint(draining).into()]);
    assert_eq!(
        frontends(&desired),
        ["10.0.0.1:80/TCP -> east/10.1.0.1:8080", "10.0.0.9:80/TCP ->"]
    );
    assert_eq!(
        rejections(&desired),
        [("EndpointSlice shop/web-east".to_owned(), RejectionReason::EndpointIsVip)]
    );
    assert!(desired.rejections[0].message.contains("ClusterSetIP of shop/api"));
}

#[test]
fn an_endpoint_may_be_this_node() {
    let node = NodeContext { node_addresses: ["10.1.0.1".parse().unwrap()].into(), ..plain_node() };
    let objects: [Object; 2] = [web().into(), east().address("10.1.0.1").into()];
    let desired = compute(&snapshot(objects), &node, &DesiredState::default());
    assert_eq!(frontends(&desired), ["10.0.0.1:80/TCP -> east/10.1.0.1:8080"]);
}

#[test]
fn local_without_identity_refuses_every_client() {
    let local = ServiceImport { internal_traffic_policy: Some("Local".to_owned()), ..web() };
    let here = endpoint("10.1.0.1").node("n1");
    let objects = || -> [Object; 2] {
        [local.clone().into(), east().endpoint(here.clone()).address("10.1.0.2").into()]
    };
    let unknown = desired(objects());
    assert_eq!(frontends(&unknown), ["10.0.0.1:80/TCP ->"]);
    assert_eq!(
        rejections(&unknown),
        [("ServiceImport shop/web".to_owned(), RejectionReason::TrafficPolicyNeedsIdentity)]
    );
    assert_eq!(
        report(&unknown, "shop/web"),
        (ImportState::Refusing, unknown.rejections[0].message.clone())
    );

    let named = NodeContext { node_name: Some("n1".to_owned()), ..plain_node() };
    let node = knowing(named, |facts| facts.cluster_id = Some("east".to_owned()));
    let known = compute(&snapshot(objects()), &node, &DesiredState::default());
    assert_eq!(frontends(&known), ["10.0.0.1:80/TCP -> east/10.1.0.1:8080"]);
    assert_eq!(known.rejections, []);
}

#[test]
fn what_exceeds_the_capacity_affects_nothing_else() {
    let node = NodeContext {
        capacity: Capacity { vips: 3, frontends: 2, endpoints: 2, clusters: 2, imports: 2 },
        ..plain_node()
    };
    let objects: [Object; 6] = [
        web().created(1).into(),
        east().address("10.1.0.1").into(),
        import("shop/big").created(2).ip("10.0.0.2").port("http", 80).into(),
        slice("shop/big", "big").port("http", 1).address("10.3.0.1").address("10.3.0.2").into(),
        import("shop/late").created(3).ip("10.0.0.3").port("http", 80).into(),
        import("shop/last").created(4).ip("10.0.0.4").port("http", 80).into(),
    ];
    let desired = compute(&snapshot(objects), &node, &DesiredState::default());
    assert_eq!(
        frontends(&desired),
        ["10.0.0.1:80/TCP -> east/10.1.0.1:8080", "10.0.0.2:80/TCP ->"]
    );
    assert_eq!(vips(&desired), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let actual: Vec<_> = ["shop/web", "shop/big", "shop/late", "shop/last"]
        .map(|import| report(&desired, import))
        .into_iter()
        .collect();
    assert_eq!(actual[0], (ImportState::Ready, String::new()));
    assert_eq!(actual[1].0, ImportState::Refusing);
    assert!(actual[1].1.contains("--max-memory has room for 2"), "{}", actual[1].1);
    assert_eq!(actual[2].0, ImportState::Refusing, "its clients are refused");
    assert!(actual[2].1.contains("--max-memory has room for 2"), "{}", actual[2].1);
    assert_eq!(actual[3].0, ImportState::Rejected);
    assert!(actual[3].1.contains("--max-memory has room for 3"), "{}", actual[3].1);
}

#[test]
fn reports_and_rejections_are_sorted() {
    let desired = desired([
        import("b/web").ip("10.0.0.1").ip("::1").into(),
        import("a/web").ip("127.0.0.1").into(),
        slice("a/none", "nobody").address("127.0.0.1").into(),
    ]);
    let reports: Vec<String> = desired.imports.iter().map(|r| r.import.to_string()).collect();
    assert_eq!(reports, ["a/web", "b/web"]);
    assert_eq!(
        rejections(&desired),
        ["a/web", "b/web"]
            .map(|name| (format!("ServiceImport {name}"), RejectionReason::VipForbidden))
    );
}

/// The holder of every frontend of the desired state, by round of the rules.
fn holder(rules: &Rules) -> Vec<String> {
    rules.desired().frontends.values().map(|frontend| frontend.import.to_string()).collect()
}

#[test]
fn an_import_with_slices_goes_before_an_older_one_without() {
    let old = import("broker/web").created(1).ip("10.0.0.1").port("http", 80);
    let young = web().created(2);
    let mut store = ObjectStore::default();
    let mut rules = Rules::default();
    let mut holder_after = |event: ObjectEvent| {
        store.apply(EventBatch { events: vec![event], ..EventBatch::default() });
        rules.evaluate(&store.snapshot(), store.take_dirty(), &plain_node(), None);
        holder(&rules)
    };
    let of_old = || slice("broker/web-a", "web").into();
    let gone =
        |name: &str| ObjectEvent::Delete(ObjectRef { kind: Kind::EndpointSlice, key: key(name) });
    holder_after(ObjectEvent::Apply(young.into()));
    assert_eq!(holder_after(ObjectEvent::Apply(old.into())), ["broker/web"], "none has slices");
    assert_eq!(holder_after(ObjectEvent::Apply(east().into())), ["shop/web"], "the younger has");
    assert_eq!(holder_after(ObjectEvent::Apply(of_old())), ["broker/web"], "both have");
    assert_eq!(holder_after(gone("broker/web-a")), ["shop/web"], "the older has none again");
    assert_eq!(holder_after(gone("shop/web-east")), ["broker/web"], "none has");
}

#[test]
fn only_slices_that_change_who_serves_a_vip_of_two_need_a_full_round() {
    let first_slice = |import: ServiceImport, others: Vec<Object>, node: &NodeContext| {
        let mut store = ObjectStore::default();
        let mut rules = Rules::default();
        let objects = others.into_iter().chain([import.into()]).map(ObjectEvent::Apply).collect();
        store.apply(EventBatch { events: objects, ..EventBatch::default() });
        rules.evaluate(&store.snapshot(), store.take_dirty(), node, None);
        let slice = ObjectEvent::Apply(east().into());
        store.apply(EventBatch { events: vec![slice], ..EventBatch::default() });
        rules.needs_full_round(&store.snapshot(), store.dirty())
    };
    let inside = knowing(NodeContext::default(), |facts| {
        facts.service_ranges = Some(["10.0.0.0/24".parse().unwrap()].into());
    });
    let derived = ServiceImport { derived_service: Some("derived".to_owned()), ..web() };
    let same_vip = import("other/web").ip("10.0.0.1").port("http", 80);
    for (import, others, node, expected) in [
        (web(), vec![], plain_node(), false),
        (web().ip("10.0.0.2"), vec![], plain_node(), false),
        (derived, vec![], plain_node(), false),
        (web(), vec![same_vip.into()], plain_node(), true),
        (web(), vec![], inside.clone(), false),
        (web().ip("10.96.0.1"), vec![], inside, false),
        (web(), vec![], NodeContext::default(), false),
    ] {
        let needed = first_slice(import.clone(), others, &node);
        assert_eq!(needed, expected, "{import:?} {:?}", node.facts.service_ranges);
    }
}

#[test]
fn the_end_of_the_last_slice_hands_the_vip_back_where_a_service_can_have_it() {
    for (node, expected) in
        [(plain_node(), vec![]), (NodeContext::default(), vec![Departure::HandedBack])]
    {
        let mut store = ObjectStore::default();
        let mut rules = Rules::default();
        let objects: [Object; 2] = [web().into(), east().into()];
        let events = objects.map(ObjectEvent::Apply).into();
        store.apply(EventBatch { events, ..EventBatch::default() });
        rules.evaluate(&store.snapshot(), store.take_dirty(), &node, None);
        let slice = ObjectRef { kind: Kind::EndpointSlice, key: key("shop/web-east") };
        let events = vec![ObjectEvent::Delete(slice)];
        store.apply(EventBatch { events, ..EventBatch::default() });
        let round = rules.evaluate(&store.snapshot(), store.take_dirty(), &node, None);
        assert!(matches!(round.changes, DesiredChanges::Parts(_)), "no other import is concerned");
        let departed: Vec<_> = round.departures.into_values().collect();
        assert_eq!(departed, expected, "{:?}", node.facts.service_ranges);
    }
}

/// What changes of one import lead to: whether the round is full, and what departs.
#[test]
fn a_changed_import_concerns_itself_alone_unless_others_want_its_addresses() {
    use Departure::{Gone, HandedBack};
    let other = import("shop/api").ip("10.0.0.9").port("http", 80);
    let endpoint =
        slice("shop/api-east", "api").cluster("east").address("10.1.0.1").port("http", 80);
    let known: [Object; 3] = [web().into(), other.into(), endpoint.into()];
    let removed =
        || ObjectEvent::Delete(ObjectRef { kind: Kind::ServiceImport, key: key("shop/web") });
    let put = |import: ServiceImport| ObjectEvent::Apply(import.into());
    let at = |ip: &str| import("shop/web").ip(ip).port("http", 80);
    let headless = ServiceImport { service_type: ServiceType::Headless, ..web() };
    let small = |vips, frontends| {
        let capacity = Capacity { vips, frontends, ..plain_node().capacity };
        NodeContext { capacity, ..plain_node() }
    };
    let malformed = ObjectEvent::Malformed {
        object: ObjectRef { kind: Kind::ServiceImport, key: key("shop/web") },
        message: "not a map".to_owned(),
    };
    let new = |ip: &str| put(import("shop/new").ip(ip).port("http", 80));
    for (change, node, is_full, departed) in [
        (removed(), plain_node(), false, vec![Gone]),
        (put(web().port("tls", 443)), plain_node(), false, vec![]),
        (put(at("10.0.0.2")), plain_node(), false, vec![Gone]),
        (put(headless), plain_node(), false, vec![HandedBack]),
        (put(at("127.0.0.1")), plain_node(), false, vec![Gone]),
        (put(at("10.1.0.7")), plain_node(), true, vec![Gone]),
        (put(at("10.0.0.9")), plain_node(), true, vec![Gone]),
        (malformed, plain_node(), true, vec![HandedBack]),
        (new("10.0.0.2"), plain_node(), false, vec![]),
        (new("10.0.0.1"), plain_node(), true, vec![]),
        (new("10.0.0.2"), small(2, 9), true, vec![]),
        (new("10.0.0.2"), small(9, 2), true, vec![]),
        (removed(), small(1, 9), true, vec![]),
    ] {
        let mut store = ObjectStore::default();
        let mut rules = Rules::default();
        let events = known.clone().map(ObjectEvent::Apply).into();
        store.apply(EventBatch { events, ..EventBatch::default() });
        rules.evaluate(&store.snapshot(), store.take_dirty(), &node, None);
        let what = format!("{change:?} {:?}", node.capacity);
        store.apply(EventBatch { events: vec![change], ..EventBatch::default() });
        let needed = rules.needs_full_round(&store.snapshot(), store.dirty());
        let round = rules.evaluate(&store.snapshot(), store.take_dirty(), &node, None);
        let was_full = round.changes == DesiredChanges::Everything;
        assert_eq!((needed, was_full), (is_full, is_full), "{what}");
        assert_eq!(round.departures.into_values().collect::<Vec<_>>(), departed, "{what}");
    }
}

#[test]
fn other_tiers_concern_their_import_alone() {
    let tiered =
        |results: &str| ServiceImport { tiers: Some(Box::new(Tiers::parse(results))), ..web() };
    let mut store = ObjectStore::default();
    let mut rules = Rules::default();
    let mut round = |store: &mut ObjectStore, objects: Vec<Object>| {
        let events = objects.into_iter().map(ObjectEvent::Apply).collect();
        store.apply(EventBatch { events, ..EventBatch::default() });
        let round = rules.evaluate(&store.snapshot(), store.take_dirty(), &plain_node(), None);
        let is_partial = matches!(round.changes, DesiredChanges::Parts(_));
        (is_partial, frontends(rules.desired()), rules.desired().rejections.len())
    };
    let other = import("shop/api").ip("10.0.0.9").port("http", 80);
    let slices = [east().address("10.1.0.1"), west().address("10.2.0.1")];
    let objects = [web().into(), other.into()].into_iter().chain(slices.map(Object::from));
    let with = |backends: &str| {
        vec![format!("10.0.0.1:80/TCP ->{backends}"), "10.0.0.9:80/TCP ->".to_owned()]
    };
    let both = with(" east/10.1.0.1:8080 west/10.2.0.1:8081");
    assert_eq!(round(&mut store, objects.collect()), (false, both.clone(), 0));
    let west_first = tiered(r#"[{"clusters":["west"]}]"#);
    let west_alone = with(" west/10.2.0.1:8081");
    assert_eq!(round(&mut store, vec![west_first.into()]), (true, west_alone.clone(), 0));
    let moved = east().address("10.1.0.7").into();
    assert_eq!(round(&mut store, vec![moved]), (true, west_alone, 0), "a slice keeps the tiers");
    let (is_partial, _, rejections) = round(&mut store, vec![tiered("?").into()]);
    assert_eq!((is_partial, rejections), (true, 1));
    let (is_partial, _, rejections) = round(&mut store, vec![web().into()]);
    assert_eq!((is_partial, rejections), (true, 0));
}

#[test]
fn a_verdict_of_the_node_concerns_its_import_alone() {
    let other = import("shop/api").ip("10.0.0.2").port("http", 80);
    let east = east().address("10.1.0.1").address("10.1.0.2");
    let objects: [Object; 3] = [web().into(), other.into(), east.into()];
    let snapshot = snapshot(objects);
    let mut rules = Rules::default();
    rules.preferences.add(Some(Box::new(EjectsAll)));
    let imports = ["shop/web", "shop/api"].map(key).into();
    let all = DirtyObjects { imports, ..DirtyObjects::default() };
    rules.evaluate(&snapshot, all, &plain_node(), None);
    let dead = Ejection {
        import: key("shop/web"),
        backend: "10.1.0.1:8080".parse().unwrap(),
        cluster: "east".into(),
        state: EjectionState::Ejected,
        times: 1,
        used: false,
    };
    let node = NodeContext { ejections: std::iter::once(&dead).collect(), ..plain_node() };
    for (node, backends) in
        [(node, " east/10.1.0.2:8080"), (plain_node(), " east/10.1.0.1:8080 east/10.1.0.2:8080")]
    {
        let round = rules.evaluate(&snapshot, DirtyObjects::default(), &node, None);
        let DesiredChanges::Parts(changed) = round.changes else { panic!("a full round") };
        assert_eq!((changed.frontends.len(), changed.vips.len()), (1, 0));
        assert_eq!(frontends(rules.desired())[0], format!("10.0.0.1:80/TCP ->{backends}"));
    }
}
