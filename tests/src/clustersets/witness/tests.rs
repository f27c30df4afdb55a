//! Each invariant can fail: a world that somebody has doctored in the name of a controller.

use std::{collections::BTreeMap, path::Path};

use http::Method;
use mcs_kube::testing::in_memory::Asked;
use serde_json::{Value, json};

use super::*;
use crate::clustersets::{
    Story,
    kinds::Kind,
    play::{doctored, play_with},
};

const STORY: &str = "\
-- seed 1 --
-- export c1 shop/web 10.1.0.1 10.1.0.2 --
-- export c2 shop/web 10.2.0.1 --
-- export c2 shop/db 10.2.0.1 --
-- settle 60 --
";

type Members = BTreeMap<String, Member>;

/// What the controller of c2 does to an object in its cluster.
fn forged(members: &Members, kind: &str, key: (&str, &str), change: Option<Value>) {
    let kind = Kind::named(kind).unwrap();
    let key = (kind.plural, key.0.to_owned(), key.1.to_owned());
    members["c2"].server.change(|store| {
        "c2".clone_into(&mut store.by);
        match change {
            None => drop(store.delete(&key, None).unwrap()),
            Some(fields) if store.get(&key).is_some() => {
                drop(store.merge(kind, &key, &fields, false).unwrap());
            }
            Some(fields) => drop(store.create(kind, &key, &fields).unwrap()),
        }
        store.by.clear();
    });
}

fn forged_status(members: &Members, kind: &str, key: (&str, &str), status: &Value) {
    let kind = Kind::named(kind).unwrap();
    let key = (kind.plural, key.0.to_owned(), key.1.to_owned());
    members["c2"].server.change(|store| {
        "c2".clone_into(&mut store.by);
        store.merge(kind, &key, status, true).unwrap();
        store.by.clear();
    });
}

/// What is seen after something was done to a world in which all had settled.
fn seen(doctor: impl FnOnce(&Members, &mut Witness)) -> Option<Invariant> {
    let story = Story::parse(Path::new("doctored"), STORY).unwrap();
    doctored(&story, |members, witness| {
        doctor(members, witness);
        witness.look(Instant::now())?;
        witness.settled(members)?;
        witness.still(members)
    })
    .unwrap()
    .map(|broken| broken.invariant)
}

/// The name of a slice of c1 in c2.
fn slice(members: &Members) -> String {
    members["c2"].server.look(|store| {
        let mut all = store.all("endpointslices");
        let of_c1 = |object: &Value| object["metadata"]["labels"][SOURCE] == "c1";
        all.find(|(_, object)| of_c1(object)).unwrap().0.2.clone()
    })
}

fn ips(members: &Members, name: &str) -> Value {
    let key = ("serviceimports", "shop".to_owned(), name.to_owned());
    members["c2"].server.look(|store| store.get(&key).unwrap()["spec"]["ips"].clone())
}

#[test]
fn a_world_that_nobody_has_doctored_is_as_it_should_be() {
    assert_eq!(seen(|_, _| {}), None);
}

#[test]
fn an_import_and_an_endpoint_that_go_are_missed() {
    let web = ("shop", "web");
    assert_eq!(seen(|all, _| forged(all, "ServiceImport", web, None)), Some(Invariant::Kept));
    let fewer = json!({ "endpoints": [{ "addresses": ["10.1.0.2"] }] });
    let lost = seen(|all, _| forged(all, "EndpointSlice", ("shop", &slice(all)), Some(fewer)));
    assert_eq!(lost, Some(Invariant::Kept));
}

#[test]
fn an_address_that_changes_or_is_given_twice_is_seen() {
    let other = json!({ "spec": { "ips": ["241.1.1.1"] } });
    let moved = seen(|all, _| forged(all, "ServiceImport", ("shop", "web"), Some(other)));
    assert_eq!(moved, Some(Invariant::Address));
    let twice = seen(|all, _| {
        let same =
            json!({ "spec": { "type": "ClusterSetIP", "ports": [], "ips": ips(all, "web") } });
        forged(all, "ServiceImport", ("shop", "api"), Some(same));
    });
    assert_eq!(twice, Some(Invariant::Distinct));
}

#[test]
fn imports_that_differ_are_seen() {
    let ports = json!({ "spec": { "ports": [{ "port": 81, "protocol": "TCP" }] } });
    let differs = seen(|all, _| forged(all, "ServiceImport", ("shop", "web"), Some(ports)));
    assert_eq!(differs, Some(Invariant::Alike));
}

#[test]
fn a_wrong_form_is_seen() {
    let wrong = seen(|all, _| forged(all, "EndpointSlice", ("shop", "Web"), Some(json!({}))));
    assert_eq!(wrong, Some(Invariant::Form));
}

