//! Faults drawn at random from deploy/faults.md: `mcs check` names each, and blames nothing else.

use std::collections::BTreeSet;

use jiff::Timestamp;
use mcs_controller::core::clusterset::well_known;
use mcs_kube::{
    reach::{Outcome, Target},
    reasons::{ClusterCheck, Coded as _, RejectionReason},
    report::{Kind, ObjectRef, ReachReport, Rejection},
};
use serde_json::{Value, json};

use super::{
    compare,
    facts::{Facts, Table, Unread, What},
    world::{SAMPLES, SHOP, Sample, list, world},
};
use crate::{
    check::{controller::ensure_renewed, ids, nodes, pods, reach, same_addresses},
    contexts::Identity,
};

const DOCUMENT: &str = include_str!("../../../../deploy/faults.md");
const DRAWS: u64 = 100;
/// What an API server says of a refused write.
const WORDS: &str = "denied the request: no-slices";

/// A clusterset in which one link is broken.
struct Broken {
    all: Vec<Facts>,
    /// The cluster whose link is the first that differs.
    cluster: usize,
    /// A cluster that exports the service.
    source: usize,
    sample: &'static Sample,
    rng: fastrand::Rng,
    /// What somebody has told.
    refusal: Option<&'static str>,
}

/// Breaks one link.
type Break = fn(&mut Broken);

