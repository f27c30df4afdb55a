//! Which overlaps are told.

use mcs_kube::ResourceEvent;
use serde_json::json;

use super::*;
use crate::core::{
    clusterset::Reserved,
    control::{
        Update,
        state::tests::{object, state},
    },
    own_cluster::OwnEvent,
    peers::Peers,
};

#[test]
fn overlaps_of_vip_ranges_are_told() {
    let mut state = state();
    assert_eq!(overlaps(&state), [""; 0]);
    let whole = format!("{}/96", state.vip_ranges().v6.network());
    let node = object(json!({"metadata": {"name": "n"}, "spec": {
        "podCIDRs": ["241.0.0.0/24", whole],
    }}));
    state.update(Update::Own(OwnEvent::Nodes(ResourceEvent::Changed(node))));
    let [pods, node] = &*overlaps(&state) else { panic!("{:?}", overlaps(&state)) };
    assert!(pods.contains("VIP range 241.0.0.0/8 overlaps with 241.0.0.0/24"), "{pods}");
    assert!(node.contains(&whole) && node.contains("Node n"), "{node}");
    state.settings.pod_ranges = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    let [pods] = &*overlaps(&state) else { panic!("{:?}", overlaps(&state)) };
    assert!(pods.contains("overlaps with fd00::/8 of this cluster's pods"), "{pods}");
}

/// This cluster with a peer.
fn west() -> Peers {
    let mut peers = Peers::default();
    let spec = json!({"clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ["10.2.0.0/16"]});
    let peer = object(json!({"metadata": {"name": "west"}, "spec": spec}));
    peers.apply(ResourceEvent::Changed(peer), &Reserved::default());
    peers
}

#[test]
fn ranges_of_this_cluster_are_no_peers() {
    let peers = west();
    let none = BTreeMap::new();
    let disjoint = |range: &str, node: &str| {
        let said = Arc::new([(node.parse().unwrap(), "node-1".into())].into());
        let [range, other] = [range, "10.9.0.0/16"].map(|range| vec![range.parse().unwrap()]);
        let own_ranges = [
            OwnRanges::new(&range, other.clone(), Arc::clone(&said)),
            OwnRanges::new(&other, range, said),
        ];
        own_ranges.map(|ranges| disjoint(&peers.all()["west"], &ranges, &none).reason)
    };
    assert_eq!(disjoint("10.1.0.0/16", "192.0.2.1"), ["Disjoint"; 2]);
    assert_eq!(disjoint("10.2.3.0/24", "192.0.2.1"), ["OverlapsOwn"; 2]);
    assert_eq!(disjoint("10.0.0.0/8", "192.0.2.1"), ["OverlapsOwn"; 2]);
    assert_eq!(disjoint("10.1.0.0/16", "10.2.0.9"), ["OverlapsOwn"; 2], "a node says so");
    let unknown = Overlaps::default().peer_condition(&"west".into(), &peers.all()["west"]).unwrap();
    assert_eq!((&*unknown.status, &*unknown.reason), ("Unknown", "OwnRangesUnknown"));
}

#[test]
fn ranges_of_two_peers_overlap() {
    let mut peers = west();
    let apply = |peers: &mut Peers, name: &str, ranges: &serde_json::Value| {
        let spec =
            json!({"clusterId": name, "kubeconfigSecretRef": {"name": name}, "podCIDRs": ranges});
        let peer = object(json!({"metadata": {"name": name}, "spec": spec}));
        peers.apply(ResourceEvent::Changed(peer), &Reserved::default());
    };
    apply(&mut peers, "south", &json!(["10.2.3.0/24"]));
    apply(&mut peers, "north", &json!([]));
    let said =
        |name: &str| disjoint(&peers.all()[name], &OwnRanges::default(), &BTreeMap::new()).reason;
    assert_eq!(["west", "north"].map(said), ["Overlap", "NoRanges"]);
}

#[test]
fn an_overlap_says_what_is_refused() {
    let mut peers = west();
    let range: ipnet::IpNet = "10.2.3.0/24".parse().unwrap();
    let ranges = OwnRanges::new(&[range], vec![], Arc::default());
    let rejected = [(Rejection::OwnPods, 3), (Rejection::NoPodAddress, 4)].into();
    let message =
        |peers: &Peers| disjoint(&peers.all()["west"], &ranges, &rejected).message.clone();
    assert!(message(&peers).contains("are not told apart"), "{}", message(&peers));
    assert!(peers.set_own_pods(&[range]) && !peers.set_own_pods(&[range]));
    assert!(message(&peers).contains(", 3 now. To do: "), "{}", message(&peers));
}
