//! Other controllers of the same cluster, with objects as they wrote them.

use super::*;
use crate::core::clusterset::ConditionType;

fn name(namespace: &str, name: &str) -> ServiceName {
    ServiceName::new(namespace, name).unwrap()
}

fn slice(metadata: &Value, address: &str) -> Value {
    json!({
        "metadata": metadata, "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

/// Cluster c1, which exports shop/web and had made its import. Then another controller has replaced that by this one.
fn taken_over(annotations: &Value, ip: &str) -> State {
    let mut state =
        State::new(Settings::of_tests(), "c1".parse().unwrap(), OwnCluster::new(vec![]));
    let metadata = json!({"namespace": "shop", "name": "web"});
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let spec = json!({"clusterIP": "10.96.18.32", "clusterIPs": ["10.96.18.32"], "ports": ports});
    let local = json!({"namespace": "shop", "name": "web-zq84t", "labels": {
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }});
    let ours = json!({"namespace": "shop", "name": "web-c1-28b8d0f5bf", "labels": {
        "endpointslice.kubernetes.io/managed-by": "mcs-controller",
        "multicluster.kubernetes.io/service-name": "web",
        "multicluster.kubernetes.io/source-cluster": "c1",
        "service.kubernetes.io/headless": "",
    }});
    let import = json!({
        "metadata": {"namespace": "shop", "name": "web", "annotations": annotations},
        "spec": {"type": "ClusterSetIP", "ips": [ip], "ports": ports},
    });
    for event in [
        OwnEvent::Namespaces(ResourceEvent::Changed(object(json!({"metadata": {"name": "shop"}})))),
        OwnEvent::Exports(ResourceEvent::Changed(object(json!({"metadata": metadata})))),
        OwnEvent::Services(ResourceEvent::Changed(object(
            json!({"metadata": metadata, "spec": spec}),
        ))),
        OwnEvent::Slices(ResourceEvent::Changed(object(slice(&local, "10.1.0.1")))),
        OwnEvent::ImportedSlices(ResourceEvent::Changed(object(slice(&ours, "10.1.0.1")))),
        OwnEvent::Imports(ResourceEvent::Changed(object(import))),
    ] {
        state.update(Update::Own(event));
    }
    state
}

/// The slices of this controller that go, as planned after an event. Nothing is planned that no event asks for.
fn going(state: &mut State) -> Vec<String> {
    let mut gone = Vec::new();
    while let Some(name) = state.imports.next() {
        let writes = state.plan_and_note(&name);
        gone.extend(writes.iter().filter_map(|write| match write {
            Write::DeleteSlice(_, _, slice) => Some(slice.to_string()),
            _ => None,
        }));
    }
    gone
}

fn imported(state: &mut State, metadata: &Value, address: &str) {
    let slice = object(slice(metadata, address));
    state.update(Update::Own(OwnEvent::ImportedSlices(ResourceEvent::Changed(slice))));
}

const OURS: [&str; 1] = ["web-c1-28b8d0f5bf"];

#[test]
fn slices_go_with_those_that_lighthouse_has_of_their_cluster() {
    let annotations = json!({
        "lighthouse.submariner.io/clusterset-ip-allocated-by": "c1",
        "lighthouse.submariner.io/use-clusterset-ip": "true",
    });
    let mut state = taken_over(&annotations, "243.1.15.253");
    assert_eq!(going(&mut state), [""; 0], "nothing else leads to the VIP yet");
    let theirs = |slice: &str, cluster: &str| {
        json!({"namespace": "shop", "name": slice, "labels": {
            "endpointslice.kubernetes.io/managed-by": "lighthouse-agent.submariner.io",
            "lighthouse.submariner.io/is-headless": "false",
            "lighthouse.submariner.io/sourceNamespace": "shop",
            "multicluster.kubernetes.io/service-name": "web",
            "multicluster.kubernetes.io/source-cluster": cluster,
        }})
    };
    imported(&mut state, &theirs("web-hz66m", "c2"), "10.97.104.234");
    assert_eq!(going(&mut state), [""; 0], "it has none of c1");
    imported(&mut state, &theirs("web-7kxrt", "c1"), "10.96.18.32");
    assert_eq!(going(&mut state), OURS);
    let gone = object(slice(&theirs("web-7kxrt", "c1"), "10.96.18.32"));
    state.update(Update::Own(OwnEvent::ImportedSlices(ResourceEvent::Deleted(gone))));
    assert_eq!(going(&mut state), [""; 0]);
}

#[test]
fn slices_go_with_those_that_cilium_has_of_their_cluster() {
    let annotations = json!({
        "clustermesh.cilium.io/supported-ip-families": "IPv4",
        "multicluster.kubernetes.io/derived-service": "derived-isrlchlhrq",
    });
    let mut state = taken_over(&annotations, "10.96.136.94");
    assert_eq!(going(&mut state), [""; 0]);
    let theirs = json!({"namespace": "shop", "name": "derived-isrlchlhrq-m7p56", "labels": {
        "endpointslice.kubernetes.io/managed-by": "endpointslice-local-mcsapi-controller.cilium.io",
        "kubernetes.io/service-name": "derived-isrlchlhrq",
        "multicluster.kubernetes.io/service-name": "web",
        "multicluster.kubernetes.io/source-cluster": "c1",
        "service.cilium.io/local-endpointslice": "web-m7p56",
    }});
    imported(&mut state, &theirs, "10.1.0.1");
    assert_eq!(going(&mut state), OURS);
}

#[test]
fn slices_go_with_those_that_name_no_cluster() {
    let mut state = taken_over(&json!({}), "10.96.125.148");
    going(&mut state);
    let theirs = json!({"namespace": "shop", "name": "imported-web-74ccv", "labels": {
        "kubernetes.io/service-name": "derived-isrlchlhrq",
        "multicluster.kubernetes.io/service-name": "web",
    }});
    imported(&mut state, &theirs, "10.2.0.1");
    assert_eq!(going(&mut state), OURS);
}

#[test]
fn slices_go_when_a_service_of_antrea_has_the_vip_and_endpoints() {
    let mut state = taken_over(&json!({}), "10.96.183.84");
    let service = json!({
        "metadata": {"namespace": "shop", "name": "antrea-mc-web", "annotations": {
            "multicluster.antrea.io/imported-service": "true",
        }},
        "spec": {"clusterIP": "10.96.183.84", "clusterIPs": ["10.96.183.84"]},
    });
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(object(service)))));
    assert_eq!(going(&mut state), [""; 0], "the Service has no endpoints yet");
    let theirs = json!({"namespace": "shop", "name": "antrea-mc-web-v7rsg", "labels": {
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        "kubernetes.io/service-name": "antrea-mc-web",
    }});
    let mirrored = object(slice(&theirs, "10.2.0.2"));
    state.update(Update::Own(OwnEvent::Slices(ResourceEvent::Changed(mirrored))));
    assert_eq!(going(&mut state), OURS);
}