/// The faults by their names in the document.
const FAULTS: &[(&str, Break)] = &[
    ("a list may not be read", |it| unread(it, false)),
    ("a list fails", |it| unread(it, true)),
    ("a pod has no endpoint", |it| {
        it.at_source();
        let slice = it.slice(well_known::SLICE_SERVICE);
        drop_endpoint(slice);
    }),
    ("a slice of the Service lost its label", |it| {
        it.at_source();
        it.slice(well_known::SLICE_SERVICE)["metadata"]["labels"] = json!({});
    }),
    ("the slices keep a pod that is gone", |it| {
        it.at_source();
        let slice = it.slice(well_known::SLICE_SERVICE);
        slice["endpoints"].as_array_mut().unwrap().push(json!({"addresses": ["10.9.9.9"]}));
    }),
    ("pods lack the port of targetPort", |it| {
        it.at_source();
        it.sample = &SAMPLES[0];
        it.refusal = Some("targetPort is http");
        for pod in list(&mut it.all[it.cluster], What::Pods) {
            pod["spec"]["containers"][0]["ports"][0]["name"] = json!("other");
        }
        it.slice(well_known::SLICE_SERVICE)["ports"].as_array_mut().unwrap().remove(0);
    }),
    ("the Service is gone", |it| {
        it.at_source();
        it.remove(What::Services);
    }),
    ("an export is not exported", |it| {
        it.at_source();
        it.refusal = Some(WORDS);
        it.condition(What::Exports, "Ready", "False", "Failed");
    }),
    ("exports are in conflict", |it| {
        it.at_source();
        it.refusal = Some(WORDS);
        it.condition(What::Exports, "Conflict", "True", "PortConflict,TypeConflict");
    }),
    ("nobody judges an export", |it| {
        it.at_source();
        it.object(What::Exports)["metadata"]["generation"] = json!(2);
        it.refusal = Some("Older");
    }),
    ("the mailbox lacks the service", |it| {
        it.at_source();
        it.published(|all, at| drop(all.remove(at)));
    }),
    ("the mailbox keeps a service", |it| {
        it.at_source();
        it.remove(What::Exports);
    }),
    ("the mailbox has another port", |it| {
        it.at_source();
        it.published(|all, at| all[at]["spec"]["ports"][0]["port"] = json!(1));
    }),
    ("the mailbox has another field", |it| {
        it.at_source();
        it.published(|all, at| all[at]["spec"]["sessionAffinity"] = json!("ClientIP"));
    }),
    ("the mailbox has another audience", |it| {
        it.at_source();
        it.published(|all, at| all[at]["spec"]["audience"] = json!(["c9"]));
    }),
    ("the mailbox has another cluster's id", |it| {
        it.at_source();
        it.published(|all, at| all[at]["spec"]["clusterId"] = json!("c9"));
    }),
    ("the mailbox lacks a slice", |it| {
        it.at_source();
        let slice = it.slice(well_known::MAILBOX_SERVICE);
        slice["metadata"]["labels"] = json!({});
    }),
    ("the mailbox has other endpoints", |it| {
        it.at_source();
        other_endpoints(it, well_known::MAILBOX_SERVICE);
    }),
    ("there is no ClusterPeer", |it| {
        let peers = list(&mut it.all[it.cluster], What::Peers);
        if peers.len() > 1 {
            peers.remove(0);
        } else {
            peers[0]["spec"]["clusterId"] = json!("c9");
        }
    }),
    ("the namespace is missing", |it| {
        it.remove(What::Imports);
        list(&mut it.all[it.cluster], What::Namespaces).clear();
    }),
    ("the namespace is Terminating", |it| {
        it.remove(What::Imports);
        let namespaces = list(&mut it.all[it.cluster], What::Namespaces);
        namespaces[0]["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    }),
    ("there is no import", |it| it.remove(What::Imports)),
    ("the import is refused", |it| {
        it.not_own();
        it.remove(What::Imports);
        it.refusal = Some(WORDS);
        it.peer_says("ImportsWritten", "Refused");
    }),
    ("a warning tells why there is no import", |it| {
        it.remove(What::Imports);
        it.refusal = Some(WORDS);
        let object = json!({"namespace": SHOP, "name": it.sample.name});
        let event = json!({"involvedObject": object, "reason": "Refused", "message": WORDS, "lastTimestamp": "2"});
        let events = list(&mut it.all[it.cluster], What::Events);
        events.push(event);
    }),
    ("the import has no address", |it| {
        it.of_vip();
        it.object(What::Imports)["spec"]["ips"] = json!([]);
    }),
    ("the import has another address", |it| {
        it.of_vip();
        it.object(What::Imports)["spec"]["ips"] = json!(["241.9.9.9"]);
        let name = it.sample.name;
        for table in it.tables() {
            let of = table.services.frontends.iter_mut().filter(|one| *one.import.name == *name);
            of.for_each(|one| one.frontend.ip = "241.9.9.9".parse().unwrap());
        }
    }),
    ("the import lacks a port", |it| {
        it.object(What::Imports)["spec"]["ports"].as_array_mut().unwrap().remove(0);
    }),
    ("the import has another field", |it| {
        let (field, value) = it.one_of(&[
            ("sessionAffinity", "ClientIP"),
            ("internalTrafficPolicy", "Local"),
            ("trafficDistribution", "PreferSameNode"),
        ]);
        it.object(What::Imports)["spec"][field] = json!(value);
    }),
    ("the import lacks a cluster", |it| {
        it.object(What::Imports)["status"]["clusters"].as_array_mut().unwrap().remove(0);
    }),
    ("the import says that it is not ready", |it| {
        it.refusal = Some(WORDS);
        let (kind, reason) = it.one_of(&[
            ("Ready", "AddressInServiceRange"),
            ("clusterset.mcs-agent.io/EndpointsReady", "PortNotReady"),
        ]);
        it.condition(What::Imports, kind, "False", reason);
    }),
    ("an imported slice is gone", |it| {
        let at = it.slice_place(well_known::SERVICE_NAME);
        list(&mut it.all[it.cluster], What::Slices).remove(at);
    }),
    ("an imported slice lost a label", |it| {
        let label = it.one_of(&[well_known::SERVICE_NAME, well_known::SOURCE_CLUSTER]);
        let slice = it.slice(well_known::SERVICE_NAME);
        slice["metadata"]["labels"].as_object_mut().unwrap().remove(label);
    }),
    ("an imported slice has other endpoints", |it| {
        other_endpoints(it, well_known::SERVICE_NAME);
    }),
    ("an imported slice is refused", |it| {
        it.refusal = Some(WORDS);
        drop_endpoint(it.slice(well_known::SERVICE_NAME));
        it.condition(What::Imports, "Ready", "False", "Refused");
    }),
    ("the peer is not read any more", |it| {
        it.not_own();
        it.refusal = Some(WORDS);
        drop_endpoint(it.slice(well_known::SERVICE_NAME));
        it.peer_says("Connected", "Unreadable");
    }),
    ("endpoints are outside of podCIDRs", |it| {
        it.not_own();
        it.refusal = Some("outside of podCIDRs");
        drop_endpoint(it.slice(well_known::SERVICE_NAME));
        let id = it.all[it.source].cluster.clone();
        let peers = list(&mut it.all[it.cluster], What::Peers).iter_mut();
        peers.filter(|one| one["spec"]["clusterId"] == *id).for_each(|one| {
            one["spec"]["podCIDRs"] = json!(["10.200.0.0/16"]);
        });
    }),
    ("a table lacks a frontend", |it| {
        it.of_vip();
        let name = it.sample.name;
        let table = it.table();
        let frontends = &mut table.services.frontends;
        let at = frontends.iter().position(|one| *one.import.name == *name).unwrap();
        frontends.remove(at);
    }),
    ("a table lacks a backend", |it| {
        it.of_vip();
        it.backends(|backends| backends.truncate(1));
    }),
    ("a table has no backend", |it| {
        it.of_vip();
        it.backends(Vec::clear);
    }),
    ("a table leads to a pod that is gone", |it| {
        it.of_vip();
        it.backends(|backends| backends[0].address = "10.9.9.9:1".parse().unwrap());
    }),
    ("a table leads to another port", |it| {
        it.of_vip();
        it.backends(|backends| backends[0].address.set_port(1));
    }),
    ("an agent rejects the import", |it| {
        it.of_vip();
        it.refusal = Some(WORDS);
        let name = it.sample.name;
        let table = it.table();
        table.services.frontends.retain(|one| *one.import.name != *name);
        let key = mcs_kube::ObjectKey::new(SHOP, name);
        table.rejections.push(Rejection {
            object: ObjectRef { kind: Kind::ServiceImport, key },
            reason: RejectionReason::Capacity,
            message: WORDS.to_owned(),
        });
    }),
    ("an agent does not know the import", |it| {
        it.of_vip();
        let name = it.sample.name;
        let services = &mut it.table().services;
        services.frontends.retain(|one| *one.import.name != *name);
        let mut imports = services.list.imports.to_vec();
        imports.retain(|one| *one.import.name != *name);
        services.list.imports = imports.into();
    }),
    ("a node has no agent", |it| {
        let node = it.one_of(&["n1", "n2"]);
        it.all[it.cluster]
            .tables
            .insert(node.to_owned(), Err(Unread::unknown("no agent is ready")));
    }),
    ("no agent can be asked", |it| it.all[it.cluster].tables.clear()),
];

/// What a row says of an answer that fails, and words of the cause.
type Answer = fn(&mut fastrand::Rng) -> (ClusterCheck, anyhow::Result<String>, &'static str);

/// The faults of answers, behind the tables, and of what all links need.
const ANSWERS: &[(&str, Answer)] = &[
    ("DNS does not answer for a name", |rng| {
        let (outcome, words) = [
            (Outcome::Unresolved, "does not know the name"),
            (Outcome::DnsEmpty, "has no address in DNS"),
            (Outcome::DnsFailed, "cannot read ServiceImports or EndpointSlices"),
            (Outcome::DnsSilent, "is not there or not ready"),
        ][rng.usize(..4)];
        (ClusterCheck::ByName, by_name(outcome), words)
    }),
    ("a ClusterSetIP does not answer", |rng| {
        let outcomes = [Outcome::Refused, Outcome::Timeout, Outcome::Unreachable];
        (ClusterCheck::ByName, by_name(outcomes[rng.usize(..3)]), "agent")
    }),
    ("clients on a node get no answer of a ClusterSetIP", |rng| {
        let outcomes = [Outcome::Refused, Outcome::Denied, Outcome::Timeout];
        let lost = (Target::Address("241.0.0.1:80".parse().unwrap()), outcomes[rng.usize(..3)]);
        let table = world(1)[0].tables.get("n1").cloned();
        let told = nodes::by_address(&[lost], table.as_ref(), &BTreeSet::new());
        (ClusterCheck::ByAddress, told, "do not answer clients on this node")
    }),
    ("DNS does not answer a node", |_| {
        let lost = Target::Name("web.shop.svc.clusterset.local:80".to_owned());
        let told = nodes::by_names(&[(lost, Outcome::DnsSilent)]);
        let told = told.map_err(|error| anyhow::anyhow!(mcs_kube::told(&error)));
        (ClusterCheck::ByName, told, "DNS does not answer")
    }),
    ("full packets are lost", |_| {
        (ClusterCheck::LargeAnswers, pods::judge_large(false), "full packets are lost")
    }),
    ("packets of a node are lost", |rng| {
        let families = ["IPv4", "IPv6"];
        let family = families[rng.usize(..2)];
        let way = |of: &str| ReachReport {
            cluster: "west".to_owned(),
            family: of.to_owned(),
            reachable: Some(of != family),
            reached: 1,
            silent: 1,
            round_trip_micros: None,
            silent_endpoints: vec![],
        };
        let told = reach::of_node(Some(&families.map(way)));
        let words = ["west by IPv4", "west by IPv6"][usize::from(family == "IPv6")];
        (ClusterCheck::Reach, told, words)
    }),
    ("the controller's Lease is old", |rng| {
        let renewed = Timestamp::UNIX_EPOCH;
        let now = Timestamp::from_second(rng.i64(61..100_000)).unwrap();
        let lease = json!({"spec": {"renewTime": renewed.to_string()}});
        let told = ensure_renewed(&lease, now).map(|()| String::new());
        (ClusterCheck::Controller, told, "has not renewed its Lease")
    }),
    ("two clusters have one id", |_| {
        let of = |uid: &str| Identity {
            id: "c1".to_owned(),
            uid: Some(uid.to_owned()),
            server: format!("https://{uid}"),
        };
        let (_, findings) = ids::sifted(&[of("a"), of("b")]);
        let told = findings.first().map(|one| Err(anyhow::anyhow!(one.message.clone())));
        (ClusterCheck::Id, told.unwrap_or_else(|| Ok(String::new())), "2 clusters have the id c1")
    }),
];

fn by_name(outcome: Outcome) -> anyhow::Result<String> {
    pods::by_name::judge(&"web.shop.svc.clusterset.local:80", outcome)
}

fn unread(it: &mut Broken, is_wrong: bool) {
    let what = it.one_of(&[
        What::Exports,
        What::Services,
        What::Pods,
        What::Slices,
        What::Published,
        What::Peers,
        What::Imports,
    ]);
    let unread = Unread { is_wrong, ..Unread::unknown("it may not be read") };
    it.all[it.cluster].objects.insert(what, Err(unread));
}

fn drop_endpoint(slice: &mut Value) {
    slice["endpoints"].as_array_mut().unwrap().pop();
}

/// One endpoint of a slice is gone, of another address or port, unready, or too much.
fn other_endpoints(it: &mut Broken, label: &str) {
    let how = it.rng.u8(..5);
    let is_headless = it.sample.is_headless;
    let slice = it.slice(label);
    match how {
        0 => drop_endpoint(slice),
        1 => slice["endpoints"][0]["addresses"] = json!(["10.9.9.9"]),
        2 => slice["endpoints"][1]["conditions"]["ready"] = json!(false),
        // Clients of a headless service reach pods at any port.
        3 if !is_headless => slice["ports"][0]["port"] = json!(1),
        _ => {
            let more = json!({"addresses": ["10.9.9.9"]});
            slice["endpoints"].as_array_mut().unwrap().push(more);
        }
    }
}

impl Broken {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.usize(2..=3);
        let sample = &SAMPLES[rng.usize(..SAMPLES.len())];
        let sources: Vec<_> = sample.clusters.iter().copied().filter(|one| *one < count).collect();
        let source = sources[rng.usize(..sources.len())];
        let mut all = world(count);
        for facts in &mut all {
            // It is about another service.
            let object = json!({"namespace": SHOP, "name": "other"});
            let event = json!({"involvedObject": object, "reason": "Refused", "message": "another", "lastTimestamp": "9"});
            list(facts, What::Events).push(event);
        }
        Self { all, cluster: rng.usize(..count), source, sample, rng, refusal: None }
    }

    /// The fault is in the cluster that exports.
    fn at_source(&mut self) {
        self.cluster = self.source;
    }

    /// The fault is in another cluster than the one that exports.
    fn not_own(&mut self) {
        if self.cluster == self.source {
            self.cluster = (self.source + 1) % self.all.len();
        }
    }

    /// The service has an address.
    fn of_vip(&mut self) {
        if self.sample.is_headless {
            (self.sample, self.source) = (&SAMPLES[0], 0);
        }
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(..all.len())]
    }

    fn place(&mut self, what: What) -> usize {
        let name = self.sample.name;
        let objects = list(&mut self.all[self.cluster], what);
        objects.iter().position(|one| one["metadata"]["name"] == name).unwrap()
    }

    fn object(&mut self, what: What) -> &mut Value {
        let place = self.place(what);
        &mut list(&mut self.all[self.cluster], what)[place]
    }

    fn remove(&mut self, what: What) {
        let place = self.place(what);
        list(&mut self.all[self.cluster], what).remove(place);
    }

    fn published(&mut self, edit: impl FnOnce(&mut Vec<Value>, usize)) {
        let name = self.sample.name;
        let all = list(&mut self.all[self.cluster], What::Published);
        let place = all.iter().position(|one| one["spec"]["name"] == name).unwrap();
        edit(all, place);
    }

    fn slice_place(&mut self, label: &str) -> usize {
        let (name, source) = (self.sample.name, self.all[self.source].cluster.clone());
        let is_meant = |slice: &Value| {
            let labels = &slice["metadata"]["labels"];
            let of = &labels[well_known::SOURCE_CLUSTER];
            labels[label] == name && (of.is_null() || *of == *source)
        };
        list(&mut self.all[self.cluster], What::Slices).iter().position(is_meant).unwrap()
    }

    fn slice(&mut self, label: &str) -> &mut Value {
        let place = self.slice_place(label);
        &mut list(&mut self.all[self.cluster], What::Slices)[place]
    }

    fn condition(&mut self, what: What, kind: &str, status: &str, reason: &str) {
        let new = json!({"type": kind, "status": status, "reason": reason, "message": WORDS});
        let all = self.object(what)["status"]["conditions"].as_array_mut().unwrap();
        all.retain(|one| one["type"] != kind);
        all.push(new);
    }

    /// What the importing cluster says of every peer.
    fn peer_says(&mut self, kind: &str, reason: &str) {
        let new = json!({"type": kind, "status": "False", "reason": reason, "message": WORDS});
        for peer in list(&mut self.all[self.cluster], What::Peers) {
            let all = peer["status"]["conditions"].as_array_mut().unwrap();
            all.retain(|one| one["type"] != kind);
            all.push(new.clone());
        }
    }

    fn tables(&mut self) -> impl Iterator<Item = &mut Table> {
        self.all[self.cluster].tables.values_mut().map(|table| table.as_mut().unwrap())
    }

    fn table(&mut self) -> &mut Table {
        let node = self.one_of(&["n1", "n2"]);
        self.all[self.cluster].tables.get_mut(node).unwrap().as_mut().unwrap()
    }

    fn backends(&mut self, edit: impl FnOnce(&mut Vec<mcs_kube::report::Backend>)) {
        let name = self.sample.name;
        let frontends = self.table().services.frontends.iter_mut();
        edit(&mut frontends.filter(|one| *one.import.name == *name).last().unwrap().backends);
    }
}

/// The faults of the document, and the rows that name them.
fn documented() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let (fault, checks) = (cells.next().unwrap(), cells.next().unwrap());
        (fault, checks.split(", ").map(|name| name.trim_matches('`')).collect())
    })
    .collect()
}

