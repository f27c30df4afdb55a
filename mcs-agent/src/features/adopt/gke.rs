//! GKE's multi-cluster Services: ServiceImports of `net.gke.io`, each with a Service and Endpoints of another name.
//! Kubernetes mirrors the Endpoints, which have the pods of all clusters, to slices. They name no source cluster.

use std::collections::BTreeMap;

/// The API group of GKE's ServiceImports.
pub(super) const GROUP: &str = "net.gke.io";
/// Its versions, the preferred one first.
pub(super) const VERSIONS: [&str; 1] = ["v1"];
/// Who keeps the slices.
pub(super) const MANAGERS: &[&str] = &["endpointslicemirroring-controller.k8s.io"];

/// On a ServiceImport: the name of its Service.
const SERVICE_ANNOTATION: &str = "net.gke.io/derived-service";

/// The Service of this import, if GKE has made it.
pub(super) fn service_of(annotations: &BTreeMap<String, String>) -> Option<String> {
    annotations.get(SERVICE_ANNOTATION).filter(|service| !service.is_empty()).cloned()
}
