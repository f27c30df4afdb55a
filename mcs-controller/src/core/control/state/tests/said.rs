//! What is said while a cluster is unread or silent, and which spec it is about.

use super::{
    namespaces::{drain, of_west, west_says, with_west},
    *,
};
use crate::core::{clusterset::Condition, objects::export_status};

/// This cluster has exported shop/web-0, and has imported it from west too, before it started. `conditions` of the export: type,
/// status and reason.
pub(crate) fn started(conditions: &[[&str; 3]]) -> State {
    let mut state = with_west();
    exporting(&mut state, 1);
    let metadata = json!({"namespace": "shop", "name": "web-0", "labels": {
        "app.kubernetes.io/managed-by": "mcs-controller",
    }});
    let import = object(json!({
        "metadata": metadata,
        "spec": {"type": "ClusterSetIP", "ips": ["241.0.0.1"], "ipFamilies": ["IPv4"], "ports": []},
        "status": {"clusters": [{"cluster": "east"}, {"cluster": "west"}]},
    }));
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    let spec = json!({"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"]});
    let metadata = json!({"namespace": "shop", "name": "web-0"});
    let service = object(json!({"metadata": metadata, "spec": spec}));
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(import))));
    let condition = |[kind, status, reason]: &[&str; 3]| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "as before",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    };
    let conditions: Vec<_> = conditions.iter().map(condition).collect();
    exports(&mut state, 1, &json!({"conditions": conditions}));
    state
}