#[test]
fn the_document_has_every_fault() {
    let documented: BTreeSet<_> = documented().into_iter().map(|(fault, _)| fault).collect();
    let answers = ANSWERS.iter().map(|(fault, _)| *fault);
    let known: BTreeSet<_> = FAULTS.iter().map(|(fault, _)| *fault).chain(answers).collect();
    assert_eq!(documented, known);
}

#[test]
fn a_healthy_clusterset_has_no_difference() {
    for count in 1..=3 {
        let compared = compare(&world(count));
        assert_eq!(compared.differences, [], "{count} clusters");
        assert!(compared.unread.is_empty(), "{:?}", compared.unread);
        assert!(same_addresses::finding(&imports(&world(count))).is_none());
    }
    let compared = compare(&world(2));
    for (check, expected) in [
        (ClusterCheck::Endpoints, "2 exported Services"),
        (ClusterCheck::Exports, "2 ServiceExports"),
        (ClusterCheck::Mailbox, "2 services in the mailbox"),
        (ClusterCheck::Imports, "3 ServiceImports"),
        (ClusterCheck::Slices, "4 sets of imported slices"),
        (ClusterCheck::Tables, "2 imports in tables of agents"),
    ] {
        let told = compared.result("c1", check).unwrap();
        assert_eq!(told, format!("{expected}, each as the link before it"));
    }
}

