//! Which source clusters an import prefers.

use mcs_kube::ResourceEvent;
use serde_json::json;

use super::*;
use crate::core::{
    clusterset::{
        Importer, NamespaceRules, Publication, ServiceName, ServiceSpec, Stamp, export_conditions,
        fixture::{cluster, export, importer, map, slice, spec},
        is_exportable,
        resolve::tests::{World, actual, present},
    },
    control::{
        MailboxId, Update,
        state::tests::{listed, object, property, state},
    },
    feature::Features,
    mailbox::{MailboxEvent, MailboxWrite},
    objects::{complete_lease, exported_service, publisher_lease},
    own_cluster::OwnEvent,
    plan::Write,
};

const OWN_THEN_REGION: &str = r#"[
    {"propertySelector":{"matchProperties":{"cluster.clusterset.k8s.io":"@SameAsImporter@"}}},
    {"propertySelector":{"matchProperties":{"region.example":"@SameAsImporter@"}}}
]"#;

fn selecting(selectors: &str) -> ServiceSpec {
    ServiceSpec { annotations: map(&[(well_known::CLUSTER_SELECTORS, selectors)]), ..spec() }
}

/// Three clusters, of which the first two are of one region.
fn three(spec: &ServiceSpec) -> (World, Known) {
    let exports = ["c1", "c2", "c3"]
        .map(|id| (export(id, 1, spec.clone()), vec![slice("web-a", &["10.1.0.1"])]));
    let regions = [("c1", "eu"), ("c2", "eu"), ("c3", "us")]
        .map(|(id, region)| (cluster(id), Arc::new(map(&[("region.example", region)]))));
    (World::new(exports.into()), regions.into())
}

/// The tiers of the import, and the reason if they cannot be resolved.
fn preferred(
    (world, known): &(World, Known),
    importer: &Importer,
    there: &Actual,
) -> (String, String) {
    let mut wanted = world.wanted_by(importer, there);
    add_tiers(&mut wanted, there, &importer.cluster, &|| known.clone(), None);
    let (import, status) = present(&wanted);
    assert_eq!(import.tiers, status.tiers);
    let unresolved = status.condition(ConditionType::SelectorsResolved);
    let tiers = import.tiers.as_ref().map(ToString::to_string).unwrap_or_default();
    (tiers, unresolved.map(|one| one.reason.clone()).unwrap_or_default())
}

fn resolved(tiers: &str) -> (String, String) {
    (tiers.to_owned(), String::new())
}

#[test]
fn each_cluster_resolves_the_selectors_for_itself() {
    let world = three(&selecting(OWN_THEN_REGION));
    let of = |id| preferred(&world, &importer(id), &Actual::default());
    assert_eq!(of("c1"), resolved("1 c1; 2 c1, c2"));
    assert_eq!(of("c3"), resolved("1 c3; 2 c3"));
    let plain = three(&spec());
    assert_eq!(preferred(&plain, &importer("c1"), &Actual::default()), resolved(""));
    let headless =
        ServiceSpec { service_type: ServiceType::Headless, ..selecting(OWN_THEN_REGION) };
    assert_eq!(preferred(&three(&headless), &importer("c1"), &Actual::default()), resolved(""));
}

#[test]
fn what_cannot_be_resolved_changes_nothing() {
    let good = three(&selecting(OWN_THEN_REGION));
    let c1 = importer("c1");
    let mut wanted = good.0.wanted_by(&c1, &Actual::default());
    add_tiers(&mut wanted, &Actual::default(), &c1.cluster, &|| good.1.clone(), None);
    let there = actual(&wanted);
    let kept = |reason: &str| ("1 c1; 2 c1, c2".to_owned(), reason.to_owned());
    for bad in ["near", r#"[{"propertySelector":{}}]"#] {
        let world = three(&selecting(bad));
        assert_eq!(preferred(&world, &c1, &there), kept("InvalidClusterSelector"), "{bad}");
        let (tiers, _) = preferred(&world, &c1, &Actual::default());
        assert_eq!(tiers, "", "there is nothing to keep");
    }
    let mut unknown = three(&selecting(OWN_THEN_REGION));
    unknown.1.remove(&cluster("c2"));
    assert_eq!(preferred(&unknown, &c1, &there), kept("PropertiesUnknown"));
    let mut unread = (unknown.0.incomplete(&["c2"]), unknown.1);
    unread.0.exports.remove(1);
    assert_eq!(preferred(&unread, &c1, &there), kept(""), "the peer was not read yet");
    assert_eq!(preferred(&three(&spec()), &c1, &there), resolved(""), "the owner wants none");
}

