//! What is told, and when.

use mcs_kube::ResourceEvent;
use serde_json::json;

use super::*;
use crate::core::{
    clusterset::{Import, ImportStatus, fixture::spec},
    control::{
        Update,
        state::tests::{
            exporting, listed,
            namespaces::{drain_with, of_west, west_says, with_west},
            object,
            said::{read_west, started},
            state,
        },
    },
    feature::Features,
    mailbox::MailboxEvent,
    own_cluster::OwnEvent,
};

fn features() -> Features {
    Features::of(Events::default())
}

/// The reasons of the events about the export.
fn events(state: &mut State) -> Vec<String> {
    let is_meant = |notice: &Notice| notice.regarding.kind == "ServiceExport";
    let notices = state.take_notices().into_iter().filter(is_meant);
    let mut reasons: Vec<_> = notices.map(|notice| notice.reason).collect();
    // A service that waits for two reasons is planned twice, and nothing is said twice in a row.
    reasons.dedup();
    reasons
}

#[test]
fn a_conflict_ends_once_the_cluster_that_contributes_is_read() {
    for (former, then) in [
        (&[["Conflict", "True", "PortConflict"]][..], &["NoConflicts"][..]),
        (&[["Conflict", "False", "NoConflicts"]], &[]),
        (&[], &[]),
    ] {
        let (mut state, mut features) = (started(former), features());
        drain_with(&mut state, &mut features);
        assert_eq!(events(&mut state), [""; 0], "{former:?}");
        read_west(&mut state);
        drain_with(&mut state, &mut features);
        assert_eq!(events(&mut state), then, "{former:?}: it is read");
    }
}

#[test]
fn an_export_that_ends_ends_no_conflict() {
    let mut features = features();
    let mut state = started(&[
        ["Valid", "True", "Valid"],
        ["Conflict", "True", "PortConflict"],
        ["clusterset.mcs-agent.io/Imported", "False", "NamespaceMissing"],
    ]);
    let service = object(json!({"metadata": {"namespace": "shop", "name": "web-0"}, "spec": {}}));
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Deleted(service))));
    drain_with(&mut state, &mut features);
    assert_eq!(events(&mut state), ["NoService"]);
}

#[test]
fn an_import_that_is_left_alone_is_told_once() {
    let (mut state, mut features) = (state(), features());
    let name = ServiceName::new("shop", "web").unwrap();
    let metadata = json!({"namespace": "shop", "name": "web", "uid": "u"});
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}});
    let spec = json!({"type": "ClusterSetIP", "ips": ["241.0.0.1"], "ports": []});
    let import = json!({"metadata": metadata, "spec": spec});
    let namespace = json!({"metadata": {"name": "shop"}});
    for event in [
        OwnEvent::Namespaces(ResourceEvent::Changed(object(namespace))),
        OwnEvent::Exports(ResourceEvent::Changed(object(json!({"metadata": metadata})))),
        OwnEvent::Services(ResourceEvent::Changed(object(service))),
        OwnEvent::Imports(ResourceEvent::Changed(object(import))),
    ] {
        state.update(Update::Own(event));
    }
    let writes = features.plan(&name, &mut state);
    let [notice, ports] = &*state.take_notices() else { panic!("two notices") };
    let Regarding { kind, uid, .. } = &notice.regarding;
    assert_eq!((*kind, &**uid, &*notice.reason), ("ServiceImport", "u", "LeftAlone"));
    assert_eq!(ports.reason, "NoPorts");
    let accepted = writes.iter().find_map(|write| match write {
        Write::SetAccepted(_, condition) => Some(&*condition.reason),
        _ => None,
    });
    assert_eq!(accepted, Some("NoPorts"), "its namespace can read that");
    features.plan(&name, &mut state);
    assert!(state.take_notices().iter().all(|notice| notice.reason != "LeftAlone"), "once");
}

#[test]
fn the_next_controller_tells_no_fault_again_that_the_one_before_has_told() {
    let name = ServiceName::new("shop", "web").unwrap();
    let metadata = json!({"namespace": "shop", "name": "web", "uid": "u"});
    let faults = |said: Option<&str>| {
        let (mut state, mut features) = (state(), features());
        let (kind, since) = (ConditionType::Accepted.name(), "2026-01-01T00:00:00Z");
        let condition = |reason| {
            json!({"type": kind, "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": since})
        };
        let import = json!({
            "metadata": metadata,
            "spec": {"type": "ClusterSetIP", "ips": ["241.0.0.1"], "ports": []},
            "status": {"conditions": said.map(condition).as_slice()},
        });
        let namespace = json!({"metadata": {"name": "shop"}});
        for event in [
            OwnEvent::Namespaces(ResourceEvent::Changed(object(namespace))),
            OwnEvent::Exports(ResourceEvent::Changed(object(json!({"metadata": metadata})))),
            OwnEvent::Imports(ResourceEvent::Changed(object(import))),
        ] {
            state.update(Update::Own(event));
        }
        features.plan(&name, &mut state);
        let told = state.take_notices();
        told.iter().filter(|notice| notice.reason == "NoPorts").count()
    };
    assert_eq!(faults(None), 1);
    assert_eq!(faults(Some("NoPorts")), 0);
    assert_eq!(faults(Some("AddressShared")), 1, "it is another fault");
}

