//! What a cluster should have of one service.

use super::*;
use crate::core::clusterset::{
    Audience, Endpoint, ExportSource, ImportState, Protocol, SlicePort,
    fixture::{cluster, endpoint, export, importer, ip, map, name, port, slice, spec},
};

/// Exports with slices, of peers that may use all of 10.0.0.0/8.
pub(crate) struct World {
    pub(crate) exports: Vec<(Export, Vec<Arc<SourceSlice>>)>,
    pub(crate) incomplete: BTreeSet<ClusterId>,
    pub(crate) silent: BTreeSet<ClusterId>,
    pub(crate) has_namespace: bool,
    /// When the exports were written.
    pub(crate) stamp: Stamp,
    /// What the importing API server refuses.
    pub(crate) refused: Refused,
}

impl World {
    pub(crate) fn new(exports: Vec<(Export, Vec<SourceSlice>)>) -> Self {
        let shared = |slices: Vec<SourceSlice>| slices.into_iter().map(Arc::new).collect();
        let exports =
            exports.into_iter().map(|(export, slices)| (export, shared(slices))).collect();
        Self {
            exports,
            incomplete: BTreeSet::new(),
            silent: BTreeSet::new(),
            has_namespace: true,
            stamp: Stamp::NONE,
            refused: Refused::default(),
        }
    }

    pub(crate) fn incomplete(mut self, ids: &[&str]) -> Self {
        self.incomplete = ids.iter().map(|id| cluster(id)).collect();
        self
    }

    pub(crate) fn wanted_by(&self, importer: &Importer, actual: &Actual) -> Wanted {
        let rules = SourceRules {
            endpoints: Arc::new(EndpointRules {
                pod_ranges: Some(vec!["10.0.0.0/8".parse().expect("a range")]),
                ..EndpointRules::default()
            }),
            ..SourceRules::default()
        };
        let by_name = |slices: &Vec<Arc<SourceSlice>>| {
            slices.iter().map(|slice| (Arc::clone(&slice.name), Arc::clone(slice))).collect()
        };
        let slices: Vec<BTreeMap<_, _>> =
            self.exports.iter().map(|(_, slices)| by_name(slices)).collect();
        let exports: Vec<_> = self
            .exports
            .iter()
            .zip(&slices)
            .map(|((export, _), slices)| KnownExport {
                export,
                slices,
                rules: &rules,
                stamp: self.stamp,
            })
            .collect();
        let service = self.exports.first().map_or(name("shop/web"), |(e, _)| e.name.clone());
        let known = Known {
            name: &service,
            has_namespace: self.has_namespace,
            exports: &exports,
            incomplete: &self.incomplete,
            silent: &self.silent,
            lost: &[],
            refused: &self.refused,
        };
        resolve(importer, &known, actual, &VipsInUse::default())
    }

    fn wanted(&self) -> Wanted {
        self.wanted_by(&importer("c1"), &Actual::default())
    }
}

fn written(wanted: Wanted) -> Vec<ImportedSlice> {
    wanted.slices.into_values().filter_map(|slice| slice.copy).map(|copy| *copy).collect()
}

pub(crate) fn present(wanted: &Wanted) -> (&Import, &ImportStatus) {
    match &wanted.import {
        WantedImport::Present(import, status) => (import, status),
        other => panic!("no import: {other:?}"),
    }
}

/// The cluster after it has everything that it should have.
pub(crate) fn actual(wanted: &Wanted) -> Actual {
    let import = match &wanted.import {
        WantedImport::Present(import, status) => Some(ActualImport {
            owner: Owner::Us,
            import: Import::clone(import),
            status: status.clone(),
            is_record: false,
        }),
        WantedImport::Absent | WantedImport::LeftAlone => None,
    };
    let slices = wanted.slices.iter().map(|(name, slice)| {
        let copy = slice.copy.as_ref().expect("the cluster had nothing");
        (Arc::clone(name), copy.actual())
    });
    Actual { import, slices: slices.collect(), ..Actual::default() }
}

fn two() -> World {
    World::new(vec![
        (export("c1", 1, spec()), vec![slice("web-a", &["10.1.0.1"])]),
        (export("c2", 2, spec()), vec![slice("web-a", &["10.2.0.1"])]),
    ])
}

fn ready(status: &ImportStatus) -> (ConditionStatus, &str) {
    (status.conditions[0].status, &status.conditions[0].reason)
}

