//! ServiceImports and imported EndpointSlices: their labels, and what they are in the domain.

pub(super) mod endpoint_slice;
pub(super) mod service_import;

pub(crate) use mcs_kube::SERVICE_NAME_LABEL;

pub(crate) use self::{
    endpoint_slice::into_domain,
    service_import::{LabelledImport, PUBLISH, port},
};

const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const SOURCE_CLUSTER_LABEL: &str = "multicluster.kubernetes.io/source-cluster";
const DERIVED_SERVICE_ANNOTATION: &str = "multicluster.kubernetes.io/derived-service";

/// The API group of the ServiceImports of KEP-1645.
pub(crate) const MCS_GROUP: &str = "multicluster.x-k8s.io";
/// The versions that the agent can read, the preferred one first. They have one schema (KEP-1645).
pub(super) const MCS_VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
