//! Who serves inside of a border, who stays, and what the report says.

use super::*;
use crate::core::{
    model::{
        DesiredState, Endpoint, EventBatch, Frontend, ImportState, Object, ObjectEvent, Protocol,
        Tiers, Traffic,
        fixture::{endpoint, import, key, knowing, node, slice},
    },
    rules::{Rules, candidate::Fates, full_round, preference::Preferences},
    store::ObjectStore,
};

type Results = Option<Result<Tiers, String>>;

/// Selectors match east, then east and north.
fn matched() -> Result<Tiers, String> {
    Tiers::parse(r#"[{"clusters":["east"]},{"clusters":["east","north"]}]"#)
}

/// The objects of an import of TCP port 80 and UDP port 53.
fn store(fallback: &str, tiers: impl Into<Results>, all: &[(&str, Endpoint)]) -> ObjectStore {
    let settings = [(wish::SELECTORS_FALLBACK, fallback.into())].into();
    let web = import("shop/web").ip("10.0.0.1").port("http", 80);
    let web = web.port_of("dns", 53, Some("UDP"));
    let web = ServiceImport { tiers: tiers.into().map(Box::new), settings, ..web };
    let slices = all.iter().enumerate().map(|(index, (cluster, endpoint))| {
        let slice = slice(&format!("shop/web-{index}"), "web").cluster(cluster);
        let slice = slice.port("http", 8080).port_of("dns", Some(5353), Some("UDP"));
        Object::from(slice.endpoint(endpoint.clone()))
    });
    let events = [web.into()].into_iter().chain(slices).map(ObjectEvent::Apply).collect();
    let mut store = ObjectStore::default();
    store.apply(EventBatch { events, ..EventBatch::default() });
    store
}

fn preferences() -> Preferences {
    let mut preferences = Preferences::default();
    preferences.add((FEATURE.preference)(None));
    preferences
}

/// What the rules make of it.
fn rules(
    fallback: &str,
    tiers: impl Into<Results>,
    node: &NodeContext,
    all: &[(&str, Endpoint)],
) -> Rules {
    let mut store = store(fallback, tiers, all);
    let mut rules = Rules::default();
    rules.preferences = preferences();
    let dirty = store.take_dirty();
    rules.evaluate(&store.snapshot(), dirty, node, None);
    rules
}

fn frontend(rules: &Rules, protocol: Protocol) -> Frontend {
    let found = rules.desired().frontends.iter().find(|(id, _)| id.protocol == protocol);
    found.unwrap().1.clone()
}

/// The clusters that serve, and those whose clients stay.
fn clusters(frontend: &Frontend) -> [String; 2] {
    [&frontend.backends, &frontend.also_serving]
        .map(|list| list.iter().map(|one| &*one.cluster).collect::<Vec<_>>().join(" "))
}

#[test]
fn nobody_outside_serves_whatever_the_others_do() {
    let ready = |number: u8| endpoint(&format!("10.{number}.0.1"));
    let unready = |number| ready(number).conditions(false, true, false);
    let drained = |cluster: &str| {
        knowing(node(), |facts| {
            let value = format!(r#"{{"{cluster}":{{"drain":true}}}}"#);
            facts.traffic = Traffic::parse(&value).unwrap();
        })
    };
    for (node, endpoints, expected) in [
        (node(), vec![("east", ready(1)), ("west", ready(2)), ("north", ready(3))], "east"),
        (node(), vec![("east", unready(1)), ("west", ready(2)), ("north", ready(3))], "north"),
        (node(), vec![("east", unready(1)), ("west", ready(2))], ""),
        (node(), vec![("east", ready(1).draining()), ("west", ready(2))], "east"),
        (node(), vec![("west", ready(2)), ("", ready(3))], ""),
        (drained("east"), vec![("east", ready(1)), ("west", ready(2))], "east"),
        (drained("east"), vec![("east", ready(1)), ("north", ready(3))], "north"),
    ] {
        for fallback in ["none", "drain", "unheard-of"] {
            let rules = rules(fallback, matched(), &node, &endpoints);
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let [serving, _] = clusters(&frontend(&rules, protocol));
                assert_eq!(serving, expected, "{fallback} {endpoints:?}");
            }
        }
        let all = rules("all", matched(), &node, &endpoints);
        let [serving, _] = clusters(&frontend(&all, Protocol::Tcp));
        assert!(
            !serving.is_empty() || endpoints.iter().all(|(one, _)| one.is_empty()),
            "{endpoints:?}"
        );
    }
}

#[test]
fn without_results_everybody_is_outside() {
    let endpoints = [("east", endpoint("10.1.0.1"))];
    let preferring = knowing(node(), |facts| {
        facts.traffic = Traffic::parse(r#"{"east":{"preferred":true}}"#).unwrap();
    });
    for tiers in [None, Some(Err("no JSON".to_owned())), Some(Ok(Tiers::default()))] {
        for node in [node(), preferring.clone()] {
            let rules = rules("none", tiers.clone(), &node, &endpoints);
            assert_eq!(clusters(&frontend(&rules, Protocol::Tcp)), ["", ""], "{tiers:?}");
        }
    }
}

#[test]
fn clients_of_what_is_outside_leave_unless_the_owner_drains() {
    let endpoints = [
        ("east", endpoint("10.1.0.1")),
        ("west", endpoint("10.2.0.1")),
        ("north", endpoint("10.3.0.1").conditions(false, false, false)),
    ];
    let west = "10.2.0.1:8080".parse().unwrap();
    for (fallback, of_tcp, of_udp, is_bounded) in
        [("none", "north", "", true), ("drain", "", "west", false), ("all", "", "west", false)]
    {
        let rules = rules(fallback, matched(), &node(), &endpoints);
        let [tcp, udp] = [Protocol::Tcp, Protocol::Udp].map(|one| frontend(&rules, one));
        assert_eq!(
            [&tcp, &udp].map(|one| clusters(one)[1].clone()),
            [of_tcp, of_udp],
            "{fallback}"
        );
        assert_eq!([tcp.is_bounded, udp.is_bounded], [is_bounded; 2]);
        assert_eq!(rules.totals().bounded, 2 * usize::from(is_bounded));
    }
    let rules = rules("none", matched(), &node(), &endpoints[1..2]);
    let id = *rules.desired().frontends.keys().next().unwrap();
    assert!(!rules.desired().keeps(&id, west), "nothing serves, and no client stays");
}

#[test]
fn the_report_says_who_is_outside() {
    let endpoints = [("west", endpoint("10.2.0.1")), ("south", endpoint("10.4.0.1"))];
    let closed = rules("none", matched(), &node(), &endpoints);
    let report = closed.desired().report(&key("shop/web")).unwrap();
    assert_eq!(report.state, ImportState::Refusing);
    let expected = "no usable endpoint inside the border for 10.0.0.1:53/UDP \
                    (ready outside: 1 of south, 1 of west)";
    assert!(
        report.message == expected || report.message == expected.replace("53/UDP", "80/TCP"),
        "{report:?}"
    );
    let outside: Vec<Outside> = report.sections.get(SECTION).unwrap();
    assert!(outside.iter().all(|one| !one.is_served && one.ready.len() == 2), "{outside:?}");
    let unknown = rules("unheard-of", matched(), &node(), &endpoints);
    let problems = &unknown.desired().rejections;
    assert!(
        problems.iter().any(|one| one.reason == RejectionReason::BorderInvalid),
        "{problems:?}"
    );
}

#[test]
fn explain_tells_who_is_outside() {
    let endpoints = [("east", endpoint("10.1.0.1")), ("west", endpoint("10.2.0.1"))];
    let snapshot = store("none", matched(), &endpoints).snapshot();
    let (web, mut preferences) = (key("shop/web"), preferences());
    let state = DesiredState::default();
    let all = full_round::evaluate(&snapshot, &node(), &state, &mut preferences);
    let (claim, import) = (&all.claims[&web], snapshot.import(&web).unwrap());
    let mut fates = Fates(vec![]);
    let (vips, node) = (&all.vips, &node());
    claim.select_backends(import, &snapshot, vips, node, &mut preferences, &mut fates);
    assert_eq!(fates.0, [Fate::OutsideBorder; 2], "once for each port");
}