#[test]
fn an_import_has_the_slices_of_all_clusters() {
    let wanted = two().wanted();
    let (import, status) = present(&wanted);
    assert_eq!(import.ips, [ip("241.210.94.96")]);
    assert_eq!(import.spec, spec());
    assert_eq!(status.clusters, [cluster("c1"), cluster("c2")].into());
    assert_eq!(status.endpoint_slice_objects, Some(EndpointSliceObjects::Present));
    assert_eq!(ready(status), (ConditionStatus::True, "Ready"));
    let names: Vec<_> = wanted.slices.keys().map(|name| &**name).collect();
    assert_eq!(names, ["web-c1-429e0b73a6", "web-c2-44f656da47"]);
}

#[test]
fn hints_are_for_zones_alone() {
    let hinted = |distribution: Option<&str>| {
        let spec = |id: &str| {
            let traffic_distribution = distribution.map(Into::into);
            export(id, 1, ServiceSpec { traffic_distribution, ..spec() })
        };
        let pods = |address: &str| vec![slice("web-a", &[address])];
        let wanted =
            World::new(vec![(spec("c1"), pods("10.1.0.1")), (spec("c2"), pods("10.2.0.1"))])
                .wanted();
        let slices = written(wanted);
        let nodes = slices.iter().map(|slice| slice.endpoints[0].node.as_deref());
        assert_eq!(nodes.collect::<Vec<_>>(), [Some("node-1"), None], "those of this cluster");
        assert!(slices.iter().all(|slice| slice.endpoints[0].zone.is_some()));
        slices.iter().map(|slice| slice.has_zone_hints).collect::<Vec<_>>()
    };
    assert_eq!(hinted(Some("PreferSameZone")), [true, true]);
    assert_eq!(hinted(Some("PreferClose")), [true, true]);
    assert_eq!(hinted(Some("PreferSameNode")), [false, false]);
    assert_eq!(hinted(None), [false, false]);
}

#[test]
fn a_copy_keeps_what_has_a_meaning_here() {
    let mut source = slice("web-a", &["10.2.0.1", "192.0.2.1", "127.0.0.1"]);
    source.generation = 7;
    source.trigger_time = Some("2026-01-02T03:04:05Z".into());
    source.endpoints[0].zone = None;
    let mut near = spec();
    near.traffic_distribution = Some("PreferClose".into());
    let of_pods = |world: &World, id: &str| {
        let wanted = world.wanted_by(&importer(id), &Actual::default());
        let rejected = wanted.rejected.clone();
        (written(wanted).remove(0), rejected)
    };
    let world = World::new(vec![(export("c2", 1, near), vec![source.clone()])]);
    let (copy, rejected) = of_pods(&world, "c1");
    assert_eq!((copy.source_generation, &*copy.source_name), (7, "web-a"));
    assert_eq!(copy.trigger_time, source.trigger_time);
    assert!(copy.has_zone_hints);
    let expected = Endpoint { hostname: None, node: None, zone: None, ..endpoint("10.2.0.1") };
    assert_eq!(copy.endpoints, [expected], "peer");
    let reasons = [Rejection::OutsidePodRanges, Rejection::NoPodAddress];
    assert_eq!(rejected, reasons.map(|reason| ((cluster("c2"), reason), 1)).into());

    let (copy, _) = of_pods(&world, "c2");
    assert_eq!(copy.endpoints[0].node.as_deref(), Some("node-1"), "the own cluster");

    let mut headless = spec();
    headless.service_type = ServiceType::Headless;
    let world = World::new(vec![(export("c2", 1, headless), vec![source])]);
    let (copy, _) = of_pods(&world, "c1");
    assert_eq!(copy.endpoints[0].hostname.as_deref(), Some("pod-0"), "headless");
    assert!(!copy.has_zone_hints);
}

#[test]
fn a_port_that_lost_is_in_no_slice() {
    let mut rival = spec();
    rival.ports = vec![port("http", 81), port("admin", 82)];
    let mut source = slice("web-a", &["10.2.0.1"]);
    let admin = SlicePort {
        name: "admin".into(),
        protocol: Protocol::Tcp,
        port: Some(9000),
        app_protocol: None,
    };
    source.ports.push(admin.clone());
    let world =
        World::new(vec![(export("c1", 1, spec()), vec![]), (export("c2", 2, rival), vec![source])]);
    let wanted = world.wanted();
    assert_eq!(wanted.conflicts.len(), 1);
    let ports: Vec<_> = written(wanted).into_iter().flat_map(|slice| slice.ports).collect();
    assert_eq!(ports, [admin]);
}

