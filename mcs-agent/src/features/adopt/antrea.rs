//! Antrea Multi-cluster. An import has the ClusterIP of a Service `antrea-mc-NAME`, and nothing that names it. Kubernetes
//! mirrors the Endpoints of that Service to slices. They name no source cluster.

use crate::core::model::ServiceImport;

/// The API group of Antrea's own objects.
pub(super) const GROUP: &str = "multicluster.crd.antrea.io";
/// Who keeps the slices.
pub(super) const MANAGERS: &[&str] = super::gke::MANAGERS;
/// Antrea exports ClusterIPs by default.
pub(super) const POD_REMEDY: &str = "to hand it to the agent, let its controller export pod addresses \
                                     (Antrea: endpointIPType: PodIP)";

/// Before the name of an import: the name of its Service.
const SERVICE_PREFIX: &str = "antrea-mc-";

/// The Service of this import, if it is Antrea's: only slices of that Service show that it is.
pub(super) fn service_of(import: &ServiceImport) -> Option<String> {
    let may_be = import.derived_service.is_none()
        && import.record_of.is_none()
        && import.endpoint_slice_objects.as_deref() != Some("Absent")
        && !import.ips.is_empty();
    may_be.then(|| format!("{SERVICE_PREFIX}{}", import.key.name))
}
