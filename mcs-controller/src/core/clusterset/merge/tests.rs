//! The merged exports of one service.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::core::clusterset::{
    InternalTrafficPolicy, IpFamily, Protocol, ServicePort, ServiceType, SessionAffinity,
    fixture::{cluster, export, map, port, spec},
};

fn merged(specs: &[ServiceSpec]) -> Merged {
    let exports: Vec<_> = specs
        .iter()
        .zip(["c1", "c2", "c3"])
        .zip(1..)
        .map(|((spec, id), created)| export(id, created, spec.clone()))
        .collect();
    merge(&exports, None, &[]).expect("a merge")
}

fn reasons(merged: &Merged) -> Vec<Reason> {
    merged.conflicts.iter().map(|conflict| conflict.reason).collect()
}

fn with(change: impl FnOnce(&mut ServiceSpec)) -> ServiceSpec {
    let mut spec = spec();
    change(&mut spec);
    spec
}

fn ports_of(merged: &Merged, id: &str) -> Vec<String> {
    merged.contributions[&cluster(id)].ports.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_is_merged_without_a_service() {
    assert_eq!(merge([], None, &[]), None);
    let mut missing = export("c1", 1, spec());
    missing.source = crate::core::clusterset::ExportSource::Missing;
    assert_eq!(merge([&missing], None, &[]), None);
}

#[test]
fn equal_exports_have_no_conflict() {
    let all = merged(&[spec(), spec()]);
    assert_eq!((all.conflicts, all.spec), (vec![], spec()));
}

#[test]
fn the_oldest_export_decides_and_the_cluster_id_breaks_ties() {
    let local = with(|spec| spec.internal_traffic_policy = InternalTrafficPolicy::Local);
    for (created, policy) in [
        ([1, 2], InternalTrafficPolicy::Cluster),
        ([2, 1], InternalTrafficPolicy::Local),
        ([1, 1], InternalTrafficPolicy::Cluster),
    ] {
        let exports = [export("c2", created[1], local.clone()), export("c1", created[0], spec())];
        let all = merge(&exports, None, &[]).expect("a merge");
        assert_eq!(all.spec.internal_traffic_policy, policy, "{created:?}");
    }
}

#[test]
fn every_property_has_its_reason() {
    let client_ip = |seconds| {
        with(|spec| spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: seconds })
    };
    for (one, other, expected) in [
        (spec(), with(|s| s.service_type = ServiceType::Headless), Reason::TypeConflict),
        (spec(), client_ip(10), Reason::SessionAffinityConflict),
        (client_ip(10), client_ip(11), Reason::SessionAffinityConfigConflict),
        (
            spec(),
            with(|s| s.internal_traffic_policy = InternalTrafficPolicy::Local),
            Reason::InternalTrafficPolicyConflict,
        ),
        (
            spec(),
            with(|s| s.traffic_distribution = Some("PreferSameNode".into())),
            Reason::TrafficDistributionConflict,
        ),
        (spec(), with(|s| s.labels = map(&[("a", "1")])), Reason::LabelsConflict),
        (spec(), with(|s| s.annotations = map(&[("a", "1")])), Reason::AnnotationsConflict),
        (spec(), with(|s| s.annotations = selectors("[]")), Reason::ClusterSelectorsConflict),
        (spec(), with(|s| s.ip_families = vec![IpFamily::V6]), Reason::IPFamilyConflict),
        (spec(), with(|s| s.ports = vec![]), Reason::PortConflict),
    ] {
        let all = merged(&[one.clone(), other]);
        assert_eq!(reasons(&all), [expected]);
        assert!(all.conflicts[0].disagree.keys().eq([&cluster("c2")]), "{expected}");
        assert_eq!(all.spec, one, "{expected}: the oldest export decides");
    }
}

#[test]
fn all_conflicts_are_told() {
    let other = with(|spec| {
        spec.service_type = ServiceType::Headless;
        spec.labels = map(&[("a", "1")]);
        spec.ports = vec![port("http", 81)];
    });
    let all = merged(&[spec(), other, spec()]);
    assert_eq!(reasons(&all), [Reason::PortConflict, Reason::TypeConflict, Reason::LabelsConflict]);
    assert_eq!(
        all.conflicts[0].to_string(),
        "ports: 1 of 3 clusters disagree (c2 has http 81/TCP); cluster c1 has the oldest export, so the clusterset uses \
         http 80/TCP"
    );
}

