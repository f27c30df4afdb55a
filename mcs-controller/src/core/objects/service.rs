//! Services of this cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use mcs_kube::{
    Decoder, ObjectKey,
    objects::{self, ObjectMeta, Service, SessionAffinityConfig},
};
use serde_json::{Value, json};

use crate::core::clusterset::{
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
    type Object = Service;
    type Value = ServiceObject;

    fn convert(_: &ObjectKey, service: Service) -> Result<ServiceObject, String> {
        let is_derived = is_derived(&service.metadata);
        let Service { metadata: ObjectMeta { labels, uid, .. }, spec, .. } = service;
        let is_ours =
            labels.get(well_known::MANAGED_BY).is_some_and(|by| by == well_known::CONTROLLER)
                && labels.contains_key(well_known::SERVICE_NAME);
        let addresses = spec.cluster_ips.iter().chain([&spec.cluster_ip]);
        let cluster_ips: BTreeSet<_> = addresses.filter_map(|ip| ip.parse().ok()).collect();
        Ok(ServiceObject {
            labels,
            has_selector: !spec.selector.is_empty(),
            source: source(spec),
            cluster_ips: cluster_ips.into_iter().collect(),
            uid: is_ours.then(|| uid.into()),
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
    let ObjectMeta { name, labels, annotations, owner_references, .. } = metadata;
    owner_references.iter().any(|owner| owner.kind == "ServiceImport")
        || name.starts_with("derived-")
            && [well_known::SERVICE_NAME, KARMADA_MANAGED]
                .iter()
                .any(|key| labels.contains_key(*key))
        || annotations.contains_key(ANTREA_IMPORTED)
}

fn source(spec: objects::ServiceSpec) -> ExportSource {
    if spec.service_type == "ExternalName" {
        return ExportSource::ExternalName;
    }
    let is_headless = spec.cluster_ip == "None";
    let affinity = session_affinity(Some(&spec.session_affinity), spec.session_affinity_config);
    ExportSource::Service(ServiceSpec {
        service_type: if is_headless { ServiceType::Headless } else { ServiceType::ClusterSetIp },
        ports: ports(spec.ports),
        ip_families: ip_families(&spec.ip_families),
        session_affinity: affinity,
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

/// Without those that no import can have.
pub(super) fn ports(ports: Vec<objects::ServicePort>) -> Vec<ServicePort> {
    let port = |port: objects::ServicePort| {
        Some(ServicePort {
            name: port.name.into(),
            protocol: protocol(Some(&port.protocol))?,
            port: u16::try_from(port.port).ok()?,
            app_protocol: port.app_protocol.map(Into::into),
        })
    };
    ports.into_iter().filter_map(port).collect()
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

pub(super) fn ip_families(names: &[String]) -> Vec<IpFamily> {
    names.iter().filter_map(|family| ip_family(family)).collect()
}

pub(super) fn session_affinity(
    name: Option<&str>,
    config: Option<SessionAffinityConfig>,
) -> SessionAffinity {
    match name {
        Some("ClientIP") => SessionAffinity::ClientIp {
            timeout_seconds: config
                .and_then(SessionAffinityConfig::timeout_seconds)
                .unwrap_or(SessionAffinity::DEFAULT_TIMEOUT_SECONDS),
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
