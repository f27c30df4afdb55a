//! What an operator forbids goes at once, also of a peer that is silent.

use super::*;
use crate::{clusterset::ClusterId, objects::restrict};

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
        writes.extend(state.plan(&name));
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
    let mut state = silent();
    says(&mut state, &json!({}), &["10.2.0.0/16"]);
    planned(&mut state);
    let node = object(json!({"metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "10.2.0.5"}],
    }}));
    state.update(Update::Own(OwnEvent::Nodes(ResourceEvent::Changed(node))));
    assert!(matches!(&*planned(&mut state), [Write::RestrictSlice(..)]));
}
