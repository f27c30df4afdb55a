//! What a service with many slices, endpoints or ports costs.

use mcs_kube::{Decoder, ResourceEvent, WatchedObject};
use serde_json::{Value, from_value, json};

use super::*;
use crate::core::{
    clusterset::{
        ServicePort, ServiceSpec, SlicePort, SourceSlice, Stamp,
        fixture::{self, cluster, endpoint, name, port, spec},
        work,
    },
    mailbox::{MailboxEvent, MailboxWrite},
    objects::{
        Exported, complete_lease, exported_service, import, imported_slice, mailbox_slice,
        publisher_lease,
    },
    own_cluster::OwnEvent,
    plan::Write,
};

const SLICES: usize = 300;
/// What etcd takes in one request.
const LARGEST_OBJECT: usize = 3 << 19;
const WRITTEN: Stamp = Stamp { mailbox: 0, epoch: 1, sequence: 1 };

fn object<D: Decoder>(value: Value) -> WatchedObject<D> {
    from_value(value).unwrap()
}

fn changed<D: Decoder>(value: Value) -> ResourceEvent<D> {
    ResourceEvent::Changed(object(value))
}

fn listed<D: Decoder>(objects: Vec<Value>) -> ResourceEvent<D> {
    let objects = objects.into_iter().map(object).collect();
    ResourceEvent::Listed { version: "v1".to_owned(), objects }
}

fn slice(number: usize, generation: i64) -> SourceSlice {
    let addresses = [format!("10.2.{}.{}", number / 250, number % 250)];
    let slice = fixture::slice(&format!("web-{number}"), &[&*addresses[0]]);
    SourceSlice { generation, stamp: WRITTEN, ..slice }
}

fn peer(name: &str, range: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "clusterId": name, "kubeconfigSecretRef": {"name": name}, "podCIDRs": [range],
    }})
}

/// In the mailbox of west.
fn of_west(number: usize, generation: i64) -> Value {
    mailbox_slice("m", &cluster("west"), &name("shop/web"), &slice(number, generation), WRITTEN)
}

/// The cluster has written these slices. Returns how many they were.
fn write(state: &mut State, writes: &[Write]) -> usize {
    let slices = writes.iter().filter_map(|write| match write {
        Write::ApplySlice(slice) => Some(changed(imported_slice(slice))),
        _ => None,
    });
    slices.map(|event| state.update(Update::Own(OwnEvent::ImportedSlices(event)))).count()
}

/// West publishes `shop/web`. Returns what its publisher writes beside the slices.
fn publish_as_west(state: &mut State, spec: ServiceSpec, slices: Vec<Value>) -> Value {
    let namespace = json!({"metadata": {"name": "shop"}});
    state.update(Update::Own(OwnEvent::Namespaces(listed(vec![namespace]))));
    state.update(Update::Peers(listed(vec![peer("west", "10.2.0.0/16")])));
    let mut names: Vec<Arc<str>> = (0..slices.len()).map(|n| format!("web-{n}").into()).collect();
    names.sort();
    let exported = Exported { export: fixture::export("west", 1, spec), slices: names };
    let exported = exported_service("m", &exported, WRITTEN, false, None).unwrap();
    let lease = publisher_lease("m", &complete_lease("west", 1, 1), jiff::Timestamp::UNIX_EPOCH);
    for event in [
        MailboxEvent::Services(listed(vec![exported.clone()])),
        MailboxEvent::Slices(listed(slices)),
        MailboxEvent::Lease(listed(vec![lease])),
    ] {
        state.update(of_mailbox_of_west(state, event));
    }
    exported
}

fn of_mailbox_of_west(state: &State, event: MailboxEvent) -> Update {
    Update::Mailbox(MailboxId::Peer("west".into(), state.peers.all()["west"].number), event)
}

#[test]
fn a_service_of_5000_endpoints_and_500_ports_passes_in_objects_that_fit() {
    // As many endpoints as the API allows in a slice, and ports with the longest names.
    let ports: Vec<_> = (1..=500).map(|n| port(&format!("{n:0>63}"), n)).collect();
    let of_slice = |port: &ServicePort| SlicePort {
        name: Arc::clone(&port.name),
        protocol: port.protocol,
        port: Some(port.port),
        app_protocol: None,
    };
    let slice_ports: Vec<_> = ports.iter().map(of_slice).collect();
    let slice = |slice: usize| {
        let addresses = (0..1000).map(|n| format!("10.2.{}.{}", slice * 4 + n / 250, n % 250));
        let slice = SourceSlice {
            ports: slice_ports.clone(),
            endpoints: addresses.map(|address| endpoint(&address)).collect(),
            ..self::slice(slice, 1)
        };
        mailbox_slice("m", &cluster("west"), &name("shop/web"), &slice, WRITTEN)
    };
    let mut objects: Vec<Value> = (0..5).map(slice).collect();
    let mut state = super::tests::state();
    let spec = ServiceSpec { ports, ..spec() };
    objects.push(publish_as_west(&mut state, spec, objects.clone()));
    assert_eq!(state.peers.all()["west"].view.endpoints(), 5000);

    for write in state.plan_and_note(&name("shop/web")) {
        objects.push(match write {
            Write::ApplySlice(slice) => {
                assert_eq!((slice.endpoints.len(), slice.ports.len()), (1000, 500));
                imported_slice(&slice)
            }
            Write::ApplyImport(wanted) => {
                assert_eq!(wanted.spec.ports.len(), 500);
                import("v1alpha1", &wanted)
            }
            _ => continue,
        });
    }
    assert_eq!(objects.len(), 12);
    let largest = objects.iter().map(|object| object.to_string().len()).max();
    assert!(largest < Some(LARGEST_OBJECT / 4), "{largest:?}");
}