#[test]
fn a_headless_import_has_no_vip() {
    let mut headless = spec();
    headless.service_type = ServiceType::Headless;
    let wanted = World::new(vec![(export("c1", 1, headless), vec![])]).wanted();
    assert_eq!(present(&wanted).0.ips, Vec::<IpAddr>::new());
    assert_eq!(ready(present(&wanted).1), (ConditionStatus::True, "Ready"));
}

#[test]
fn families_that_this_cluster_lacks_get_no_vip() {
    let mut dual = spec();
    dual.ip_families = vec![IpFamily::V6, IpFamily::V4];
    let world = World::new(vec![(export("c2", 1, dual), vec![])]);
    let mut importer = importer("c1");
    let wanted = world.wanted_by(&importer, &Actual::default());
    let vips: Vec<_> = wanted.vips().iter().map(|ip| IpFamily::of(*ip)).collect();
    assert_eq!(vips, [IpFamily::V6, IpFamily::V4]);
    importer.families = vec![IpFamily::V4];
    let wanted = world.wanted_by(&importer, &Actual::default());
    assert_eq!(present(&wanted).0.spec.ip_families, [IpFamily::V4]);
    assert_eq!(wanted.vips().len(), 1);
    importer.families = vec![];
    let wanted = world.wanted_by(&importer, &Actual::default());
    assert_eq!(wanted.vips(), Vec::<IpAddr>::new());
    assert_eq!(ready(present(&wanted).1), (ConditionStatus::False, "IPFamilyNotSupported"));
}

#[test]
fn slices_of_before_lead_to_a_derived_service_only_if_the_import_names_it() {
    let exported = || export("c2", 1, spec());
    let world = || World::new(vec![(exported(), vec![slice("web-a", &["10.2.0.1"])])]);
    let unread = || World { exports: vec![(exported(), vec![])], ..world().incomplete(&["c2"]) };
    let with = Importer { derives_services: true, ..importer("c1") };
    let names = |wanted: Wanted| present(&wanted).0.has_derived_service;
    for before in [importer("c1"), with.clone()] {
        let there = actual(&world().wanted_by(&before, &Actual::default()));
        let was_named = before.derives_services;
        assert_eq!(names(unread().wanted_by(&with, &there)), was_named, "{was_named}");
        assert!(names(world().wanted_by(&with, &there)));
    }
}

#[test]
fn a_slice_that_is_known_comes_from_another_mailbox() {
    let stamp = |mailbox| Stamp { mailbox, epoch: 1, sequence: 5 };
    let source = SourceSlice { stamp: stamp(0), ..slice("web-a", &["10.2.0.1"]) };
    let mut world = World::new(vec![(export("c2", 1, spec()), vec![source])]);
    for mailbox in [7, 8] {
        world.stamp = Stamp { mailbox, epoch: 1, sequence: 1 };
        let wanted = world.wanted();
        assert!(wanted.slices.values().all(|slice| slice.stamp == stamp(mailbox)), "{mailbox}");
        let stamps: Vec<_> = written(wanted).into_iter().map(|copy| copy.stamp).collect();
        assert_eq!(stamps, [stamp(mailbox)]);
    }
}

#[test]
fn a_newcomer_with_one_family_takes_none_from_the_import() {
    let of = |families: &[IpFamily]| ServiceSpec { ip_families: families.to_vec(), ..spec() };
    let dual = || export("c2", 2, of(&[IpFamily::V4, IpFamily::V6]));
    let there = World::new(vec![(dual(), vec![])]).wanted();
    for created in [1, 3] {
        let newcomer = export("c1", created, of(&[IpFamily::V4]));
        let pods = vec![slice("web-a", &["10.1.0.1"])];
        let world = World::new(vec![(dual(), vec![]), (newcomer, pods)]);
        let wanted = world.wanted_by(&importer("c3"), &actual(&there));
        assert_eq!(present(&wanted).0.spec.ip_families, [IpFamily::V4, IpFamily::V6], "{created}");
        assert_eq!(wanted.vips(), there.vips(), "{created}: both stay");
        let copies = wanted.slices.values().filter_map(|slice| slice.copy.as_ref());
        let addresses = copies.flat_map(|copy| &copy.endpoints);
        assert_eq!(addresses.map(|one| one.address).collect::<Vec<_>>(), [ip("10.1.0.1")]);
        let told: Vec<_> = wanted
            .conflicts
            .iter()
            .map(|one| (one.reason, one.disagree.keys().collect()))
            .collect();
        let c1 = cluster("c1");
        assert_eq!(told, [(mcs_kube::reasons::Reason::IPFamilyConflict, vec![&c1])]);
    }
}

