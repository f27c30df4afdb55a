//! `ExportedService`: what a cluster publishes of one exported Service in a mailbox.
//!
//! It is not a ServiceImport, because CoreDNS and agents of the cluster with the mailbox would use that. The comments on fields
//! are the descriptions that `kubectl explain` prints.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ServicePort, ServiceType, SessionAffinityConfig, patterns::LABEL};

#[derive(Clone, PartialEq, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "clusterset.mcs-agent.io",
    version = "v1alpha1",
    kind = "ExportedService",
    namespaced,
    shortname = "exsvc",
    category = "mcs",
    doc = "What one cluster exports under one name. The controller of that cluster writes it into its mailbox, a namespace of \
           any API server; the controllers of other clusters read it there.",
    printcolumn(name = "Namespace-exported", type_ = "string", json_path = ".spec.namespace"),
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "IP", type_ = "string", json_path = ".spec.ips"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ExportedServiceSpec {
    /// The cluster that exports. Readers compare it with their ClusterPeer.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub cluster_id: String,
    /// The namespace of the Service.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub namespace: String,
    /// The name of the Service and of its ServiceExport.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// metadata.creationTimestamp of the ServiceExport. The oldest export decides conflicts.
    #[schemars(extend("format" = "date-time"))]
    pub exported_at: String,
    /// The type of the ServiceImport.
    #[serde(rename = "type")]
    pub service_type: ServiceType,
    /// As many as a Service can have, each with what a Service can have.
    pub ports: Vec<ServicePort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["None", "ClientIP"]))]
    pub session_affinity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Cluster", "Local"]))]
    pub internal_traffic_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub traffic_distribution: Option<String>,
    #[serde(default)]
    #[schemars(length(max = 2), extend("items" = {"type": "string", "enum": ["IPv4", "IPv6"]}))]
    pub ip_families: Vec<String>,
    /// spec.exportedLabels of the ServiceExport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 256,
        "additionalProperties" = {"type": "string", "maxLength": 63},
    ))]
    pub labels: BTreeMap<String, String>,
    /// spec.exportedAnnotations of the ServiceExport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub annotations: BTreeMap<String, String>,
    /// spec.ips of the ServiceImport in the exporting cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), inner(length(max = 45)))]
    pub ips: Vec<String>,
    /// The ids of the clusters that the export is for. Absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000), inner(length(max = 63)))]
    pub audience: Option<Vec<String>>,
    /// The EndpointSlices of the Service by their names. Readers keep the copy of a slice that is named here, even if they
    /// cannot see it.
    #[serde(default)]
    #[schemars(length(max = 20000), inner(length(max = 253)))]
    pub slices: Vec<String>,
}