#[test]
fn the_former_name_of_a_distribution_is_no_conflict() {
    let distribution = |name: &str| with(|spec| spec.traffic_distribution = Some(name.into()));
    let all = merged(&[distribution("PreferClose"), distribution("PreferSameZone")]);
    assert_eq!(all.conflicts, vec![]);
    assert_eq!(all.spec.traffic_distribution.as_deref(), Some("PreferClose"));
}

#[test]
fn ports_are_united_and_a_rival_of_an_older_port_is_dropped() {
    let sctp = ServicePort { protocol: Protocol::Sctp, ..port("sctp", 80) };
    for (name, other, union, theirs) in [
        (
            "another port",
            vec![port("http", 80), port("admin", 81)],
            vec!["http", "admin"],
            vec!["admin", "http"],
        ),
        ("one name, two numbers", vec![port("http", 81)], vec!["http"], vec![]),
        ("one number, two names", vec![port("web", 80)], vec!["http"], vec![]),
        ("another protocol", vec![sctp.clone()], vec!["http", "sctp"], vec!["sctp"]),
    ] {
        let all = merged(&[spec(), with(|spec| spec.ports = other)]);
        let names: Vec<_> = all.spec.ports.iter().map(|port| &*port.name).collect();
        assert_eq!(names, union, "{name}");
        assert_eq!(ports_of(&all, "c2"), theirs, "{name}");
        assert_eq!(ports_of(&all, "c1"), ["http"], "{name}");
        assert_eq!(reasons(&all), [Reason::PortConflict], "{name}");
    }
}

#[test]
fn a_conflict_says_what_it_costs() {
    let told = |specs: &[ServiceSpec]| {
        let all = merged(specs);
        let losses = all.conflicts.into_iter().flat_map(|conflict| conflict.losses);
        losses.map(|loss| loss.to_string()).collect::<Vec<_>>()
    };
    let ports = |ports: &[(&str, u16)]| {
        with(|spec| spec.ports = ports.iter().map(|(name, number)| port(name, *number)).collect())
    };
    for (other, expected) in [
        (ports(&[("web", 80)]), vec!["no endpoint of c2 is used: port http is named web there"]),
        (ports(&[("", 80)]), vec!["no endpoint of c2 is used: port http has no name there"]),
        (ports(&[("http", 81)]), vec!["no endpoint of c2 is used: port http is 81/TCP there"]),
        (
            ports(&[("http", 81), ("admin", 82)]),
            vec!["no endpoint of c2 is used for port http: port http is 81/TCP there"],
        ),
        (ports(&[("http", 80), ("admin", 82)]), vec![]),
        (ports(&[]), vec![]),
        (
            with(|spec| spec.ip_families = vec![IpFamily::V6]),
            vec!["no endpoint of c2 is used: the service has IPv6 there"],
        ),
        (with(|spec| spec.ip_families = vec![IpFamily::V6, IpFamily::V4]), vec![]),
        (with(|spec| spec.service_type = ServiceType::Headless), vec![]),
    ] {
        assert_eq!(told(&[spec(), other.clone()]), expected, "{other:?}");
    }
    let two = [ports(&[("a", 1), ("b", 2)]), ports(&[("x", 1), ("y", 2)])];
    let expected = "no endpoint of c2 is used: port a is named x there, port b is named y there";
    assert_eq!(told(&two), [expected]);
    let mut loss = merged(&two).conflicts.remove(0).losses.remove(0);
    for (endpoints, expected) in [(1, "1 endpoint of c2 is not"), (2, "2 endpoints of c2 are not")]
    {
        loss.endpoints = endpoints;
        assert!(loss.to_string().starts_with(expected), "{loss}");
    }
}

#[test]
fn another_application_protocol_is_a_conflict_but_the_port_is_the_same() {
    let mut http2 = port("http", 80);
    http2.app_protocol = Some("kubernetes.io/h2c".into());
    let all = merged(&[spec(), with(|spec| spec.ports = vec![http2])]);
    assert_eq!(all.spec.ports, [port("http", 80)]);
    assert_eq!(ports_of(&all, "c2"), ["http"]);
    assert_eq!(reasons(&all), [Reason::PortConflict]);
}