#[test]
fn selectors_that_are_refused_keep_nothing_from_being_exported() {
    let with = |selectors: &str, service_type| {
        let annotations = map(&[(well_known::CLUSTER_SELECTORS, selectors)]);
        export("c1", 1, ServiceSpec { service_type, annotations, ..spec() })
    };
    let good = r#"[{"propertySelector":{"matchProperties":{"region.example":"eu"}}}]"#;
    let rules = NamespaceRules::default();
    for (export, valid) in [
        (with(good, ServiceType::ClusterSetIp), "Valid=True/Valid"),
        (with("[{}]", ServiceType::ClusterSetIp), "Valid=False/InvalidClusterSelector"),
        (with(good, ServiceType::Headless), "Valid=False/InvalidServiceType"),
    ] {
        let mut conditions = export_conditions(&export, &rules, &Publication::Published, &[]);
        judge(&export, &mut conditions);
        let told = conditions
            .iter()
            .map(|one| format!("{}={}/{}", one.condition_type, one.status, one.reason));
        let expected = [valid, "Ready=True/Exported", "Conflict=False/NoConflicts"];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert!(is_exportable(&export, &rules));
    }
    let annotations =
        map(&[(mcs_kube::wish::SPILL, "70"), (well_known::CLUSTER_SELECTORS, "[{}]")]);
    let export = export("c1", 1, ServiceSpec { annotations, ..spec() });
    let mut conditions = export_conditions(&export, &rules, &Publication::Published, &[]);
    judge(&export, &mut conditions);
    let Condition { reason, message, .. } = &conditions[0];
    assert_eq!(reason, "InvalidClusterSelector");
    assert!(message.contains("propertySelector") && message.contains("; "), "{message}");
}

/// West says this of its ClusterProperties.
fn says(state: &mut State, sequence: u64, properties: &str) {
    let lease = complete_lease("west", 1, sequence);
    let mut lease = publisher_lease("mcs-mailbox", &lease, jiff::Timestamp::UNIX_EPOCH);
    lease["metadata"]["annotations"][well_known::PROPERTIES] = json!(properties);
    mailbox(state, MailboxEvent::Lease(ResourceEvent::Changed(object(lease))));
}

fn mailbox(state: &mut State, event: MailboxEvent) {
    state.update(Update::Mailbox(MailboxId::Peer("west".into(), 1), event));
}

