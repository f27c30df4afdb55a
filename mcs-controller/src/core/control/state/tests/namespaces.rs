//! Who is told that a cluster lacks a namespace, and when.

use super::*;
use crate::core::feature::Features;

/// This cluster with the peer west, which exports `shop/web`.
pub(crate) fn with_west() -> State {
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
        OwnEvent::Nodes(listed()),
    ] {
        state.update(Update::Own(event));
    }
    state.update(Update::Secrets(listed()));
    assert!(state.is_synced());
    state
}

pub(crate) fn of_west(state: &mut State, event: MailboxEvent) {
    let number = state.peers.all()["west"].number;
    state.update(Update::Mailbox(MailboxId::Peer("west".into(), number), event));
}

/// West reads its own mailbox, and renews the Lease, which says that it lacks these namespaces.
pub(crate) fn west_says(state: &mut State, second: u32, services: usize, lacking: &[&str]) {
    let lease = crate::core::objects::PublisherLease {
        lacking: Arc::new(lacking.iter().map(|&namespace| namespace.into()).collect()),
        ..complete_lease("west", services, second.into())
    };
    let renewed = jiff::Timestamp::from_second(second.into()).unwrap();
    let objects = vec![object(publisher_lease("m", &lease, renewed))];
    let version = "v1".to_owned();
    of_west(state, MailboxEvent::Lease(ResourceEvent::Listed { version, objects }));
}

/// Plans what waits, as the control task does.
pub(crate) fn drain(state: &mut State) -> Vec<Write> {
    drain_with(state, &mut Features::default())
}

pub(crate) fn drain_with(state: &mut State, features: &mut Features) -> Vec<Write> {
    let mut writes = vec![];
    while let Some(name) = state.imports.next() {
        writes.extend(features.plan(&name, state));
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
    let said = crate::core::objects::PublisherLease {
        lacking: Arc::new(["gone".into(), "shop".into()].into()),
        ..complete_lease("east", 0, 1)
    };
    let objects = vec![object(publisher_lease("m", &said, jiff::Timestamp::UNIX_EPOCH))];
    let lease = ResourceEvent::Listed { version: "v1".to_owned(), objects };
    state.update(Update::Mailbox(MailboxId::Own, MailboxEvent::Lease(lease)));
    assert_eq!(lacking(&state), ["gone", "shop"]);
    drain(&mut state);
    assert_eq!(lacking(&state), ["gone", "shop"], "nothing of west was read yet");

    let exported = crate::core::objects::Exported {
        export: crate::core::clusterset::fixture::export(
            "west",
            1,
            crate::core::clusterset::fixture::spec(),
        ),
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
