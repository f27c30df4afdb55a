//! Who is told that a cluster lacks a namespace, and when.

use super::*;
use crate::clusterset::ConditionType;

/// This cluster with the peer west, which exports `shop/web`.
pub(super) fn with_west() -> State {
    let mut state = state();
    let peer = object(json!({"metadata": {"name": "west"}, "spec": {
        "clusterId": "west", "kubeconfigSecretRef": {"name": "west"},
    }}));
    let objects = vec![peer];
    state.update(Update::Peers(ResourceEvent::Listed { version: "v1".to_owned(), objects }));
    for event in [
        OwnEvent::Exports(listed()),
        OwnEvent::Services(listed()),
        OwnEvent::Slices(listed()),
        OwnEvent::Namespaces(listed()),
        OwnEvent::Properties(listed()),
        OwnEvent::Imports(listed()),
        OwnEvent::ImportedSlices(listed()),
        OwnEvent::Ranges(listed()),
        OwnEvent::Rules(listed()),
        OwnEvent::Nodes(listed()),
    ] {
        state.update(Update::Own(event));
    }
    state.update(Update::Secrets(listed()));
    assert!(state.is_synced());
    state
}

pub(super) fn of_west(state: &mut State, event: MailboxEvent) {
    let number = state.peers.all()["west"].number;
    state.update(Update::Mailbox(MailboxId::Peer("west".into(), number), event));
}

/// West reads its own mailbox, and renews the Lease, which says that it lacks these namespaces.
pub(super) fn west_says(state: &mut State, second: u32, services: usize, lacking: &[&str]) {
    let lease = crate::objects::PublisherLease {
        lacking: Arc::new(lacking.iter().map(|&namespace| namespace.into()).collect()),
        ..complete_lease("west", services, second.into())
    };
    let renewed = jiff::Timestamp::from_second(second.into()).unwrap();
    let objects = vec![object(publisher_lease("m", &lease, renewed))];
    let version = "v1".to_owned();
    of_west(state, MailboxEvent::Lease(ResourceEvent::Listed { version, objects }));
}

/// Plans what waits, as the control task does.
pub(super) fn drain(state: &mut State) -> Vec<Write> {
    let mut writes = vec![];
    while let Some(name) = state.imports.next() {
        writes.extend(state.plan_and_note(&name));
        state.imports.end(&name, false, Instant::now());
    }
    state.note_lacking();
    writes
}

fn lacking(state: &State) -> Vec<String> {
    state.statement().lacking.iter().map(ToString::to_string).collect()
}

#[test]
fn an_importer_says_which_namespaces_of_exports_it_lacks() {
    let mut state = with_west();
    listed_mailbox(&mut state);
    // A replica that has just begun to lead goes on with what the Lease says.
    let said = crate::objects::PublisherLease {
        lacking: Arc::new(["gone".into(), "shop".into()].into()),
        ..complete_lease("east", 0, 1)
    };
    let objects = vec![object(publisher_lease("m", &said, jiff::Timestamp::UNIX_EPOCH))];
    let lease = ResourceEvent::Listed { version: "v1".to_owned(), objects };
    state.update(Update::Mailbox(MailboxId::Own, MailboxEvent::Lease(lease)));
    assert_eq!(lacking(&state), ["gone", "shop"]);
    drain(&mut state);
    assert_eq!(lacking(&state), ["gone", "shop"], "nothing of west was read yet");

    let exported = crate::objects::Exported {
        export: crate::clusterset::fixture::export("west", 1, crate::clusterset::fixture::spec()),
        slices: vec![],
    };
    let stamp = Stamp { mailbox: 0, epoch: 1, sequence: 1 };
    let service = object(exported_service("m", &exported, stamp, false, None).unwrap());
    let objects = vec![service];
    let services = ResourceEvent::Listed { version: "v1".to_owned(), objects };
    of_west(&mut state, MailboxEvent::Services(services));
    of_west(&mut state, MailboxEvent::Slices(listed()));
    west_says(&mut state, 1, 1, &[]);
    drain(&mut state);
    assert_eq!(lacking(&state), ["gone", "shop"], "west may publish elsewhere");
    west_says(&mut state, 2, 1, &[]);
    drain(&mut state);
    assert_eq!(lacking(&state), ["shop"]);

    state.settings.create_namespaces = true;
    drain(&mut state);
    assert_eq!(lacking(&state), [""; 0], "it is about to be there");
    state.settings.create_namespaces = false;
    state.lead();
    assert_eq!(lacking(&state), ["gone", "shop"], "as the Lease says");
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    drain(&mut state);
    assert_eq!(lacking(&state), [""; 0]);
}

