//! The custom types of the SIG: ServiceImport and ServiceExport (sigs.k8s.io/mcs-api, v1alpha1 and v1beta1 have one schema), and
//! ClusterProperty (KEP-2149).

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    Condition, Object, ObjectMeta, ServicePort, ServiceType, SessionAffinityConfig, Unread,
    nullable,
};
use crate::ObjectKey;

#[derive(Clone, Debug, Deserialize)]
pub struct Custom<Spec, Status = Unread> {
    pub metadata: ObjectMeta,
    pub spec: Spec,
    pub status: Option<Status>,
}

impl<Spec: DeserializeOwned, Status: DeserializeOwned> Object for Custom<Spec, Status> {
    fn identity(&self) -> (ObjectKey, Option<String>) {
        self.metadata.identity()
    }
}

pub type ServiceImport = Custom<ServiceImportSpec, ServiceImportStatus>;
pub type ServiceExport = Custom<Option<ServiceExportSpec>, ServiceExportStatus>;
pub type ClusterProperty = Custom<Option<ClusterPropertySpec>>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportSpec {
    pub ports: Vec<ServicePort>,
    #[serde(default, deserialize_with = "nullable")]
    pub ips: Vec<String>,
    #[serde(rename = "type")]
    pub service_type: ServiceType,
    pub session_affinity: Option<String>,
    pub session_affinity_config: Option<SessionAffinityConfig>,
    #[serde(default, deserialize_with = "nullable")]
    pub ip_families: Vec<String>,
    pub internal_traffic_policy: Option<String>,
    pub traffic_distribution: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceImportStatus {
    #[serde(deserialize_with = "nullable")]
    pub clusters: Vec<ClusterStatus>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    pub endpoint_slice_objects: Option<String>,
    pub cluster_selector_results: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ClusterStatus {
    pub cluster: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceExportSpec {
    #[serde(deserialize_with = "nullable")]
    pub exported_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub exported_annotations: BTreeMap<String, String>,
    pub cluster_selectors: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceExportStatus {
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ClusterPropertySpec {
    pub value: Option<String>,
}

impl ClusterProperty {
    /// `spec.value`, unless it is empty.
    #[must_use]
    pub fn value(self) -> Option<String> {
        self.spec?.value.filter(|value| !value.is_empty())
    }
}
