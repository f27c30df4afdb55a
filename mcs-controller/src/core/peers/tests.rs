//! Which peers there are, what is kept of them, and which mailbox of two counts.

use serde_json::{Value, json};

use super::*;
use crate::core::{
    mailbox::MailboxProblem,
    objects::{PublisherLease, complete_lease, publisher_lease},
};

fn peer(id: &Value, ranges: &Value) -> mcs_kube::WatchedObject<PeerDecoder> {
    named("east", id, ranges)
}

fn named(name: &str, id: &Value, ranges: &Value) -> mcs_kube::WatchedObject<PeerDecoder> {
    let spec = json!({"clusterId": id, "kubeconfigSecretRef": {"name": name}, "podCIDRs": ranges});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn good() -> mcs_kube::WatchedObject<PeerDecoder> {
    peer(&json!("east"), &json!(["10.0.0.0/8"]))
}

fn listed(peers: Vec<mcs_kube::WatchedObject<PeerDecoder>>) -> ResourceEvent<PeerDecoder> {
    ResourceEvent::Listed { version: "v1alpha1".to_owned(), objects: peers }
}

fn of_east() -> Unread {
    Unread { clusters: ["east".parse().unwrap()].into(), others: false }
}

#[test]
fn a_peer_that_cannot_be_used_is_a_peer() {
    let mut peers = Peers::default();
    peers.apply(listed(vec![peer(&json!("east"), &json!(["10.0.0.0/99"]))]), &Reserved::default());
    assert_eq!(peers.unread(), of_east());
    peers.apply(ResourceEvent::Changed(peer(&json!("East!"), &json!([]))), &Reserved::default());
    assert_eq!(peers.unread(), Unread { others: true, ..Unread::default() });
    peers.apply(ResourceEvent::Changed(good()), &Reserved::default());
    assert_eq!(peers.unread(), Unread::default());
    let error = peer(&json!("east"), &json!(["10.0.0.0/99"]));
    peers.apply(ResourceEvent::Changed(error), &Reserved::default());
    assert_eq!((peers.all().len(), peers.broken().len()), (1, 0), "it stays as it was");
    let ranges = vec!["10.96.0.0/12".parse().unwrap()];
    let reserved = Reserved { ranges, ..Reserved::default() };
    peers.reserve(&reserved);
    assert_eq!(peers.all()["east"].rules.endpoints.reserved, reserved);
    assert!(!peers.have_any_address());
    peers.apply(ResourceEvent::Changed(peer(&json!("east"), &json!([]))), &reserved);
    assert!(peers.have_any_address());
}

#[test]
fn peers_that_go_with_their_type_are_not_forgotten() {
    let mut peers = Peers::default();
    peers.apply(listed(vec![good()]), &Reserved::default());
    peers.apply(ResourceEvent::Deleted(good()), &Reserved::default());
    assert_eq!(peers.unread(), of_east());
    assert!(!peers.forget(Instant::now()), "the type may be about to go");
    peers.apply(ResourceEvent::NotServed { last_heard: None }, &Reserved::default());
    let later = || Instant::now() + GRACE;
    assert!(!peers.forget(later()));
    peers.apply(listed(vec![]), &Reserved::default());
    assert_eq!(peers.unread(), of_east());
    assert!(peers.forget(later()));
    assert_eq!(peers.unread(), Unread::default());
    peers.apply(listed(vec![good()]), &Reserved::default());
    peers.apply(listed(vec![]), &Reserved::default());
    assert_eq!(peers.unread(), of_east(), "an empty list");
    peers.apply(listed(vec![good()]), &Reserved::default());
    assert_eq!(peers.unread(), Unread::default(), "it is back");
}

#[test]
fn of_two_mailboxes_the_one_that_is_renewed_counts() {
    let mut peers = Peers::default();
    let both = ["home", "hub"].map(|name| named(name, &json!("east"), &json!([])));
    peers.apply(listed(both.into()), &Reserved::default());
    let own = "own".parse().unwrap();
    let chosen = |peers: &Peers| peers.by_cluster(&own)[0].number;
    let number = |peers: &Peers, name: &str| peers.all()[name].number;
    let renew = |peers: &mut Peers, name: &str, second: u64| {
        read_mailbox(peers, name, &complete_lease("east", 0, second)).all
    };
    renew(&mut peers, "home", 1000);
    assert_eq!(chosen(&peers), number(&peers, "home"));
    renew(&mut peers, "hub", 1030);
    assert_eq!(chosen(&peers), number(&peers, "home"), "both are renewed");
    assert!(renew(&mut peers, "hub", 1041), "another choice changes everything");
    assert_eq!(chosen(&peers), number(&peers, "hub"));
    assert!(!renew(&mut peers, "hub", 1051));
}

/// Reads an empty mailbox.
fn read_mailbox(peers: &mut Peers, name: &str, lease: &PublisherLease) -> PeerChanges {
    let second = i64::try_from(lease.stamp.sequence).unwrap();
    let now = Timestamp::from_second(second).unwrap();
    let lease = serde_json::from_value(publisher_lease("m", lease, now)).unwrap();
    let version = || "v1".to_owned();
    let services = ResourceEvent::Listed { version: version(), objects: vec![] };
    let slices = ResourceEvent::Listed { version: version(), objects: vec![] };
    let lease = ResourceEvent::Listed { version: version(), objects: vec![lease] };
    let name: PeerName = name.into();
    let number = peers.all()[&name].number;
    peers.apply_mailbox(&name, number, MailboxEvent::Services(services));
    peers.apply_mailbox(&name, number, MailboxEvent::Slices(slices));
    peers.apply_mailbox(&name, number, MailboxEvent::Lease(lease))
}

#[test]
fn a_cluster_that_was_made_anew_counts_once_its_peer_says_so() {
    let of_uid = |uid: &str| {
        let spec = json!({
            "clusterId": "east", "clusterUid": uid, "kubeconfigSecretRef": {"name": "east"},
            "podCIDRs": ["10.0.0.0/8"],
        });
        serde_json::from_value(json!({"metadata": {"name": "east"}, "spec": spec})).unwrap()
    };
    let lease_of = |uid: &str, sequence: u64| PublisherLease {
        uid: Some(uid.to_owned()),
        ..complete_lease("east", 0, sequence)
    };
    let mut peers = Peers::default();
    peers.apply(listed(vec![of_uid("one")]), &Reserved::default());
    read_mailbox(&mut peers, "east", &lease_of("one", 1));
    assert!(peers.are_known());
    read_mailbox(&mut peers, "east", &lease_of("two", 2));
    let problem = peers.all()["east"].view.identity_problem();
    assert_eq!(problem, Some(MailboxProblem::OtherUid("two".to_owned())));
    assert!(!peers.are_known(), "nothing of it is used");
    let changes = peers.apply(ResourceEvent::Changed(of_uid("two")), &Reserved::default());
    assert!(changes.all && changes.connections.is_empty());
    assert!(peers.are_known(), "the operator has replaced it");
    // A ClusterPeer without a uid takes any.
    peers.apply(ResourceEvent::Changed(good()), &Reserved::default());
    read_mailbox(&mut peers, "east", &lease_of("three", 3));
    assert!(peers.are_known());
}