/// `shop/web-0` with the conditions that it should have. Returns the messages of `Imported`, and the reasons of events.
fn told(state: &mut State, name: &ServiceName) -> (Vec<String>, Vec<String>) {
    let writes = drain(state);
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
    drain(state);
    let mut reasons: Vec<_> =
        state.take_notices().into_iter().map(|notice| notice.reason).collect();
    // A service that waits for two reasons is planned twice, and nothing is said twice in a row.
    reasons.dedup();
    messages.dedup();
    (messages, reasons)
}

#[test]
fn an_exporter_is_told_who_lacks_its_namespace_and_when_that_ends() {
    let mut state = with_west();
    let name = exporting(&mut state, 1).remove(0);
    of_west(&mut state, MailboxEvent::Services(listed()));
    of_west(&mut state, MailboxEvent::Slices(listed()));
    west_says(&mut state, 1, 0, &[]);
    assert_eq!(told(&mut state, &name), (vec![], vec![]));
    west_says(&mut state, 2, 0, &["cart", "shop"]);
    let (messages, events) = told(&mut state, &name);
    assert_eq!(events, ["NamespaceMissing"]);
    assert!(messages[0].contains("namespace shop is missing: west."), "{messages:?}");
    west_says(&mut state, 3, 0, &["shop"]);
    assert_eq!(told(&mut state, &name), (vec![], vec![]), "another namespace");
    of_west(&mut state, MailboxEvent::Lease(listed()));
    state.queue_all();
    assert_eq!(told(&mut state, &name), (vec![], vec![]), "no Lease is no word");
    west_says(&mut state, 4, 0, &[]);
    assert_eq!(told(&mut state, &name), (vec![], vec!["NamespaceFound".to_owned()]));
}

/// A controller that starts has read nothing of its peers.
#[test]
fn what_an_exporter_was_told_stays_until_every_peer_has_said_something() {
    let mut state = with_west();
    let name = exporting(&mut state, 1).remove(0);
    west_says(&mut state, 1, 0, &["shop"]);
    assert_eq!(told(&mut state, &name).1, ["NamespaceMissing"]);
    let export = state.own.export_object(&name).cloned().unwrap();
    let mut state = with_west();
    exporting(&mut state, 1);
    let conditions = serde_json::to_value(&export.conditions).unwrap();
    let metadata = json!({"namespace": "shop", "name": "web-0"});
    let export = object(json!({"metadata": metadata, "status": {"conditions": conditions}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    assert_eq!(told(&mut state, &name), (vec![], vec![]));
    of_west(&mut state, MailboxEvent::Services(listed()));
    of_west(&mut state, MailboxEvent::Slices(listed()));
    west_says(&mut state, 2, 0, &[]);
    assert_eq!(told(&mut state, &name), (vec![], vec!["NamespaceFound".to_owned()]));
}

#[test]
fn an_export_that_is_not_for_a_cluster_says_nothing_of_it() {
    let mut state = with_west();
    exporting(&mut state, 1);
    let metadata = json!({"namespace": "shop", "name": "web-0", "annotations": {
        "clusterset.mcs-agent.io/audience": "north",
    }});
    let export = object(json!({"metadata": metadata}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    west_says(&mut state, 1, 0, &["shop"]);
    let writes = drain(&mut state);
    assert!(writes.iter().any(|write| matches!(write, Write::SetExportConditions(..))));
    assert!(state.take_notices().is_empty(), "{writes:?}");
}