#[test]
fn a_change_of_one_slice_of_a_peer_looks_into_that_slice() {
    let mut state = super::tests::state();
    let all = (0..SLICES).map(|number| of_west(number, 1)).collect();
    publish_as_west(&mut state, spec(), all);
    let web = name("shop/web");
    work();
    let writes = state.plan_and_note(&web);
    assert_eq!((write(&mut state, &writes), work()), (SLICES, SLICES));
    assert_eq!(state.peers.all()["west"].view.endpoints(), SLICES);

    let change = MailboxEvent::Slices(changed(of_west(7, 2)));
    state.update(of_mailbox_of_west(&state, change));
    let writes = state.plan_and_note(&web);
    assert_eq!((write(&mut state, &writes), work()), (1, 1));
    let writes = state.plan_and_note(&web);
    assert_eq!((write(&mut state, &writes), work()), (0, 0));

    // Endpoints that were taken may not be taken now.
    let api_server = json!({
        "metadata": {"namespace": "default", "name": "kubernetes", "labels": {
            "kubernetes.io/service-name": "kubernetes",
        }},
        "addressType": "IPv4", "ports": [], "endpoints": [{"addresses": ["10.2.0.9"]}],
    });
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.2.1.0/24"]}});
    let north = peer("north", "10.2.0.16/29");
    for (update, lost) in [
        (Update::Own(OwnEvent::Slices(changed(api_server))), 1),
        (Update::Own(OwnEvent::Nodes(changed(node))), SLICES - 250),
        (Update::Peers(changed(north)), 8),
        (Update::Peers(changed(peer("west", "10.2.0.0/17"))), 0),
        (Update::Peers(changed(peer("west", "10.2.0.0/25"))), 250 - 128),
    ] {
        state.update(update);
        let writes = state.plan_and_note(&web);
        assert_eq!((write(&mut state, &writes), work()), (lost, SLICES), "{lost}");
        let writes = state.plan_and_note(&web);
        assert_eq!((write(&mut state, &writes), work()), (0, 0), "{lost}");
    }
}

#[test]
fn a_change_of_one_slice_of_this_cluster_looks_into_that_slice() {
    let mut state = super::tests::state();
    let metadata = json!({"namespace": "shop", "name": "web"});
    let local = |number: usize, generation: i64| {
        let mut local = of_west(number, generation);
        local["metadata"] = json!({
            "namespace": "shop", "name": format!("web-{number}"), "generation": generation,
            "labels": {"kubernetes.io/service-name": "web"},
        });
        local
    };
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}});
    state.update(Update::Own(OwnEvent::Exports(changed(json!({"metadata": metadata})))));
    state.update(Update::Own(OwnEvent::Services(changed(service))));
    let all = (0..SLICES).map(|number| local(number, 1)).collect();
    state.update(Update::Own(OwnEvent::Slices(listed(all))));
    let web = name("shop/web");
    let publish = |state: &mut State| {
        let writes = state.plan_and_note_publication(&web);
        for write in &writes {
            let event = match write {
                MailboxWrite::ApplySlice(_, slice) => {
                    let copy = mailbox_slice("m", state.cluster(), &web, slice, Stamp::NONE);
                    MailboxEvent::Slices(changed(copy))
                }
                MailboxWrite::ApplyService(exported) => {
                    let exported = exported_service("m", exported, Stamp::NONE, false, None);
                    MailboxEvent::Services(changed(exported.unwrap()))
                }
                other => panic!("{other:?}"),
            };
            state.update(Update::Mailbox(MailboxId::Own, event));
        }
        writes.len()
    };
    assert_eq!(publish(&mut state), SLICES + 1);
    assert_eq!(publish(&mut state), 0);
    work();
    state.update(Update::Own(OwnEvent::Slices(changed(local(7, 2)))));
    assert_eq!(publish(&mut state), 1);
    assert_eq!(publish(&mut state), 0);
    assert_eq!(work(), 2, "the slice and its copy");
}
