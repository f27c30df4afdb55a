//! Kubernetes objects that people and the control plane of a source cluster write.

pub(crate) use mcs_tests::api_server::namespaced;
use serde_json::{Value, json};

/// The service of every case, in the namespace of that case.
pub(crate) const NAME: &str = "hello";

/// `hello` with port tcp 42 and udp 42, as in the conformance suite. It selects no pods: few cases have any, and `mcs check` looks
/// for them twice, seconds apart.
pub(crate) fn service(namespace: &str) -> Value {
    let mut service = namespaced("v1", "Service", namespace, NAME);
    service["spec"] = json!({
        "ports": [
            { "name": "tcp", "port": 42, "protocol": "TCP" },
            { "name": "udp", "port": 42, "protocol": "UDP" },
        ],
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 10 } },
        "ipFamilyPolicy": "PreferDualStack",
    });
    service
}

/// The same without an address of its own.
pub(crate) fn headless(namespace: &str) -> Value {
    let mut service = service(namespace);
    service["spec"]["clusterIP"] = json!("None");
    let fields = service["spec"].as_object_mut();
    fields.map(|fields| {
        fields.remove("sessionAffinity");
        fields.remove("sessionAffinityConfig")
    });
    service
}

/// The ServiceExport of `hello`.
pub(crate) fn export(namespace: &str) -> Value {
    namespaced("multicluster.x-k8s.io/v1beta1", "ServiceExport", namespace, NAME)
}

/// The ServiceImport of `hello`.
pub(crate) fn import(namespace: &str) -> Value {
    namespaced("multicluster.x-k8s.io/v1beta1", "ServiceImport", namespace, NAME)
}

/// The slice that the control plane of a cluster writes for `hello`: its pods are `hello-0` and so on. Ports are given as
/// name, protocol and number.
pub(crate) fn slice(namespace: &str, addresses: &[String], ports: &[(&str, &str, u16)]) -> Value {
    let mut slice = namespaced("discovery.k8s.io/v1", "EndpointSlice", namespace, "hello-local");
    slice["metadata"]["labels"] = json!({
        "kubernetes.io/service-name": NAME,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    slice["addressType"] = json!("IPv4");
    let ports = ports
        .iter()
        .map(|(name, protocol, port)| json!({ "name": name, "protocol": protocol, "port": port }));
    slice["ports"] = ports.collect();
    let endpoints = addresses.iter().enumerate().map(|(number, address)| {
        json!({
            "addresses": [address],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "hostname": format!("{NAME}-{number}"),
            "nodeName": "node-1",
            "zone": "zone-1",
            "targetRef": { "kind": "Pod", "name": format!("{NAME}-{number}"), "namespace": namespace },
        })
    });
    slice["endpoints"] = endpoints.collect();
    slice
}

/// The ports of a slice of [`service`].
pub(crate) const PORTS: &[(&str, &str, u16)] = &[("tcp", "TCP", 4242), ("udp", "UDP", 4242)];