#[test]
fn what_peers_say_of_themselves_decides() {
    let (mut state, mut features) = (state(), Features::of(Chooser::default()));
    let name = ServiceName::new("shop", "web").unwrap();
    let selectors = json!([{"propertySelector": {"matchProperties": {"region.example": "eu"}}}]);
    let metadata = json!({"namespace": "shop", "name": "web"});
    // The field comes before the annotation.
    let export = object(json!({"metadata": metadata, "spec": {
        "clusterSelectors": selectors,
        "exportedAnnotations": {well_known::CLUSTER_SELECTORS: "[]"},
    }}));
    let service = object(json!({"metadata": metadata, "spec": {
        "clusterIP": "10.96.0.1", "ports": [{"port": 80}],
    }}));
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    let mut tiers = |state: &mut State| {
        let writes = features.plan(&name, state);
        let import = writes.into_iter().find_map(|write| match write {
            Write::ApplyImport(import) => Some(import),
            _ => None,
        });
        import.and_then(|import| import.tiers).map(|tiers| tiers.to_string())
    };
    assert_eq!(tiers(&mut state), None, "the properties of this cluster are not known yet");
    state.update(Update::Own(OwnEvent::Properties(listed())));
    assert_eq!(tiers(&mut state).as_deref(), Some("1 none"));
    property(&mut state, "region.example", "eu");
    property(&mut state, "weight.clusterset.mcs-agent.io", "5");
    assert_eq!(tiers(&mut state).as_deref(), Some("1 east"));
    let published: BTreeMap<_, _> = [("region.example".into(), "eu".into())].into();
    assert_eq!(*state.statement().properties, published, "what is about traffic here stays here");

    let peer = object(json!({"metadata": {"name": "west"}, "spec": {
        "clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ["10.2.0.0/16"],
    }}));
    state.update(Update::Peers(ResourceEvent::Changed(peer)));
    let writes = state.plan_and_note_publication(&name);
    let [MailboxWrite::ApplyService(exported)] = &*writes else { panic!("{writes:?}") };
    let mut of_west = Clone::clone(&**exported);
    of_west.export.cluster = "west".parse().unwrap();
    let stamp = Stamp { mailbox: 0, epoch: 1, sequence: 1 };
    let of_west = exported_service("mcs-mailbox", &of_west, stamp, false, None).unwrap();
    let services =
        ResourceEvent::Listed { version: "v1".to_owned(), objects: vec![object(of_west)] };
    mailbox(&mut state, MailboxEvent::Services(services));
    mailbox(&mut state, MailboxEvent::Slices(listed()));
    mailbox(&mut state, MailboxEvent::Lease(listed()));
    for (sequence, properties, expected) in [
        (2, "{}", "1 east"),
        (3, r#"{"region.example":"eu"}"#, "1 east, west"),
        (4, r#"{"region.example":"us"}"#, "1 east"),
        (5, "[", "1 east"),
        (6, r#"{"region.example":"eu"}"#, "1 east, west"),
    ] {
        while let Some(name) = state.imports.next() {
            state.imports.end(&name, false, Instant::now());
        }
        says(&mut state, sequence, properties);
        let is_queued = state.imports.names().any(|queued| *queued == name);
        assert_eq!(is_queued, properties != "[", "{sequence}");
        assert_eq!(tiers(&mut state).as_deref(), Some(expected), "{sequence}");
    }
}

/// The tiers of an import with a border, and the condition `EndpointsReady`.
fn bordered(
    (world, known): &(World, Known),
    importer: &Importer,
    there: &Actual,
) -> (String, String) {
    let mut wanted = world.wanted_by(importer, there);
    add_tiers(&mut wanted, there, &importer.cluster, &|| known.clone(), None);
    let (import, status) = present(&wanted);
    let counted = status.condition(ConditionType::EndpointsReady).unwrap();
    let tiers = import.tiers.as_ref().map(ToString::to_string).unwrap_or_default();
    (tiers, format!("{}/{}", counted.status, counted.reason))
}

fn with_border(selectors: &str) -> ServiceSpec {
    let annotations = map(&[
        (well_known::CLUSTER_SELECTORS, selectors),
        (mcs_kube::wish::SELECTORS_FALLBACK, "none"),
    ]);
    ServiceSpec { annotations, ..spec() }
}

#[test]
fn a_cluster_of_unknown_properties_is_outside_of_a_border_unless_it_was_inside() {
    let of_eu = r#"[{"propertySelector":{"matchProperties":{"region.example":"eu"}}}]"#;
    let good = three(&with_border(of_eu));
    let c3 = importer("c3");
    assert_eq!(bordered(&good, &c3, &Actual::default()).0, "1 c1, c2");
    let mut unknown = three(&with_border(of_eu));
    unknown.1.remove(&cluster("c2"));
    assert_eq!(bordered(&unknown, &c3, &Actual::default()).0, "1 c1", "nobody knows its region");
    let mut wanted = good.0.wanted_by(&c3, &Actual::default());
    add_tiers(&mut wanted, &Actual::default(), &c3.cluster, &|| good.1.clone(), None);
    let there = actual(&wanted);
    assert_eq!(bordered(&unknown, &c3, &there).0, "1 c1, c2", "a controller that starts");
    let of_us = r#"[{"propertySelector":{"matchProperties":{"region.example":"us"}}}]"#;
    let mut other = three(&with_border(of_us));
    other.1.remove(&cluster("c2"));
    assert_eq!(bordered(&other, &c3, &there).0, "1 c3", "other selectors match others");
}

#[test]
fn an_import_says_that_nobody_inside_of_its_border_is_ready() {
    let region = |value: &str| {
        format!(r#"[{{"propertySelector":{{"matchProperties":{{"region.example":"{value}"}}}}}}]"#)
    };
    let c1 = importer("c1");
    for (selectors, fallback, expected) in [
        (region("eu"), "none", "True/Ready"),
        (region("mars"), "none", "False/NoneInsideBorder"),
        (region("mars"), "drain", "False/NoneInsideBorder"),
        (region("mars"), "all", "True/Ready"),
    ] {
        let mut spec = with_border(&selectors);
        let annotations = [
            (well_known::CLUSTER_SELECTORS, &*selectors),
            (mcs_kube::wish::SELECTORS_FALLBACK, fallback),
        ];
        spec.annotations = map(&annotations);
        let world = three(&spec);
        assert_eq!(bordered(&world, &c1, &Actual::default()).1, expected, "{selectors} {fallback}");
    }
}

#[test]
fn the_stricter_border_of_owner_and_operator_counts() {
    use mcs_kube::wish::SELECTORS_FALLBACK;
    let of_eu = r#"[{"propertySelector":{"matchProperties":{"region.example":"eu"}}}]"#;
    let c1 = importer("c1");
    let none = Actual::default();
    let told = |spec: &ServiceSpec, operator: &str| {
        let (world, known) = three(spec);
        let mut wanted = world.wanted_by(&c1, &none);
        let of_operator = border::wanted((!operator.is_empty()).then_some(operator));
        add_tiers(&mut wanted, &none, &c1.cluster, &|| known.clone(), of_operator);
        let annotations = &present(&wanted).0.spec.annotations;
        annotations.get(SELECTORS_FALLBACK).map(ToString::to_string).unwrap_or_default()
    };
    for (owner, operator, expected) in [
        ("", "", ""),
        ("", "drain", "drain"),
        ("", "none", "none"),
        ("", "nobody", "none"),
        ("", "all", ""),
        ("all", "none", "none"),
        ("drain", "none", "none"),
        ("none", "drain", "none"),
        ("none", "all", "none"),
        ("nobody", "none", "nobody"),
    ] {
        let mut annotations = map(&[(well_known::CLUSTER_SELECTORS, of_eu)]);
        if !owner.is_empty() {
            annotations.insert(SELECTORS_FALLBACK.into(), owner.into());
        }
        let spec = ServiceSpec { annotations, ..spec() };
        assert_eq!(told(&spec, operator), expected, "owner {owner:?}, operator {operator:?}");
    }
    for without in ["", "[]"] {
        let annotations = match without {
            "" => map(&[]),
            empty => map(&[(well_known::CLUSTER_SELECTORS, empty)]),
        };
        let spec = ServiceSpec { annotations, ..spec() };
        assert_eq!(told(&spec, "none"), "", "a service without selectors has no border");
    }
}
