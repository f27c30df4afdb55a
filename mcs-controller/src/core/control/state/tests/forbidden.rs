//! What an operator forbids goes at once, also of a peer that is silent.

use mcs_kube::reasons::Rejection;

use super::*;
use crate::core::{clusterset::ClusterId, objects::restrict};

/// The cluster has imported shop/web from west before it started. West gives no sign of life since.
fn silent() -> State {
    let mut state = state();
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    let import = object(json!({
        "metadata": {"namespace": "shop", "name": "web", "labels": {
            "app.kubernetes.io/managed-by": "mcs-controller",
        }},
        "spec": {"type": "ClusterSetIP", "ips": ["241.0.0.1"], "ports": []},
        "status": {"clusters": [{"cluster": "west"}]},
    }));
    state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(import))));
    has(&mut state, slice());
    state
}

fn slice() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web-west-x", "resourceVersion": "7", "labels": {
            "endpointslice.kubernetes.io/managed-by": "mcs-controller",
            "multicluster.kubernetes.io/service-name": "web",
            "multicluster.kubernetes.io/source-cluster": "west",
        }},
        "addressType": "IPv4", "ports": [],
        "endpoints": [{"addresses": ["10.2.1.7"], "zone": "a"}, {"addresses": ["10.2.0.5"]}],
    })
}

fn has(state: &mut State, slice: Value) {
    let slice = ResourceEvent::Changed(object(slice));
    state.update(Update::Own(OwnEvent::ImportedSlices(slice)));
}

/// The ClusterPeer of west says this now.
fn says(state: &mut State, namespaces: &Value, ranges: &[&str]) {
    let peer = object(json!({"metadata": {"name": "west"}, "spec": {
        "clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ranges,
        "namespaces": namespaces,
    }}));
    state.update(Update::Peers(ResourceEvent::Changed(peer)));
}

fn planned(state: &mut State) -> Vec<Write> {
    let mut writes = vec![];
    while let Some(name) = state.imports.next() {
        state.imports.end(&name, false, std::time::Instant::now());
        writes.extend(state.plan_and_note(&name));
    }
    writes.retain(|write| !matches!(write, Write::ApplyImport(_) | Write::SetImportStatus(..)));
    writes
}

#[test]
fn a_namespace_that_is_not_allowed_goes() {
    for forbidden in [json!({"deny": ["shop"]}), json!({"allow": ["bank", "pay-*"]})] {
        let mut state = silent();
        says(&mut state, &json!({}), &["10.2.0.0/16"]);
        assert_eq!(planned(&mut state), []);
        says(&mut state, &forbidden, &["10.2.0.0/16"]);
        let name = ServiceName::new("shop", "web").unwrap();
        let west: ClusterId = "west".parse().unwrap();
        let expected = [
            Write::DeleteImport(name.clone()),
            Write::DeleteSlice(name, west, "web-west-x".into()),
        ];
        assert_eq!(planned(&mut state), expected, "{forbidden}");
    }
}

#[test]
fn a_narrowed_range_counts_for_what_was_imported() {
    let mut state = silent();
    says(&mut state, &json!({}), &["10.2.0.0/16"]);
    assert_eq!(planned(&mut state), []);
    says(&mut state, &json!({}), &["10.2.0.0/24", "fd02::/64"]);
    let writes = planned(&mut state);
    let [Write::RestrictSlice(name, cluster, slice_name, rules)] = &*writes else {
        panic!("{writes:?}")
    };
    assert_eq!((name.name(), cluster.as_str(), &**slice_name), ("web", "west", "web-west-x"));
    // The rest stays as it is.
    let mut now = slice();
    assert!(restrict(&mut now, rules));
    let mut expected = slice();
    expected["endpoints"].as_array_mut().unwrap().remove(0);
    assert_eq!(now, expected);
    assert!(!restrict(&mut now, rules), "nothing is left to take away");
    has(&mut state, now);
    assert_eq!(planned(&mut state), []);
}

#[test]
fn addresses_that_become_this_clusters_own_go() {
    for (ranges, goes) in [(&[][..], true), (&["10.2.0.0/16"], false)] {
        let mut state = silent();
        says(&mut state, &json!({}), ranges);
        planned(&mut state);
        let node = object(json!({"metadata": {"name": "n"}, "status": {
            "addresses": [{"type": "InternalIP", "address": "10.2.0.5"}],
        }}));
        state.update(Update::Own(OwnEvent::Nodes(ResourceEvent::Changed(node))));
        let has_gone = matches!(&*planned(&mut state), [Write::RestrictSlice(..)]);
        assert_eq!(has_gone, goes, "a node takes nothing from a peer with {ranges:?}");
    }
}

/// What the planned writes take out of the slice, and why.
fn taken(state: &mut State) -> Option<Vec<Option<Rejection>>> {
    let writes = planned(state);
    let rules = writes.iter().find_map(|write| match write {
        Write::RestrictSlice(_, _, _, rules) => Some(rules),
        _ => None,
    })?;
    let rejection = |address: &str| rules.rejection(address.parse().unwrap());
    Some(["10.2.1.7", "10.2.0.5"].map(rejection).into())
}

#[test]
fn pods_of_this_cluster_are_no_endpoints_of_a_peer() {
    let own = Some(vec![Some(Rejection::OwnPods), None]);
    let mut state = silent();
    says(&mut state, &json!({}), &["10.2.0.0/16"]);
    assert_eq!(taken(&mut state), None);
    let node = |state: &mut State, name: &str, ranges: &[&str]| {
        let spec = json!({"podCIDRs": ranges});
        let node = object(json!({"metadata": {"name": name}, "spec": spec}));
        state.update(Update::Own(OwnEvent::Nodes(ResourceEvent::Changed(node))));
        taken(state)
    };
    assert_eq!(node(&mut state, "a", &["10.2.1.0/24"]), own);
    assert_eq!(node(&mut state, "a", &["10.2.1.0/24"]), None, "it was planned");
    assert_eq!(node(&mut state, "b", &["10.9.0.0/24"]), None, "it changes no peer");
    says(&mut state, &json!({}), &["10.2.0.0/15"]);
    assert_eq!(taken(&mut state), own);
    // Where nodes get no ranges, one that names some can name those of a peer.
    for name in ["b", "c"] {
        node(&mut state, name, &[]);
    }
    says(&mut state, &json!({}), &["10.2.0.0/16"]);
    assert_eq!(taken(&mut state), None);
}

#[test]
fn pods_of_one_peer_are_no_endpoints_of_another() {
    let mut state = silent();
    says(&mut state, &json!({}), &["10.2.0.0/16"]);
    let mut other = |range: &str| {
        let peer = object(json!({"metadata": {"name": "north"}, "spec": {
            "clusterId": "north", "kubeconfigSecretRef": {"name": "north"}, "podCIDRs": [range],
        }}));
        state.update(Update::Peers(ResourceEvent::Changed(peer)));
        taken(&mut state)
    };
    let rejected = Some(vec![Some(Rejection::OtherPeer), None]);
    assert_eq!(other("10.2.1.0/24"), rejected);
    assert_eq!(other("10.0.0.0/8"), None, "it is the wider one");
    assert_eq!(other("10.2.1.0/24"), rejected);
    assert_eq!(other("10.2.0.0/16"), None, "nobody knows whose it is");
    assert_eq!(other("192.0.2.0/24"), None);
}