/// `shop/web-0` with the conditions that it should have. Returns the messages of `Imported`, and the reasons of events.
fn told(
    state: &mut State,
    features: &mut Features,
    name: &ServiceName,
) -> (Vec<String>, Vec<String>) {
    let writes = drain_with(state, features);
    let mut messages = vec![];
    for write in &writes {
        let Write::SetExportConditions(_, conditions) = write else { continue };
        let all: Vec<_> = conditions
            .iter()
            .map(|one| {
                json!({
                    "type": one.condition_type.to_string(), "status": one.status.to_string(),
                    "reason": one.reason, "message": one.message,
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                })
            })
            .collect();
        let metadata = json!({"namespace": name.namespace(), "name": name.name()});
        let export = object(json!({"metadata": metadata, "status": {"conditions": all}}));
        state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
        let imported =
            conditions.iter().filter(|one| one.condition_type == ConditionType::Imported);
        messages.extend(imported.map(|one| one.message.clone()));
    }
    drain_with(state, features);
    let mut reasons: Vec<_> =
        state.take_notices().into_iter().map(|notice| notice.reason).collect();
    // A service that waits for two reasons is planned twice, and nothing is said twice in a row.
    reasons.dedup();
    messages.dedup();
    (messages, reasons)
}

#[test]
fn an_exporter_is_told_who_lacks_its_namespace_and_when_that_ends() {
    let (mut state, mut features) = (with_west(), features());
    let name = exporting(&mut state, 1).remove(0);
    of_west(&mut state, MailboxEvent::Services(listed()));
    of_west(&mut state, MailboxEvent::Slices(listed()));
    west_says(&mut state, 1, 0, &[]);
    assert_eq!(told(&mut state, &mut features, &name), (vec![], vec![]));
    west_says(&mut state, 2, 0, &["cart", "shop"]);
    let (messages, events) = told(&mut state, &mut features, &name);
    assert_eq!(events, ["NamespaceMissing"]);
    assert!(messages[0].contains("namespace shop is missing: west."), "{messages:?}");
    west_says(&mut state, 3, 0, &["shop"]);
    assert_eq!(told(&mut state, &mut features, &name), (vec![], vec![]), "another namespace");
    of_west(&mut state, MailboxEvent::Lease(listed()));
    state.queue_all();
    assert_eq!(told(&mut state, &mut features, &name), (vec![], vec![]), "no Lease is no word");
    west_says(&mut state, 4, 0, &[]);
    assert_eq!(told(&mut state, &mut features, &name), (vec![], vec!["NamespaceFound".to_owned()]));
}

/// A controller that starts has read nothing of its peers.
#[test]
fn what_an_exporter_was_told_stays_until_every_peer_has_said_something() {
    let (mut state, mut features) = (with_west(), features());
    let name = exporting(&mut state, 1).remove(0);
    west_says(&mut state, 1, 0, &["shop"]);
    assert_eq!(told(&mut state, &mut features, &name).1, ["NamespaceMissing"]);
    let export = state.own.export_object(&name).cloned().unwrap();
    let (mut state, mut features) = (with_west(), self::features());
    exporting(&mut state, 1);
    let conditions = serde_json::to_value(&export.conditions).unwrap();
    let metadata = json!({"namespace": "shop", "name": "web-0"});
    let export = object(json!({"metadata": metadata, "status": {"conditions": conditions}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    assert_eq!(told(&mut state, &mut features, &name), (vec![], vec![]));
    of_west(&mut state, MailboxEvent::Services(listed()));
    of_west(&mut state, MailboxEvent::Slices(listed()));
    west_says(&mut state, 2, 0, &[]);
    assert_eq!(told(&mut state, &mut features, &name), (vec![], vec!["NamespaceFound".to_owned()]));
}

#[test]
fn an_export_that_is_not_for_a_cluster_says_nothing_of_it() {
    let (mut state, mut features) = (with_west(), features());
    exporting(&mut state, 1);
    let metadata = json!({"namespace": "shop", "name": "web-0", "annotations": {
        "clusterset.mcs-agent.io/audience": "north",
    }});
    let export = object(json!({"metadata": metadata}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    west_says(&mut state, 1, 0, &["shop"]);
    let writes = drain_with(&mut state, &mut features);
    assert!(writes.iter().any(|write| matches!(write, Write::SetExportConditions(..))));
    assert!(state.take_notices().is_empty(), "{writes:?}");
}

#[test]
fn endpoints_that_stay_refused_are_told_again_and_so_is_their_end() {
    let (mut state, mut events) = (state(), Events::default());
    let name: ServiceName = "shop/web".parse().unwrap();
    let metadata = json!({"namespace": "shop", "name": "web", "labels": {
        "app.kubernetes.io/managed-by": "mcs-controller",
    }});
    let import = object(json!({"metadata": metadata, "spec": {
        "type": "ClusterSetIP", "ips": [], "ports": [],
    }}));
    state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(import))));
    let mut plan = state.plan(&name, Actual::default(), vec![]);
    let import = Import {
        name: name.clone(),
        ips: vec![],
        spec: spec(),
        has_derived_service: false,
        tiers: None,
    };
    plan.wanted.import = WantedImport::Present(Box::new(import), ImportStatus::default());
    let west: ClusterId = "west".parse().unwrap();
    let mut told = |is_refused: Option<bool>| {
        match is_refused {
            Some(is_refused) => {
                let one = ((west.clone(), Rejection::OutsidePodRanges), 2);
                plan.wanted.rejected = is_refused.then_some(one).into_iter().collect();
                events.note_rejected(&name, &plan.wanted, &mut state);
            }
            None => events.tell_again(&mut state),
        }
        let notices = state.take_notices().into_iter();
        notices.map(|notice| (notice.is_warning, notice.reason)).collect::<Vec<_>>()
    };
    let rejected = [(true, "EndpointsRefused".to_owned())];
    assert_eq!(told(Some(true)), rejected);
    assert_eq!(told(Some(true)), [], "nothing is new");
    assert_eq!(told(None), rejected);
    assert_eq!(told(Some(false)), [(false, "EndpointsAccepted".to_owned())]);
    assert_eq!(told(None), []);
    assert_eq!(told(Some(false)), []);
}