#[test]
fn a_full_range_leaves_the_import_pending() {
    let mut importer = importer("c1");
    importer.reserved = vec!["241.0.0.0/8".parse().expect("a range")];
    importer.vip_ranges.v4 = "241.0.0.0/24".parse().expect("a range");
    let wanted = two().wanted_by(&importer, &Actual::default());
    assert_eq!(ready(present(&wanted).1), (ConditionStatus::False, "Pending"));
    assert_eq!(present(&wanted).0.ips, Vec::<IpAddr>::new());
}

#[test]
fn an_export_reaches_its_audience_and_its_own_cluster() {
    let mut world = two();
    world.exports[1].0.audience = Audience::Only([cluster("c3")].into());
    for (id, clusters) in [("c1", vec!["c1"]), ("c2", vec!["c1", "c2"]), ("c3", vec!["c1", "c2"])] {
        let wanted = world.wanted_by(&importer(id), &Actual::default());
        let expected: BTreeSet<_> = clusters.iter().map(|id| cluster(id)).collect();
        assert_eq!(present(&wanted).1.clusters, expected, "{id}");
    }
}

#[test]
fn nothing_is_imported_without_the_namespace_or_from_a_denied_one() {
    let mut world = two();
    world.has_namespace = false;
    assert_eq!(world.wanted().import, WantedImport::Absent);
    let mut world = two();
    for (export, _) in &mut world.exports {
        export.name = name("kube-system/web");
    }
    assert_eq!(world.wanted().import, WantedImport::Absent);
}

#[test]
fn an_import_of_another_controller_is_left_alone_or_adopted() {
    let mut there = actual(&two().wanted());
    let import = there.import.as_mut().expect("an import");
    import.owner = Owner::Other;
    import.import.ips = vec![ip("172.16.0.1")];
    let mut importer = importer("c1");
    assert_eq!(two().wanted_by(&importer, &there).import, WantedImport::LeftAlone);
    importer.adopts = true;
    let wanted = two().wanted_by(&importer, &there);
    assert_eq!(present(&wanted).0.ips, [ip("172.16.0.1")], "clients know this VIP");
}

#[test]
fn an_import_of_another_controller_that_nobody_exports_is_not_adopted() {
    let mut there = actual(&two().wanted());
    let import = there.import.as_mut().expect("an import");
    import.owner = Owner::Other;
    there.slices.clear();
    let mut importer = importer("c1");
    importer.adopts = true;
    for says_clusters in [true, false] {
        if !says_clusters {
            there.import.as_mut().expect("an import").status.clusters.clear();
        }
        // Once everything is read, an import of this controller would go.
        let wanted = World::new(vec![]).incomplete(&["c2"]).wanted_by(&importer, &there);
        assert_eq!(wanted.import, WantedImport::Absent, "another one has it for itself");
    }
}

#[test]
fn an_import_keeps_what_an_unreadable_cluster_contributes() {
    let mut older = spec();
    older.ports = vec![port("http", 81)];
    older.labels = map(&[("team", "shop")]);
    let both = || {
        vec![
            (export("c2", 1, older.clone()), vec![slice("web-a", &["10.2.0.1"])]),
            (export("c1", 2, spec()), vec![slice("web-a", &["10.1.0.1"])]),
        ]
    };
    let before = World::new(both()).wanted();
    let there = actual(&before);
    let only_own = || World::new(both().split_off(1));

    let silent = only_own().incomplete(&["c2"]).wanted_by(&importer("c1"), &there);
    assert_eq!(present(&silent), present(&before), "the import stays, with c2");
    let of_own = |wanted: Wanted| {
        let own = written(wanted).into_iter().find(|slice| slice.cluster == cluster("c1"));
        own.map(|slice| slice.ports)
    };
    assert_eq!(of_own(before.clone()), Some(vec![]), "port 80 of c1 must not serve clients of 81");
    assert_eq!(of_own(silent), None, "it stays so");

    let gone = only_own().wanted_by(&importer("c1"), &there);
    assert_eq!(present(&gone).0.spec, spec());
    assert_eq!(present(&gone).0.ips, present(&before).0.ips, "the VIP stays");
    assert_eq!(present(&gone).1.clusters, [cluster("c1")].into());
}

