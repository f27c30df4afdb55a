//! Adoption from the lists of an API server.

use mcs_kube::{ResourceEvent, WatchedObject};
use serde_json::json;
use tokio::sync::watch;

use super::{
    filter::{Adoption, Update},
    foreign::{Coverage, ForeignSliceDecoder, ServiceDecoder},
    offers::{AdoptableGroup, AdoptableObjects, of_status},
};
use crate::core::{
    model::{Kind, ObjectEvent},
    source::{
        Filter, ObjectFilter as _, ReadFrom, SourceOptions,
        kubernetes::{
            ClusterUpdate,
            decoders::ImportDecoder,
            state::{
                ClusterState,
                tests::{decode, events, listed, new},
            },
        },
    },
};

/// A state with these words of `--adopt`, and the Services whose local slices have to be watched.
fn state(adopt: &[&str]) -> (ClusterState, watch::Receiver<Coverage>) {
    let mut from = ReadFrom::default();
    from.sections.set("adopt", &adopt);
    let options = SourceOptions { from, ..SourceOptions::default() };
    let mut filter = Adoption::new(&options.from);
    filter.watches(&options);
    let services = filter.local_services();
    (new(&options, Filter(Some(Box::new(filter)))), services)
}

#[test]
fn groups_of_controllers_that_are_not_adopted_are_named() {
    let groups = |names: &[&str]| {
        let versions = |name: &&str| ((*name).to_owned(), vec!["v1".to_owned()]);
        ClusterUpdate::Groups(names.iter().map(versions).collect())
    };
    let mut state = state(&[]).0;
    let known = [
        "apps",
        "multicluster.crd.antrea.io",
        "net.gke.io",
        "networking.karmada.io",
        "work.karmada.io",
    ];
    let batch = state.update(groups(&known)).unwrap();
    let lines: Vec<_> = of_status(&batch.status).1.iter().map(AdoptableGroup::offer).collect();
    assert_eq!(
        lines,
        [
            "the API server has the group multicluster.crd.antrea.io: --adopt=antrea serves its \
             ServiceImports, if it exports pod addresses (endpointIPType: PodIP)",
            "the API server has the group net.gke.io: --adopt=gke serves its ServiceImports",
            "the API server has the group networking.karmada.io: --adopt=karmada serves the \
             Services and ServiceImports that Karmada propagates",
        ]
    );
    assert_eq!(state.update(groups(&known)), None);
    let (mut state, _) = self::state(&["antrea", "gke"]);
    let batch = state.update(groups(&known[..3])).unwrap();
    assert_eq!(of_status(&batch.status).1, []);
}

#[test]
fn imports_of_controllers_that_are_not_adopted_are_counted() {
    let import = |labels: serde_json::Value| {
        decode::<ImportDecoder>(json!({
            "metadata": {"namespace": "shop", "name": "web", "labels": labels},
            "spec": {"type": "ClusterSetIP", "ports": []},
        }))
    };
    let managed = || import(json!({"karmada.io/managed": "true"}));
    let mut state = state(&[]).0;
    state.update(ClusterUpdate::Slices(listed([])));
    let mut lines = |event| {
        let batch = state.update(ClusterUpdate::Imports(event)).unwrap();
        let objects = of_status(&batch.status).0.iter().map(AdoptableObjects::offer).collect();
        (batch.events.len(), objects)
    };
    let offered = || {
        vec!["1 ServiceImports of karmada: the agent serves them with --adopt=karmada".to_owned()]
    };
    assert_eq!(lines(listed([managed()])), (2, offered()));
    assert_eq!(lines(ResourceEvent::Changed(import(json!({})))), (1, vec![]));
    assert_eq!(lines(ResourceEvent::Changed(managed())), (1, offered()));
    assert_eq!(lines(ResourceEvent::Deleted(managed())), (1, vec![]));
}

