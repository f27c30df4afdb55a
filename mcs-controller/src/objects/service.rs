//! Services of this cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Service, ServicePort as PortObject, ServiceSpec as SpecObject},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use mcs_kube::{Decoder, ObjectKey, ReadMessage, message};
use serde_json::{Value, json};

use super::typed;
use crate::clusterset::{
    ActualDerived, ExportSource, InternalTrafficPolicy, IpFamily, Owner, Protocol, ServiceName,
    ServicePort, ServiceSpec, ServiceType, SessionAffinity, derived_name, well_known,
};

/// A Service.
#[derive(Clone, PartialEq, Debug)]
pub struct ServiceObject {
    /// The source of an export of this Service. It has no exported labels and annotations, which come from the
    /// ServiceExport.
    pub source: ExportSource,
    /// `metadata.labels`, by which ExportRules select.
    pub labels: BTreeMap<String, String>,
    /// Whether it has `spec.selector`.
    pub has_selector: bool,
    /// Its ClusterIPs.
    pub cluster_ips: Vec<IpAddr>,
    /// `metadata.uid`, if this controller wrote it.
    pub uid: Option<Arc<str>>,
    /// Whether it stands for a ServiceImport, whoever wrote it: its endpoints are in other clusters.
    pub is_derived: bool,
}

impl ServiceObject {
    /// The import that it is derived from, by its labels; same namespace.
    pub fn import(&self) -> Option<&str> {
        self.labels.get(well_known::SERVICE_NAME).map(String::as_str)
    }

    /// The Service as the derived Service of an import.
    pub fn as_derived(&self) -> ActualDerived {
        let ports = match &self.source {
            ExportSource::Service(spec) => spec.ports.clone(),
            ExportSource::ExternalName | ExportSource::Missing => vec![],
        };
        let owner = if self.uid.is_some() { Owner::Us } else { Owner::Other };
        let is_applied =
            [(well_known::SERVICE_PROXY, well_known::CONTROLLER), (well_known::HEADLESS, "")]
                .iter()
                .all(|(key, value)| self.labels.get(*key).is_some_and(|label| label == value));
        let is_ours_alone = is_applied && !self.has_selector;
        ActualDerived { owner, ports, is_ours_alone, uid: self.uid.clone().unwrap_or_default() }
    }
}

/// Decodes Services.
#[derive(Clone, PartialEq, Debug)]
pub struct ServiceDecoder;

impl Decoder for ServiceDecoder {
    type Value = ServiceObject;

    const MESSAGE: Option<ReadMessage<Self::Value>> =
        Some(message::as_json::<message::Service, Self>);

    fn decode(_: ObjectKey, object: &Value) -> Result<ServiceObject, String> {
        let service: Service = typed(object)?;
        let is_derived = is_derived(&service.metadata);
        let labels = service.metadata.labels.unwrap_or_default();
        let is_ours =
            labels.get(well_known::MANAGED_BY).is_some_and(|by| by == well_known::CONTROLLER)
                && labels.contains_key(well_known::SERVICE_NAME);
        let uid = service.metadata.uid.filter(|_| is_ours).map(Into::into);
        let spec = service.spec.unwrap_or_default();
        let has_selector = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
        let of_families = spec.cluster_ips.iter().flatten();
        let cluster_ips: BTreeSet<_> =
            of_families.chain(&spec.cluster_ip).filter_map(|ip| ip.parse().ok()).collect();
        let cluster_ips = cluster_ips.into_iter().collect();
        Ok(ServiceObject {
            source: source(spec),
            labels,
            has_selector,
            cluster_ips,
            uid,
            is_derived,
        })
    }
}

/// Antrea's mark of a Service that it has imported.
const ANTREA_IMPORTED: &str = "multicluster.antrea.io/imported-service";
/// Karmada's mark of what it has brought. The Service of its imports has no other.
const KARMADA_MANAGED: &str = "karmada.io/managed";

/// Whether a Service stands for an import. The reference implementation, Cilium and AWS Cloud Map set the ServiceImport as
/// owner; this controller and Cilium set a label.
fn is_derived(metadata: &ObjectMeta) -> bool {
    let has = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().is_some_and(|map| map.contains_key(key))
    };
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.owner_references.iter().flatten().any(|owner| owner.kind == "ServiceImport")
        || name.starts_with("derived-")
            && [well_known::SERVICE_NAME, KARMADA_MANAGED]
                .iter()
                .any(|key| has(&metadata.labels, key))
        || has(&metadata.annotations, ANTREA_IMPORTED)
}

fn source(spec: SpecObject) -> ExportSource {
    if spec.type_.as_deref() == Some("ExternalName") {
        return ExportSource::ExternalName;
    }
    let is_headless = spec.cluster_ip.as_deref() == Some("None");
    let families = spec.ip_families.unwrap_or_default();
    ExportSource::Service(ServiceSpec {
        service_type: if is_headless { ServiceType::Headless } else { ServiceType::ClusterSetIp },
        ports: spec.ports.unwrap_or_default().into_iter().filter_map(port).collect(),
        ip_families: families.iter().filter_map(|family| ip_family(family)).collect(),
        session_affinity: session_affinity(
            spec.session_affinity.as_deref(),
            spec.session_affinity_config
                .and_then(|config| config.client_ip)
                .and_then(|client_ip| client_ip.timeout_seconds),
        ),
        internal_traffic_policy: internal_traffic_policy(spec.internal_traffic_policy.as_deref()),
        traffic_distribution: spec.traffic_distribution.map(Into::into),
        labels: super::Map::new(),
        annotations: super::Map::new(),
    })
}

/// The derived Service of an import, as the controller applies it. kube-proxy ignores Services with the label of another
/// proxy. Without a selector, only this controller writes its slices.
pub fn derived_service(import: &ServiceName, ports: &[ServicePort]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": import.namespace(), "name": derived_name(import),
            "labels": {
                well_known::MANAGED_BY: well_known::CONTROLLER,
                well_known::SERVICE_NAME: import.name(),
                well_known::SERVICE_PROXY: well_known::CONTROLLER,
                well_known::HEADLESS: "",
            },
        },
        // The empty selector removes the selector of another writer.
        "spec": {"clusterIP": "None", "ports": ports, "selector": {}},
    })
}

fn port(port: PortObject) -> Option<ServicePort> {
    Some(ServicePort {
        name: port.name.unwrap_or_default().into(),
        protocol: protocol(port.protocol.as_deref())?,
        port: u16::try_from(port.port).ok()?,
        app_protocol: port.app_protocol.map(Into::into),
    })
}

pub(super) fn protocol(name: Option<&str>) -> Option<Protocol> {
    match name {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

pub(super) fn ip_family(name: &str) -> Option<IpFamily> {
    match name {
        "IPv4" => Some(IpFamily::V4),
        "IPv6" => Some(IpFamily::V6),
        _ => None,
    }
}

pub(super) fn session_affinity(
    name: Option<&str>,
    timeout_seconds: Option<i32>,
) -> SessionAffinity {
    match name {
        Some("ClientIP") => SessionAffinity::ClientIp {
            timeout_seconds: timeout_seconds.unwrap_or(SessionAffinity::DEFAULT_TIMEOUT_SECONDS),
        },
        _ => SessionAffinity::None,
    }
}

pub(super) fn internal_traffic_policy(name: Option<&str>) -> InternalTrafficPolicy {
    match name {
        Some("Local") => InternalTrafficPolicy::Local,
        _ => InternalTrafficPolicy::Cluster,
    }
}
