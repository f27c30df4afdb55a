//! The import of a Service, and copies of its slices.

use kube::{ResourceExt as _, api::DynamicObject};
use mcs_tests::prelude::*;

use super::key;

const PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// The import of a Service, if kube-proxy would serve it.
pub(super) fn import(service: &DynamicObject) -> Option<Value> {
    let spec = &service.data["spec"];
    let ips = spec["clusterIPs"].as_array().filter(|ips| ips.iter().all(|ip| ip != "None"))?;
    if spec["type"] == "ExternalName" || service.labels().contains_key(PROXY_LABEL) {
        return None;
    }
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| {
        let mut port = port.clone();
        if let Some(port) = port.as_object_mut() {
            port.retain(|name, _| name != "targetPort" && name != "nodePort");
        }
        port
    });
    let mut import = json!({
        "type": "ClusterSetIP",
        "ips": ips,
        "ports": ports.collect::<Vec<_>>(),
    });
    let same = [
        "sessionAffinity",
        "sessionAffinityConfig",
        "internalTrafficPolicy",
        "trafficDistribution",
    ];
    for field in same {
        if !spec[field].is_null() {
            import[field] = spec[field].clone();
        }
    }
    let (namespace, name) = key(service);
    Some(json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "metadata": { "namespace": namespace, "name": name },
        "spec": import,
    }))
}

/// A slice as an import has it.
pub(super) fn copy(slice: &DynamicObject, service: &str, cluster: &str) -> Value {
    let (namespace, name) = key(slice);
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": format!("mirror-{name}"),
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "mirror.mcs-tests.invalid",
                "multicluster.kubernetes.io/service-name": service,
                "multicluster.kubernetes.io/source-cluster": cluster,
            },
        },
        "addressType": slice.data["addressType"],
        "endpoints": slice.data["endpoints"],
        "ports": slice.data["ports"],
    })
}

/// The status of an import: a cluster exports it, and its slices are there.
pub(super) fn status(import: &Value, cluster: &str) -> Value {
    json!({
        "apiVersion": import["apiVersion"],
        "kind": import["kind"],
        "metadata": import["metadata"],
        "status": { "clusters": [{ "cluster": cluster }], "endpointSliceObjects": "Present" },
    })
}