#[test]
fn what_differs_once_is_no_finding() {
    let mut all = world(2);
    list(&mut all[0], What::Imports).remove(0);
    let (first, fine) = (compare(&all), compare(&world(2)));
    assert!(first.persisting(fine.differences).differences.is_empty());
    let (first, again) = (compare(&all), compare(&all));
    let compared = first.persisting(again.differences);
    let told = compared.result("c1", ClusterCheck::Imports).unwrap_err().to_string();
    let expected = "1 of 3 ServiceImports: shop/web: exported by c1, c2 to this cluster, and there is no ServiceImport. Why is unknown: nobody has told a refusal";
    assert_eq!(told, expected);
}

fn imports(all: &[Facts]) -> Vec<(&str, &[Value])> {
    all.iter().map(|one| (&*one.cluster, one.imports())).collect()
}

#[test]
fn no_drawn_fault_is_silent_or_has_a_wrong_cause() {
    let documented = documented();
    // Every fault once, and then by chance.
    let all = u64::try_from(documented.len()).unwrap();
    for seed in 0..all + DRAWS {
        let mut broken = Broken::draw(seed);
        let chosen = usize::try_from(seed).unwrap();
        let chosen = if seed < all { chosen } else { broken.rng.usize(..documented.len()) };
        let (fault, checks) = &documented[chosen];
        let Some((_, apply)) = FAULTS.iter().find(|(name, _)| name == fault) else {
            let (_, answer) = ANSWERS.iter().find(|(name, _)| name == fault).unwrap();
            let (check, told, words) = answer(&mut broken.rng);
            let told = told.expect_err(fault).to_string();
            assert!(checks.contains(&check.name()) && told.contains(words), "{fault}: {told}");
            continue;
        };
        apply(&mut broken);
        judge(&broken, &format!("{fault}, seed {seed}"), checks);
    }
}