#[test]
fn what_was_withdrawn_and_what_is_missing_is_seen() {
    let more = json!({ "endpoints": [{ "addresses": ["10.1.0.1"] }, { "addresses": ["10.1.0.2"] },
        { "addresses": ["10.1.0.3"] }] });
    let back = seen(|all, _| forged(all, "EndpointSlice", ("shop", &slice(all)), Some(more)));
    assert_eq!(back, Some(Invariant::Returned));
    let back = seen(|all, _| {
        let status =
            json!({ "status": { "clusters": [{ "cluster": "c1" }, { "cluster": "c2" }] } });
        forged_status(all, "ServiceImport", ("shop", "db"), &status);
    });
    assert_eq!(back, Some(Invariant::Returned));
    let still = seen(|all, _| {
        let key = ("serviceexports", "shop".to_owned(), "web".to_owned());
        all["c1"].delete(&key).unwrap();
    });
    assert_eq!(still, Some(Invariant::Withdrawn));
    let lacks = seen(|all, _| {
        let key = ("serviceimports", "shop".to_owned(), "web".to_owned());
        all["c2"].delete(&key).unwrap();
    });
    assert_eq!(lacks, Some(Invariant::Converged));
}

#[test]
fn what_an_agent_rejects_and_serves_otherwise_is_seen() {
    let broken = |port: u16| {
        let story = Story::parse(Path::new("doctored"), STORY).unwrap();
        let broken = doctored(&story, |members, witness| {
            let ports = json!({ "ports": [{ "name": "http", "port": port, "protocol": "TCP" }] });
            forged(members, "EndpointSlice", ("shop", &slice(members)), Some(ports));
            members.get_mut("c2").unwrap().look()?;
            witness.settled(members)
        });
        broken.unwrap().map(|broken| broken.invariant)
    };
    assert_eq!(broken(8080), None);
    assert_eq!(broken(8081), Some(Invariant::Served));
    assert_eq!(broken(0), Some(Invariant::Accepted));
}

#[test]
fn a_write_after_all_has_settled_is_seen() {
    let story = Story::parse(Path::new("doctored"), STORY).unwrap();
    let broken = doctored(&story, |members, witness| {
        witness.settled(members)?;
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        forged(members, "ServiceImport", ("shop", "web"), Some(label));
        witness.look(Instant::now())?;
        witness.still(members)
    });
    assert_eq!(broken.unwrap().map(|broken| broken.invariant), Some(Invariant::Still));
}

#[test]
fn a_replica_that_writes_while_another_one_leads_is_seen() {
    let played = |holder: &str| {
        let story = format!(
            "-- replicas c2 --\n{STORY}-- apply c2 --\nkind: Lease\n\
            metadata: {{namespace: mcs-controller, name: mcs-controller}}\n\
            spec: {{holderIdentity: {holder}}}\n-- export c1 shop/api 10.1.0.9 --\n-- settle 60 --\n"
        );
        let story = Story::parse(Path::new("doctored"), &story).unwrap();
        let (_, error) = play_with(&story, Witness::default(), None).unwrap().failure?;
        Some(error.downcast_ref::<Broken>().unwrap().invariant)
    };
    // The leader notices within seconds that the Lease is another one's, and writes until then.
    assert_eq!(played("c"), Some(Invariant::Single));
    assert_eq!(played("a"), None);
}

#[test]
fn a_controller_that_ends_by_itself_is_seen() {
    let story = "-- apply c1 --\nkind: ClusterProperty\nmetadata: {name: cluster.clusterset.k8s.io}\n\
        spec: {value: other}\n-- settle 60 --\n";
    let story = Story::parse(Path::new("doctored"), story).unwrap();
    let played = play_with(&story, Witness::default(), None).unwrap();
    let (_, error) = played.failure.unwrap();
    let broken = error.downcast_ref::<Broken>().unwrap();
    assert_eq!(broken.invariant, Invariant::Alive, "{broken}");
}

#[test]
fn an_endpoint_that_stays_too_long_is_seen() {
    let story = Story::parse(Path::new("doctored"), STORY).unwrap();
    let broken = |later: Duration| {
        let broken = doctored(&story, |members, witness| {
            let metadata = json!({ "name": "web-ipv4", "labels": { OF_SERVICE: "web" } });
            let fewer = json!({ "kind": "EndpointSlice", "metadata": metadata, "endpoints": [] });
            members["c1"].apply(&fewer).unwrap();
            witness.look(Instant::now())?;
            witness.look(Instant::now() + later)
        });
        broken.unwrap().map(|broken| broken.invariant)
    };
    assert_eq!(broken(PROMPT), None);
    assert_eq!(broken(2 * PROMPT), Some(Invariant::Prompt));
}

#[test]
fn a_request_that_is_sent_all_the_time_is_seen() {
    let asked = |times: u32| {
        seen(|members, _| {
            let asked = Asked {
                method: Method::GET,
                path: "/api/v1/nodes".to_owned(),
                query: BTreeMap::new(),
                token: "c1".to_owned(),
                body: Vec::new().into(),
            };
            members["c2"].server.look(|store| {
                (0..times).for_each(|_| store.note_arrival(&asked, false));
            });
        })
    };
    assert_eq!(asked(500), None);
    assert_eq!(asked(600), Some(Invariant::Calm));
}