#[test]
fn an_import_without_status_stays_while_a_peer_is_unread() {
    let mut there = actual(&two().wanted());
    let import = there.import.as_mut().expect("an import");
    import.status = ImportStatus::default();
    there.slices.clear();
    let none = World::new(vec![]).incomplete(&["c3"]);
    let wanted = none.wanted_by(&importer("c1"), &there);
    assert_eq!(present(&wanted).0.spec, spec());
}

#[test]
fn the_oldest_service_gets_its_vip_first() {
    let rules = SourceRules::default();
    let (young, old) = (export("c1", 5, spec()), export("c2", 4, spec()));
    let slices = BTreeMap::new();
    let known =
        |export| [KnownExport { export, slices: &slices, rules: &rules, stamp: Stamp::NONE }];
    assert!(vip_order(&known(&old)) < vip_order(&known(&young)));
}

#[test]
fn an_import_has_the_vips_of_the_oldest_exporter_that_has_any() {
    let mut world = two();
    world.exports[1].0.vips = vec![ip("241.0.0.9")];
    assert_eq!(world.wanted().vips(), [ip("241.0.0.9")], "the oldest has none yet");
    world.exports[0].0.vips = vec![ip("241.0.0.8")];
    assert_eq!(world.wanted().vips(), [ip("241.0.0.8")]);
}

#[test]
fn a_namespace_is_created_for_a_service_of_a_peer() {
    let needs = |importing: &str, creates_namespaces, exporter: &str| {
        let importer = Importer { creates_namespaces, ..importer(importing) };
        let mut world = World::new(vec![(export(exporter, 1, spec()), vec![])]);
        world.has_namespace = false;
        let wanted = world.wanted_by(&importer, &Actual::default());
        assert_eq!(wanted.import, WantedImport::Absent);
        wanted.needs_namespace
    };
    assert!(needs("c1", true, "c2"));
    assert!(!needs("c1", false, "c2"), "not by default");
    assert!(!needs("c1", true, "c1"), "its own namespace is about to go");
}

#[test]
fn an_import_says_what_its_exporters_disagree_about() {
    let mut other = spec();
    other.ports = vec![port("http", 81)];
    other.annotations = map(&[("text", &"ä".repeat(20_000))]);
    let world = World::new(vec![
        (export("c2", 1, spec()), vec![slice("web-1", &["10.0.0.1"])]),
        (export("c3", 2, other), vec![]),
    ]);
    let wanted = world.wanted();
    let (_, status) = present(&wanted);
    let told: Vec<_> = status
        .conditions
        .iter()
        .map(|one| format!("{}={}/{}", one.condition_type, one.status, one.reason))
        .collect();
    let expected = [
        "Ready=True/Ready",
        "clusterset.mcs-agent.io/Conflict=True/PortConflict,AnnotationsConflict",
        "clusterset.mcs-agent.io/EndpointsReady=True/Ready",
        "clusterset.mcs-agent.io/Accepted=True/Accepted",
    ];
    assert_eq!(told, expected);
    assert!(status.conditions.iter().all(|one| one.message.len() <= 1024), "each node reads it");
    let wanted = two().wanted();
    let conflict = present(&wanted).1.condition(ConditionType::ImportConflict);
    assert_eq!(conflict, None, "no word while the clusters agree");
}

/// `status/reason: message` of `EndpointsReady`.
fn counted(world: &World, there: &Actual) -> String {
    let wanted = world.wanted_by(&importer("c1"), there);
    let status = present(&wanted).1;
    let Condition { status, reason, message, .. } =
        status.condition(ConditionType::EndpointsReady).cloned().expect("a condition");
    format!("{status}/{reason}: {message}")
}