/// In the cluster of its broker, Lighthouse has a copy of each import that has a VIP.
#[test]
fn a_record_of_lighthouse_shares_no_address() {
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let record = |namespace: &str, name: &str, ip: &str| {
        json!({
            "metadata": {"namespace": namespace, "name": name, "annotations": {
                "lighthouse.submariner.io/sourceNamespace": "shop",
                "multicluster.kubernetes.io/service-name": "web",
            }},
            "spec": {"type": "ClusterSetIP", "ips": [ip], "ports": ports},
        })
    };
    let mut state = taken_over(&json!({}), "243.1.15.253");
    for record in [
        record("submariner-k8s-broker", "web-shop", "243.1.15.253"),
        record("submariner-operator", "web-shop-c1", "10.96.18.32"),
    ] {
        state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(object(record)))));
    }
    let accepted = |state: &mut State, namespace: &str, of: &str| {
        let writes = state.plan_and_note(&name(namespace, of));
        writes.into_iter().find_map(|write| match write {
            Write::SetAccepted(_, condition) => Some(condition.reason),
            _ => None,
        })
    };
    assert_eq!(accepted(&mut state, "shop", "web").as_deref(), Some("Accepted"));
    let records = [("submariner-k8s-broker", "web-shop"), ("submariner-operator", "web-shop-c1")];
    for (namespace, record) in records {
        assert_eq!(accepted(&mut state, namespace, record), None, "no agent serves {record}");
    }
    // An import that this controller takes over shares none either.
    state.settings.adopt = true;
    let planned = state.plan_and_note(&name("shop", "web"));
    let status = planned.iter().find_map(|write| match write {
        Write::SetImportStatus(_, status) => status.condition(ConditionType::Ready),
        _ => None,
    });
    assert_eq!(status.map(|ready| &*ready.reason), Some("Ready"));
}