#[test]
fn families_are_those_of_the_oldest_export() {
    use IpFamily::{V4, V6};
    for (families, expected, disagree, left_out) in [
        (vec![vec![V6, V4], vec![V4, V6]], vec![V6, V4], vec![], None),
        (vec![vec![V4, V6], vec![V6]], vec![V4, V6], vec!["c2"], None),
        (vec![vec![V4], vec![V6], vec![V4, V6]], vec![V4], vec!["c2"], Some("c2")),
        (vec![vec![V4, V4], vec![]], vec![V4], vec![], None),
    ] {
        let of = |families: Vec<_>| with(|spec| spec.ip_families = families);
        let all = merged(&families.clone().into_iter().map(of).collect::<Vec<_>>());
        assert_eq!(all.spec.ip_families, expected, "{families:?}");
        let told: Vec<_> =
            all.conflicts.iter().flat_map(|one| one.disagree.keys().cloned()).collect();
        assert_eq!(told, disagree.iter().map(|id| cluster(id)).collect::<Vec<_>>(), "{families:?}");
        for (id, _) in ["c1", "c2", "c3"].into_iter().zip(&families) {
            let contributes = all.contributions.contains_key(&cluster(id));
            assert_eq!(contributes, left_out != Some(id), "{families:?}: {id}");
        }
    }
}

#[test]
fn an_import_keeps_its_families_whoever_comes() {
    use IpFamily::{V4, V6};
    let of = |families: &[IpFamily]| with(|spec| spec.ip_families = families.to_vec());
    for (older, younger, living, expected) in [
        (vec![V4], vec![V4, V6], vec![V4, V6], vec![V4, V6]),
        (vec![V4], vec![V6], vec![V6], vec![V4, V6]),
        (vec![V4], vec![V4], vec![V4, V6], vec![V4]),
        (vec![V4, V6], vec![V4], vec![V4], vec![V4, V6]),
    ] {
        let exports = [export("c1", 1, of(&older)), export("c2", 2, of(&younger))];
        let all = merge(&exports, None, &living).expect("a merge");
        assert_eq!(all.spec.ip_families, expected, "{older:?} {younger:?} {living:?}");
        assert_eq!(all.contributions.len(), 2, "each has a family of the import");
        let again = merge(&exports, None, &expected).expect("a merge");
        assert_eq!(again, all, "it is so for good");
    }
    let exports = [export("c1", 1, of(&[V4])), export("c2", 2, of(&[V4, V6]))];
    let all = merge(&exports, None, &[V4, V6]).expect("a merge");
    assert_eq!(
        all.conflicts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "ipFamilies: 1 of 2 clusters disagree (c1 has IPv4); the ServiceImport keeps what it has, so the \
          clusterset uses IPv4, IPv6"
        ]
    );
}

#[test]
fn an_export_cannot_take_an_import_from_its_controller() {
    let own = |key: &str| map(&[(key, "x"), ("team", "shop")]);
    let all = merged(&[with(|spec| {
        spec.labels = own("app.kubernetes.io/managed-by");
        spec.annotations = own("multicluster.kubernetes.io/derived-service");
    })]);
    assert_eq!(all.spec.labels, map(&[("team", "shop")]));
    assert_eq!(all.spec.annotations, map(&[("team", "shop")]));
}

#[test]
fn a_record_decides_as_the_oldest_export_does() {
    let record = with(|spec| spec.ports = vec![port("http", 80), port("admin", 81)]);
    let exports = [export("c2", 1, with(|spec| spec.ports = vec![port("http", 82)]))];
    let all = merge(&exports, Some(&record), &[]).expect("a merge");
    assert_eq!(all.spec, record);
    assert_eq!(ports_of(&all, "c2"), Vec::<String>::new(), "82 must not serve clients of 80");
    assert_eq!(all.conflicts[0].decided_by, None);
    let equal = [export("c2", 1, spec())];
    let all = merge(&equal, Some(&record), &[]).expect("a merge");
    assert_eq!(all.conflicts, vec![], "the record has the ports of others too");
}