#[test]
fn an_import_counts_ready_endpoints_by_cluster() {
    let not_ready = |mut slice: SourceSlice| {
        slice.endpoints[0].conditions.ready = Some(false);
        slice
    };
    let nothing = Actual::default();
    let mut world = two();
    assert_eq!(counted(&world, &nothing), "True/Ready: 2 of 2 ready: c1 1 of 1, c2 1 of 1");
    let more = [slice("web-a", &["10.2.0.1", "10.2.0.2"]), slice("web-b", &["10.2.0.3"])];
    world.exports[1].1 = more.map(not_ready).map(Arc::new).into();
    world.exports[0].1.clear();
    let expected = "True/Ready: 1 of 3 ready: c1 0 of 0, c2 1 of 3";
    assert_eq!(counted(&world, &nothing), expected);
    let there = actual(&world.wanted());
    assert_eq!(counted(&world, &there), expected, "what is known of slices that are there");
    world.exports[1].1.remove(0);
    assert_eq!(counted(&world, &nothing), "False/NoneReady: 0 of 1 ready: c1 0 of 0, c2 0 of 1");
    let wanted = world.wanted();
    let ready = &present(&wanted).1.conditions[0];
    assert_eq!(
        (ready.status, &*ready.reason),
        (ConditionStatus::True, "Ready"),
        "it has all it needs"
    );
    assert!(ready.message.contains("no endpoint is ready"), "{}", ready.message);
}

#[test]
fn a_pod_of_two_families_counts_once_and_a_refused_one_is_not_ready() {
    let mut dual = spec();
    dual.ip_families = vec![IpFamily::V4, IpFamily::V6];
    let mut v6 = slice("web-6", &["fd00::1", "fd00::2"]);
    v6.family = IpFamily::V6;
    let slices = vec![slice("web-4", &["10.1.0.1", "192.0.2.1"]), v6];
    let world = World::new(vec![(export("c2", 1, dual), slices)]);
    assert_eq!(counted(&world, &Actual::default()), "True/Ready: 1 of 2 ready: c2 1 of 2");
}

#[test]
fn endpoints_that_a_conflict_keeps_from_the_import_are_told_and_not_ready() {
    let mut other = spec();
    other.ports = vec![port("web", 80)];
    let mut source = slice("web-a", &["10.2.0.1"]);
    source.ports[0].name = "web".into();
    let world = World::new(vec![
        (export("c1", 1, spec()), vec![slice("web-a", &["10.1.0.1"])]),
        (export("c2", 2, other), vec![source]),
    ]);
    assert_eq!(
        counted(&world, &Actual::default()),
        "True/Ready: 1 of 2 ready: c1 1 of 1, c2 0 of 1"
    );
    for importer in ["c1", "c2", "c3"].map(importer) {
        let wanted = world.wanted_by(&importer, &Actual::default());
        assert_eq!(
            present(&wanted).1.condition(ConditionType::ImportConflict).map(|one| &*one.message),
            Some(
                "1 endpoint of c2 is not used: port http is named web there. ports: 1 of 2 clusters disagree (c2 has web \
                 80/TCP); cluster c1 has the oldest export, so the clusterset uses http 80/TCP"
            )
        );
        assert_eq!(wanted.state(), Some(ImportState::EndpointsUnused));
    }
}

/// The pods lack what `targetPort` of these ports names.
fn without_ports(mut slice: SourceSlice, ports: &[&str]) -> SourceSlice {
    slice.ports.retain(|port| !ports.contains(&&*port.name));
    slice
}

fn of_port(slice: &SourceSlice, name: &str) -> SlicePort {
    SlicePort { name: name.into(), ..slice.ports[0].clone() }
}