/// The ServiceExport shop/web-0 is this now.
fn exports(state: &mut State, generation: i64, status: &Value) {
    let metadata = json!({"namespace": "shop", "name": "web-0", "generation": generation});
    let export = object(json!({"metadata": metadata, "status": status}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
}

/// West is read, and exports nothing.
pub(crate) fn read_west(state: &mut State) {
    of_west(state, MailboxEvent::Services(listed()));
    of_west(state, MailboxEvent::Slices(listed()));
    west_says(state, 1, 0, &[]);
    west_says(state, 2, 0, &[]);
}

/// The conditions that are written of the export.
fn of_export(writes: &[Write]) -> Option<&Vec<Condition>> {
    writes.iter().find_map(|write| match write {
        Write::SetExportConditions(_, conditions) => Some(conditions),
        _ => None,
    })
}

#[test]
fn an_export_keeps_its_conflict_while_a_cluster_that_contributes_is_unread() {
    let conflict = |state: &mut State| {
        let writes = drain(state);
        let conditions = of_export(&writes).unwrap().iter();
        let conflict = conditions.filter(|one| one.condition_type == ConditionType::Conflict);
        let told: Vec<_> = conflict.map(|one| format!("{}/{}", one.status, one.reason)).collect();
        told.concat()
    };
    for (former, expected) in [
        (&[["Conflict", "True", "PortConflict"]][..], "True/PortConflict"),
        (&[["Conflict", "False", "NoConflicts"]], "False/NoConflicts"),
        (&[], "Unknown/Pending"),
    ] {
        let mut state = started(former);
        assert_eq!(conflict(&mut state), expected, "{former:?}");
        read_west(&mut state);
        assert_eq!(conflict(&mut state), "False/NoConflicts", "{former:?}: it is read");
    }
}

#[test]
fn nobody_knows_what_is_refused_before_it_was_tried() {
    let (mut state, west) = (with_west(), "west".into());
    let has_tried = |state: &mut State| {
        state.note_tried();
        state.has_tried(&west)
    };
    assert!(!has_tried(&mut state), "its mailbox was not read");
    read_west(&mut state);
    let name = ServiceName::new("shop", "web").unwrap();
    state.imports.add_of(Some("west".parse().unwrap()), name.clone());
    assert!(!has_tried(&mut state), "a service waits");
    assert_eq!(state.imports.next(), Some(name.clone()));
    state.imports.begin(name.clone());
    assert!(!has_tried(&mut state), "it is being written");
    state.imports.end(&name, true, Instant::now());
    assert!(has_tried(&mut state));
    state.imports.add(name.clone());
    assert!(has_tried(&mut state), "what comes later was known before");
    state.lead();
    assert!(!has_tried(&mut state), "another replica may have seen refusals since");
}

#[test]
fn an_import_says_which_of_its_clusters_give_no_sign_of_life() {
    let ready = |state: &mut State| {
        let writes = drain(state);
        let status = writes.iter().find_map(|write| match write {
            Write::SetImportStatus(_, status) => Some(status),
            _ => None,
        });
        status.map(|status| status.condition(ConditionType::Ready).unwrap().message.clone())
    };
    let words = ", as of the last sign of life of west";
    let mut state = started(&[]);
    state.note_silent(Instant::now());
    assert!(!ready(&mut state).unwrap().contains(words), "nobody knows");
    state.note_silent(Instant::now() + Duration::from_hours(1));
    let message = ready(&mut state).unwrap();
    assert!(message.contains(words), "{message}");
    state.note_silent(Instant::now());
    assert_eq!(state.imports.next(), None, "nothing has turned");
    read_west(&mut state);
    drain(&mut state);
    state.note_silent(Instant::now());
    assert_eq!(state.silent, BTreeSet::new());
    assert!(state.imports.next().is_some(), "its imports say so");

    // A replica that starts goes on with what the ClusterPeer says.
    let mut state = started(&[]);
    let condition = json!({
        "type": "Fresh", "status": "False", "reason": "Stale", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let peer = object(json!({
        "metadata": {"name": "west"},
        "spec": {"clusterId": "west", "kubeconfigSecretRef": {"name": "west"}},
        "status": {"conditions": [condition]},
    }));
    state.update(Update::Peers(ResourceEvent::Changed(peer)));
    state.note_silent(Instant::now());
    assert!(ready(&mut state).unwrap().contains(words));
}

#[test]
fn conditions_of_an_export_say_which_spec_they_are_about() {
    let mut state = started(&[]);
    read_west(&mut state);
    let written = |state: &mut State| of_export(&drain(state)).cloned();
    let generations = |conditions: &[Condition]| -> Vec<_> {
        conditions.iter().map(|one| one.generation).collect()
    };
    let first = written(&mut state).unwrap();
    assert_eq!(generations(&first), [Some(1); 3]);
    let status = |conditions: &[Condition]| {
        let object = export_status(
            "v1beta1",
            ("shop", "web-0"),
            conditions,
            &[],
            jiff::Timestamp::UNIX_EPOCH,
        );
        object["status"].clone()
    };
    exports(&mut state, 1, &status(&first));
    assert_eq!(written(&mut state), None, "nothing has changed");
    exports(&mut state, 2, &status(&first));
    assert_eq!(generations(&written(&mut state).unwrap()), [Some(2); 3]);
    // The definition may lack the field.
    state.leave_out_generation();
    state.queue_all();
    let bare = written(&mut state).unwrap();
    assert_eq!(generations(&bare), [None; 3]);
    assert!(!status(&bare).to_string().contains("observedGeneration"));
    exports(&mut state, 3, &status(&bare));
    assert_eq!(written(&mut state), None);
}

#[test]
fn exports_say_that_changes_here_reach_nobody() {
    let mut state = started(&[]);
    listed_mailbox(&mut state);
    let lease = publisher_lease("m", &complete_lease("east", 0, 1), jiff::Timestamp::UNIX_EPOCH);
    let event = MailboxEvent::Lease(ResourceEvent::Changed(object(lease)));
    state.update(Update::Mailbox(MailboxId::Own, event));
    assert!(state.statement().complete);
    let reason = "cannot read endpointslices.discovery.k8s.io (local): 403".to_owned();
    state.note_silence(Some(Publication::Unread(reason)));
    assert!(!state.statement().complete, "readers keep what they have");
    let conditions = of_export(&drain(&mut state)).cloned().unwrap();
    let ready = conditions.iter().find(|one| one.condition_type == ConditionType::Ready).unwrap();
    assert_eq!((&*ready.status.to_string(), &*ready.reason), ("Unknown", "NotRead"));
    assert!(ready.message.ends_with("(local): 403"), "{}", ready.message);
}