/// A Service is adopted once its local slices were listed, and not before.
#[test]
fn an_adopted_service_waits_for_its_local_slices() {
    let (mut state, services) = state(&["karmada"]);
    let adoptable = |name: &str, manager: &str| {
        decode::<ForeignSliceDecoder>(json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": manager,
            }},
            "addressType": "IPv4", "endpoints": [],
        }))
    };
    let dispatched = || adoptable("m1-web", "endpointslice-dispatch-controller.karmada.io");
    let own = || adoptable("web-x", "endpointslice-controller.k8s.io");
    let service: WatchedObject<ServiceDecoder> = decode(json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
    }));
    let mut quiet = |update| assert_eq!(events(state.update(update)), [""; 0]);
    quiet(Update::LocalServices(Coverage::NONE).into());
    quiet(ClusterUpdate::Imports(ResourceEvent::NotServed { last_heard: None }));
    quiet(ClusterUpdate::Slices(listed([])));
    quiet(Update::Services(listed([service])).into());
    quiet(Update::Slices(listed([dispatched()])).into());
    let names = services.borrow().clone();
    assert_eq!(names, Coverage::Named(["web".to_owned()].into()));
    quiet(Update::LocalServices(names).into());
    assert_eq!(
        events(state.update(Update::LocalSlices(listed([own()])).into())),
        ["ServiceImports: web", "EndpointSlices: m1-web web-x"]
    );
    let gone = Update::Slices(ResourceEvent::Deleted(dispatched())).into();
    let mut gone = events(state.update(gone));
    gone.sort();
    assert_eq!(gone, ["delete m1-web", "delete web", "delete web-x"]);
    assert_eq!(*services.borrow(), Coverage::NONE);
}

/// One request cannot name 5,000 Services: all slices of the cluster are read then.
#[test]
fn every_service_is_adopted_beyond_the_names_of_one_request() {
    let (mut state, services) = state(&["karmada"]);
    let names: Vec<String> = (0..5000).map(|number| format!("{number:a>63}")).collect();
    let service = |name: &String| -> WatchedObject<ServiceDecoder> {
        decode(json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
        }))
    };
    let slice = |name: &String, suffix: &str, manager: &str| {
        decode::<ForeignSliceDecoder>(json!({
            "metadata": {"namespace": "shop", "name": format!("{name}{suffix}"), "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": manager,
            }},
            "addressType": "IPv4", "endpoints": [],
        }))
    };
    let dispatched =
        |name: &String| slice(name, "", "endpointslice-dispatch-controller.karmada.io");
    let own = |name: &String| slice(name, "-x", "endpointslice-controller.k8s.io");
    let stranger = "stranger".to_owned();
    for update in [
        ClusterUpdate::Imports(listed([])),
        ClusterUpdate::Slices(listed([])),
        Update::Services(listed(names.iter().map(service))).into(),
        Update::Slices(listed(names.iter().map(dispatched))).into(),
    ] {
        assert_eq!(events(state.update(update)), [""; 0]);
    }
    let asked = services.borrow().clone();
    assert!(asked.selector().len() < 60_000, "a URI has room for no more");
    state.update(Update::LocalServices(asked).into());
    let local = names.iter().chain([&stranger]).map(own);
    let batch = state.update(Update::LocalSlices(listed(local)).into()).unwrap();
    assert!(batch.status.problems.is_empty());
    let counts = batch.events.iter().map(|event| match event {
        ObjectEvent::Relist { kind, objects } => (*kind, objects.len()),
        other => panic!("{other:?}"),
    });
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts, [(Kind::ServiceImport, 5000), (Kind::EndpointSlice, 10_000)]);
    // One more Service is adopted with what was read already, without another list.
    let apply = |state: &mut ClusterState, update| events(state.update(update));
    let come = Update::Services(ResourceEvent::Changed(service(&stranger))).into();
    assert_eq!(apply(&mut state, come), [""; 0]);
    let come = Update::Slices(ResourceEvent::Changed(dispatched(&stranger))).into();
    let mut come = apply(&mut state, come);
    come.sort();
    assert_eq!(come, ["apply stranger", "apply stranger", "apply stranger-x"]);
    assert_eq!(*services.borrow(), Coverage::All);
    // Names are asked for again once they take half of the room, and not before.
    let few = |count: usize| Update::Services(listed(names.iter().take(count).map(service))).into();
    state.update(few(600));
    assert_eq!(*services.borrow(), Coverage::All);
    state.update(few(300));
    let asked = names.iter().take(300).cloned().collect();
    assert_eq!(*services.borrow(), Coverage::Named(asked));
}