#[test]
fn an_endpoint_is_ready_for_the_ports_that_it_has() {
    let nothing = Actual::default();
    let plain = || spec();
    let web = |id: u8| slice("web-a", &[&format!("10.{id}.0.1"), &format!("10.{id}.0.2")]);
    let both = |first: SourceSlice, second: SourceSlice| {
        World::new(vec![
            (export("c1", 1, plain()), vec![first]),
            (export("c2", 2, plain()), vec![second]),
        ])
    };
    let partly = both(web(1), without_ports(web(2), &["http"]));
    assert_eq!(
        counted(&partly, &nothing),
        "True/PortPartlyReady: 2 of 4 ready: c1 2 of 2, c2 0 of 2; port http: 2 ready, 2 of c2 lack it"
    );
    let there = actual(&partly.wanted());
    assert!(
        counted(&partly, &there).contains("2 of c2 lack it"),
        "slices that are there count alike"
    );
    let none = both(without_ports(web(1), &["http"]), without_ports(web(2), &["http"]));
    let said = "False/PortNotReady: 0 of 4 ready: c1 0 of 2, c2 0 of 2; port http: none ready, 2 of c1 lack it, 2 of c2 lack it";
    assert_eq!(counted(&none, &nothing), said);
    let wanted = none.wanted();
    let status = present(&wanted).1;
    let accepted = status.condition(ConditionType::Accepted).expect("a condition");
    assert_eq!((accepted.status, &*accepted.reason), (ConditionStatus::False, "PortNotReady"));
    assert!(accepted.message.contains("port http: none ready"), "{}", accepted.message);
    assert!(status.conditions[0].message.contains("for one of its ports"));
    // A port of another protocol is another port.
    let mut udp = web(2);
    udp.ports[0].protocol = Protocol::Udp;
    assert!(counted(&both(web(1), udp), &nothing).contains("2 of c2 lack it"));
    // Some pods of a cluster are of a version without the port.
    let mut mixed = both(web(1), web(2));
    mixed.exports[1].1.push(Arc::new(without_ports(slice("web-b", &["10.2.0.3"]), &["http"])));
    assert_eq!(
        counted(&mixed, &nothing),
        "True/Ready: 4 of 5 ready: c1 2 of 2, c2 2 of 3; port http: 4 ready, 1 of c2 lack it"
    );
}

#[test]
fn a_port_without_ready_endpoint_is_named_while_others_are_ready() {
    let nothing = Actual::default();
    let mut wide = spec();
    wide.ports = vec![port("http", 80), port("metrics", 9090)];
    let bare = slice("web-a", &["10.1.0.1"]);
    let mut full = bare.clone();
    full.ports.push(of_port(&bare, "metrics"));
    let mut world = World::new(vec![
        (export("c1", 1, wide.clone()), vec![bare.clone()]),
        (export("c2", 2, spec()), vec![slice("web-a", &["10.2.0.1"])]),
    ]);
    let said = "False/PortNotReady: 2 of 2 ready: c1 1 of 1, c2 1 of 1; port metrics: none ready, 1 of c1 lack it";
    assert_eq!(counted(&world, &nothing), said, "c2 does not have the port, and lacks nothing");
    world.exports[0].1 = vec![Arc::new(full.clone())];
    assert_eq!(counted(&world, &nothing), "True/Ready: 2 of 2 ready: c1 1 of 1, c2 1 of 1");
    world.exports[0].1.clear();
    let said = "False/PortNotReady: 1 of 1 ready: c1 0 of 0, c2 1 of 1; port metrics: none ready";
    assert_eq!(counted(&world, &nothing), said);
    full.ports.reverse();
    world.exports[0].1 = vec![Arc::new(full)];
    assert!(counted(&world, &nothing).starts_with("True/Ready"), "the order does not matter");
    // Names resolve to the pods of a headless service, whatever ports they have.
    let mut headless = spec();
    headless.service_type = ServiceType::Headless;
    let world =
        World::new(vec![(export("c1", 1, headless), vec![without_ports(bare.clone(), &["http"])])]);
    assert_eq!(counted(&world, &nothing), "True/Ready: 1 of 1 ready: c1 1 of 1");
    // An unnamed port.
    let mut unnamed = spec();
    unnamed.ports = vec![port("", 80)];
    let mut nameless = bare;
    nameless.ports[0].name = "".into();
    let world = World::new(vec![(export("c1", 1, unnamed), vec![nameless])]);
    assert_eq!(counted(&world, &nothing), "True/Ready: 1 of 1 ready: c1 1 of 1");
    wide.ports.extend((0..1000).map(|number| port(&format!("p{number}"), 1000 + number)));
    let world = World::new(vec![(export("c1", 1, wide), vec![slice("web-a", &["10.1.0.1"])])]);
    assert!(counted(&world, &nothing).ends_with("; and 996 more ports"));
}