/// Fails unless the fault is named, by one of these rows of its cluster, and nothing else is.
fn judge(broken: &Broken, fault: &str, checks: &[&str]) {
    let compared = compare(&broken.all);
    let cluster = &broken.all[broken.cluster].cluster;
    let is_expected = |check: ClusterCheck| checks.contains(&check.name());
    for one in &compared.differences {
        let told = format!("{fault}: {}: {}: {one}", one.cluster, one.check);
        assert!(is_expected(one.check) && one.cluster == *cluster, "a wrong cause: {told}");
        let refusal = one.refusal.as_deref();
        let is_right = match (refusal, broken.refusal) {
            (None, None) => one.to_string().ends_with("nobody has told a refusal"),
            (Some(told), Some(expected)) => told.contains(expected),
            _ => false,
        };
        assert!(is_right, "a wrong refusal: {told}");
    }
    for (of, check, unread) in &compared.unread {
        assert!(of == cluster && is_expected(*check), "{fault}: {of}: {check}: {unread:?}");
    }
    let addresses = same_addresses::finding(&imports(&broken.all));
    assert!(addresses.is_none() || is_expected(ClusterCheck::SameAddresses), "{fault}");
    let name = format!("{SHOP}/{}", broken.sample.name);
    let is_named = compared.differences.iter().any(|one| one.service == name)
        || checks.contains(&"peers") && !compared.differences.is_empty();
    let is_found = is_named || addresses.is_some() || !compared.unread.is_empty();
    assert!(is_found, "silent: {fault} in {cluster}: {:?}", compared.differences);
    // What is read of the cluster is no success then.
    let rows =
        checks.iter().filter_map(|name| ClusterCheck::ALL.iter().find(|one| one.name() == *name));
    let mut rows = rows.filter(|check| **check != ClusterCheck::SameAddresses);
    let is_shown = rows.any(|check| compared.result(cluster, *check).is_err());
    assert!(is_shown || addresses.is_some(), "{fault}: a row says ok");
}