pub(crate) fn any_spec() -> impl Strategy<Value = ServiceSpec> {
    use IpFamily::{V4, V6};
    let number = prop::sample::select(vec![80_u16, 81, 82]);
    let name = prop::sample::select(vec!["http", "admin", ""]);
    let ports = prop::collection::vec((name, number), 0..3);
    let families = prop::sample::select(vec![vec![V4], vec![V6], vec![V4, V6], vec![V6, V4]]);
    (ports, families, any::<[bool; 3]>()).prop_map(|(ports, families, [headless, local, label])| {
        with(|spec| {
            let mut names = BTreeSet::new();
            spec.ports = ports.into_iter().map(|(name, number)| port(name, number)).collect();
            spec.ports.retain(|port| names.insert((port.name.clone(), port.port)));
            spec.ip_families = families;
            if headless {
                spec.service_type = ServiceType::Headless;
            }
            if local {
                spec.internal_traffic_policy = InternalTrafficPolicy::Local;
            }
            if label {
                spec.labels = map(&[("team", "shop")]);
            }
        })
    })
}

fn selectors(text: &str) -> BTreeMap<Arc<str>, Arc<str>> {
    map(&[(well_known::CLUSTER_SELECTORS, text)])
}

#[test]
fn selectors_that_say_the_same_agree() {
    let of = |text: &str| with(|spec| spec.annotations = selectors(text));
    let one = r#"[{"propertySelector":{"matchProperties":{"a":"b"}}}]"#;
    let spaced = r#"[ {"propertySelector": {"matchProperties": {"a": "b"}}} ]"#;
    assert_eq!(merged(&[of(one), of(spaced)]).conflicts, []);
    let conflicts = merged(&[of(one), of("near")]).conflicts;
    let told = conflicts[0].to_string();
    assert!(told.contains("c2 has near") && told.ends_with(&format!("uses {one}")), "{told}");
}

fn any_exports() -> impl Strategy<Value = Vec<Export>> {
    prop::collection::vec((any_spec(), 0..3_i64), 1..5).prop_map(|specs| {
        let exports = specs.into_iter().zip(["c1", "c2", "c3", "c4"]);
        exports.map(|((spec, created), id)| export(id, created, spec)).collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_exports_does_not_matter(
        (exports, shuffled) in any_exports()
            .prop_flat_map(|exports| (Just(exports.clone()), Just(exports).prop_shuffle()))
    ) {
        prop_assert_eq!(merge(&exports, None, &[]), merge(&shuffled, None, &[]));
    }

    #[test]
    fn ports_are_unique_and_each_has_a_cluster(exports in any_exports()) {
        let all = merge(&exports, None, &[]).expect("a merge");
        let ports = &all.spec.ports;
        let names: BTreeSet<_> = ports.iter().map(|port| &port.name).collect();
        let numbers: BTreeSet<_> = ports.iter().map(|port| (port.protocol, port.port)).collect();
        prop_assert_eq!((names.len(), numbers.len()), (ports.len(), ports.len()));
        for port in ports {
            prop_assert!(all.contributions.values().any(|one| one.ports.contains(&port.name)));
        }
    }

    #[test]
    fn merging_again_with_the_result_as_record_changes_nothing(exports in any_exports()) {
        let all = merge(&exports, None, &[]).expect("a merge");
        let again = merge(&exports, Some(&all.spec), &[]).expect("a merge");
        prop_assert_eq!(again.spec, all.spec);
        prop_assert_eq!(again.contributions, all.contributions);
    }
}

#[test]
fn labels_that_no_api_server_takes_are_left_out() {
    let spec = with(|spec| {
        spec.labels = map(&[("team", "shop"), ("owner", "Jane Doe"), ("a b", "c")]);
        spec.annotations = map(&[("owner", "Jane Doe"), ("a b", "c")]);
    });
    let merged = merged(&[spec]).spec;
    assert_eq!(merged.labels, map(&[("team", "shop")]));
    assert_eq!(merged.annotations, map(&[("owner", "Jane Doe")]));
}

#[test]
fn an_export_from_before_kubernetes_is_not_the_oldest() {
    let mut other = spec();
    other.internal_traffic_policy = InternalTrafficPolicy::Local;
    let mut wrong_clock = export("c1", 1, other);
    wrong_clock.created = crate::core::clusterset::Timestamp(0);
    let merged = merge(&[wrong_clock, export("c2", 2, spec())], None, &[]).unwrap();
    assert_eq!(merged.spec.internal_traffic_policy, InternalTrafficPolicy::Cluster);
}