#[test]
fn an_import_counts_as_before_while_a_cluster_that_contributes_is_unread() {
    let there = actual(&two().wanted());
    let before = counted(&two(), &there);
    let mut world = two();
    world.exports.pop();
    let world = world.incomplete(&["c2"]);
    assert_eq!(counted(&world, &there), before);
    assert_eq!(counted(&world.incomplete(&[]), &there), "True/Ready: 1 of 1 ready: c1 1 of 1");
}

#[test]
fn an_import_names_the_silent_clusters_that_contribute_to_it() {
    let ready = |silent: &[&str], change: &dyn Fn(&mut World)| {
        let mut world = two();
        change(&mut world);
        world.silent = silent.iter().map(|id| cluster(id)).collect();
        present(&world.wanted()).1.conditions[0].message.clone()
    };
    let plain = ready(&[], &|_| ());
    assert_eq!(ready(&["c3"], &|_| ()), plain, "it exports nothing");
    assert_eq!(ready(&["c2"], &|_| ()), format!("{plain}, as of the last sign of life of c2"));
    let without_endpoints = |world: &mut World| {
        for (_, slices) in &mut world.exports {
            slices.clear();
        }
    };
    let message = ready(&["c2"], &without_endpoints);
    assert!(message.contains("of c2, but no endpoint is ready"), "{message}");
}

#[test]
fn words_are_what_a_status_has_beside_turns() {
    let wanted = two().wanted();
    let status = present(&wanted).1.clone();
    let changed = |change: &dyn Fn(&mut ImportStatus)| {
        let mut other = status.clone();
        change(&mut other);
        status.differs_in_words(&other)
    };
    assert!(!changed(&|_| ()), "nothing differs");
    assert!(changed(&|other| other.conditions[0].message.push('x')));
    assert!(changed(&|other| other.conditions[1].status = ConditionStatus::False));
    assert!(changed(&|other| drop(other.conditions.pop())), "a version that counts nothing");
    assert!(!changed(&|other| other.conditions[0].status = ConditionStatus::False));
    assert!(!changed(&|other| other.clusters.clear()));
}

#[test]
fn an_import_keeps_its_conflict_while_a_cluster_that_contributes_is_unread() {
    let mut other = spec();
    other.ports = vec![port("http", 81)];
    let mut world =
        World::new(vec![(export("c2", 1, spec()), vec![]), (export("c3", 2, other), vec![])]);
    let there = actual(&world.wanted());
    let conflict_of =
        |status: &ImportStatus| status.condition(ConditionType::ImportConflict).cloned();
    let said = there.import.as_ref().and_then(|import| conflict_of(&import.status));
    assert!(said.is_some());
    world.exports.pop();
    let conflict = |world: &World| {
        let wanted = world.wanted_by(&importer("c1"), &there);
        conflict_of(present(&wanted).1)
    };
    let world = world.incomplete(&["c3"]);
    assert_eq!(conflict(&world), said);
    assert_eq!(conflict(&world.incomplete(&[])), None, "it exports no longer");
}

#[test]
fn an_import_has_a_state_that_monitoring_counts() {
    let state = |world: &World, importer: &Importer, there: &Actual| {
        world.wanted_by(importer, there).state().map(mcs_kube::reasons::Coded::name)
    };
    let (nothing, mut c1) = (Actual::default(), importer("c1"));
    assert_eq!(state(&two(), &c1, &nothing), Some("ready"));
    let mut world = two();
    if let ExportSource::Service(spec) = &mut world.exports[1].0.source {
        spec.ports = vec![port("http", 81)];
    }
    assert_eq!(state(&world, &c1, &nothing), Some("endpoints_unused"));
    world.exports[1].1.clear();
    assert_eq!(state(&world, &c1, &nothing), Some("conflict"), "it costs nothing");
    world.has_namespace = false;
    assert_eq!(state(&world, &c1, &nothing), Some("no_namespace"));
    assert_eq!(state(&World::new(vec![]), &c1, &nothing), None);
    let mut there = actual(&two().wanted());
    there.import.as_mut().expect("an import").owner = Owner::Other;
    assert_eq!(state(&two(), &c1, &there), Some("left_alone"));
    c1.vip_ranges.v4 = "241.0.0.0/24".parse().expect("a range");
    c1.reserved = vec!["241.0.0.0/8".parse().expect("a range")];
    assert_eq!(state(&two(), &c1, &nothing), Some("pending"));
    c1.families = vec![];
    assert_eq!(state(&two(), &c1, &nothing), Some("family_not_supported"));
}
