//! Which source clusters an import prefers.

use super::*;

const OWN_THEN_REGION: &str = r#"[
    {"propertySelector":{"matchProperties":{"cluster.clusterset.k8s.io":"@SameAsImporter@"}}},
    {"propertySelector":{"matchProperties":{"region.example":"@SameAsImporter@"}}}
]"#;

fn selecting(selectors: &str) -> ServiceSpec {
    ServiceSpec { annotations: map(&[(well_known::CLUSTER_SELECTORS, selectors)]), ..spec() }
}

/// Three clusters, of which the first two are of one region.
fn three(spec: &ServiceSpec) -> World {
    let exports = ["c1", "c2", "c3"]
        .map(|id| (export(id, 1, spec.clone()), vec![slice("web-a", &["10.1.0.1"])]));
    let regions = [("c1", "eu"), ("c2", "eu"), ("c3", "us")]
        .map(|(id, region)| (cluster(id), Arc::new(map(&[("region.example", region)]))));
    World { properties: regions.into(), ..World::new(exports.into()) }
}

/// The tiers of the import, and the reason if they cannot be resolved.
fn preferred(world: &World, importer: &Importer, there: &Actual) -> (String, String) {
    let wanted = world.wanted_by(importer, there);
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
    let there = actual(&good.wanted());
    let c1 = importer("c1");
    let kept = |reason: &str| ("1 c1; 2 c1, c2".to_owned(), reason.to_owned());
    for bad in ["near", r#"[{"propertySelector":{}}]"#] {
        let world = three(&selecting(bad));
        assert_eq!(preferred(&world, &c1, &there), kept("InvalidClusterSelector"), "{bad}");
        let (tiers, _) = preferred(&world, &c1, &Actual::default());
        assert_eq!(tiers, "", "there is nothing to keep");
    }
    let mut unknown = three(&selecting(OWN_THEN_REGION));
    unknown.properties.remove(&cluster("c2"));
    assert_eq!(preferred(&unknown, &c1, &there), kept("PropertiesUnknown"));
    let mut unread = unknown.incomplete(&["c2"]);
    unread.exports.remove(1);
    assert_eq!(preferred(&unread, &c1, &there), kept(""), "the peer was not read yet");
    assert_eq!(preferred(&three(&spec()), &c1, &there), resolved(""), "the owner wants none");
}
