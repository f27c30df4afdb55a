//! Antrea Multi-cluster. An import has the ClusterIP of a Service `antrea-mc-NAME`, and nothing that names it. Kubernetes
//! mirrors the Endpoints of that Service to slices. They name no source cluster.

use crate::model::{Adoptable, Controller, ServiceImport};

/// ServiceImports whose Service `antrea-mc-NAME` has the addresses of pods.
pub const ANTREA: Controller = Controller::new("antrea");

/// The API group of Antrea's own objects.
pub(super) const GROUP: &str = "multicluster.crd.antrea.io";
/// Who keeps the slices.
pub(super) const MANAGERS: &[&str] = super::gke::MANAGERS;

/// Before the name of an import: the name of its Service.
const SERVICE_PREFIX: &str = "antrea-mc-";

/// What Antrea may have made of this import: only slices of that Service show that it has.
pub(super) fn may_be_of(import: &ServiceImport) -> Option<Adoptable> {
    let is_of_another = import.derived_service.is_some()
        || import.adoptable.is_some()
        || import.record_of.is_some();
    (!is_of_another && !import.ips.is_empty()).then(|| Adoptable {
        controller: ANTREA,
        service: format!("{SERVICE_PREFIX}{}", import.key.name),
        // It exports ClusterIPs by default.
        pod_setting: Some("Antrea: endpointIPType: PodIP"),
        is_adopted: false,
    })
}
