//! Which VIPs imports keep and lose.

use mcs_kube::{ResourceEvent, WatchedObject};
use serde_json::json;

use super::*;
use crate::core::{
    control::{
        Update,
        state::tests::{object, state},
    },
    objects::ServiceDecoder,
    own_cluster::{OwnCluster, OwnEvent},
};

/// Plans as the control task does.
fn plan(state: &mut State, lost: &mut Lost, name: &ServiceName) -> Vec<Write> {
    let actual = state.own.actual(name);
    let vips = lost.lost_vips(name, &actual, state);
    let plan = state.plan(name, actual, vips);
    let mut writes = state.note_planned(&plan);
    lost.note_planned(&plan, &mut writes, state);
    writes
}

/// An adopted import `shop/web` with the VIP 10.96.0.9, and the derived Service that has it too.
fn adopted() -> (State, ServiceName) {
    let mut state = state();
    state.own = OwnCluster::new(vec!["10.96.0.0/16".parse().unwrap()]);
    state.settings.adopt = true;
    let metadata = json!({"namespace": "shop", "name": "web", "uid": "u"});
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}});
    let spec = json!({"type": "ClusterSetIP", "ips": ["10.96.0.9"], "ports": []});
    for event in [
        OwnEvent::Namespaces(ResourceEvent::Changed(object(json!({"metadata": {"name": "shop"}})))),
        OwnEvent::Exports(ResourceEvent::Changed(object(json!({"metadata": metadata})))),
        OwnEvent::Services(ResourceEvent::Changed(object(service))),
        OwnEvent::Imports(ResourceEvent::Changed(object(json!({
            "metadata": metadata, "spec": spec,
        })))),
    ] {
        state.update(Update::Own(event));
    }
    derived_changes(&mut state, ResourceEvent::Changed);
    (state, ServiceName::new("shop", "web").unwrap())
}

fn derived_changes(
    state: &mut State,
    event: fn(WatchedObject<ServiceDecoder>) -> ResourceEvent<ServiceDecoder>,
) {
    let labels = json!({"multicluster.kubernetes.io/service-name": "web"});
    let metadata = json!({"namespace": "shop", "name": "derived-x", "labels": labels});
    let spec = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]});
    let service = object(json!({"metadata": metadata, "spec": spec}));
    state.update(Update::Own(OwnEvent::Services(event(service))));
}

/// The VIP of the import as it is planned, its reason, and the reasons of the events.
fn planned(
    state: &mut State,
    lost: &mut Lost,
    name: &ServiceName,
) -> (String, String, Vec<String>) {
    while state.imports.next().is_some() {}
    let writes = plan(state, lost, name);
    let import = writes.iter().find_map(|write| match write {
        Write::ApplyImport(import) => Some(import.ips[0].to_string()),
        _ => None,
    });
    let reason = writes.iter().find_map(|write| match write {
        Write::SetImportStatus(_, status) => Some(status.conditions[0].reason.clone()),
        _ => None,
    });
    let told = state.take_notices().into_iter().map(|notice| notice.reason);
    let mut told: Vec<_> = told
        .filter(|reason| ["AddressInServiceRange", "AddressChanged"].contains(&&**reason))
        .collect();
    // The condition `Accepted` says the same.
    told.dedup();
    (import.unwrap(), reason.unwrap(), told)
}

#[test]
fn a_vip_of_the_service_range_stays_while_a_service_has_it() {
    let (mut state, name) = adopted();
    let mut lost = Lost::default();
    let ready = ("10.96.0.9".to_owned(), "Ready".to_owned(), vec![]);
    assert_eq!(planned(&mut state, &mut lost, &name), ready);
    derived_changes(&mut state, ResourceEvent::Deleted);
    assert_eq!(state.imports.next().as_ref(), Some(&name), "its condition says so");
    let (vip, reason, told) = planned(&mut state, &mut lost, &name);
    assert_eq!((&*vip, &*reason), ("10.96.0.9", "AddressInServiceRange"));
    assert_eq!(told, ["AddressInServiceRange"]);
    derived_changes(&mut state, ResourceEvent::Changed);
    assert_eq!(state.imports.next().as_ref(), Some(&name));
    assert_eq!(planned(&mut state, &mut lost, &name), ready, "it was made again");
    derived_changes(&mut state, ResourceEvent::Deleted);
    planned(&mut state, &mut lost, &name);
    let now = Instant::now();
    lost.forget(&mut state, now);
    assert_eq!(planned(&mut state, &mut lost, &name).0, "10.96.0.9");
    lost.forget(&mut state, now + LostVip::GRACE);
    assert_eq!(state.imports.next().as_ref(), Some(&name));
    let (vip, reason, told) = planned(&mut state, &mut lost, &name);
    assert!(vip.starts_with("241."), "{vip}");
    assert_eq!((&*reason, &*told), ("Ready", &["AddressChanged".to_owned()][..]));
    assert_eq!(planned(&mut state, &mut lost, &name).2, [""; 0], "once");
}

#[test]
fn an_import_that_is_not_taken_over_loses_no_vip() {
    let (mut state, name) = adopted();
    let mut lost = Lost::default();
    let export = object(json!({"metadata": {"namespace": "shop", "name": "web"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Deleted(export))));
    derived_changes(&mut state, ResourceEvent::Deleted);
    plan(&mut state, &mut lost, &name);
    let told = state.take_notices();
    assert!(told.iter().all(|notice| notice.reason == "NoPorts"), "nobody exports it: {told:?}");
}

#[test]
fn a_vip_that_a_stranger_has_is_given_up_at_once() {
    for (namespace, waits) in [("bank", false), ("shop", true)] {
        let (mut state, name) = adopted();
        let mut lost = Lost::default();
        derived_changes(&mut state, ResourceEvent::Deleted);
        if waits {
            planned(&mut state, &mut lost, &name);
        }
        let metadata = json!({"namespace": namespace, "name": "pay"});
        let pay = object(json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.9"}}));
        while state.imports.next().is_some() {}
        state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(pay))));
        assert_eq!(state.imports.next().as_ref(), Some(&name));
        let (vip, _, told) = planned(&mut state, &mut lost, &name);
        assert!(vip.starts_with("241."), "{namespace}: {vip}");
        assert_eq!(told.last().map(String::as_str), Some("AddressChanged"));
    }
}
