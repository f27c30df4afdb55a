//! `ExportedService`: what a cluster publishes of one exported Service in a mailbox.
//!
//! It is not a ServiceImport, because CoreDNS and agents of the cluster with the mailbox would use that.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp as Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mcs_kube::{Decoder, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    OWN_VERSION, conditions, map,
    service::{internal_traffic_policy, ip_family, protocol, session_affinity},
    typed,
};
use crate::clusterset::{
    Audience, ClusterId, Export, ExportSource, ServiceName, ServicePort, ServiceSpec, ServiceType,
    Stamp, Timestamp, well_known,
};

/// `spec` of an ExportedService. `deploy/helm/mcs-controller/crds` has its schema.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedServiceSpec {
    /// The cluster that exports.
    pub cluster_id: String,
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
    /// When its ServiceExport was created: the oldest export decides conflicts.
    pub exported_at: String,
    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type")]
    pub service_type: String,
    /// The ports of the Service.
    #[serde(default)]
    pub ports: Vec<ExportedPort>,
    /// The IP families of the Service.
    #[serde(default)]
    pub ip_families: Vec<String>,
    /// `None` or `ClientIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    /// How long a client returns to its endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// `Cluster` or `Local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,
    /// As of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
    /// Labels for the ServiceImport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for the ServiceImport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The VIPs that the service has in the exporting cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// The clusters that the export is for; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<String>>,
    /// A field that the next version adds.
    #[cfg(feature = "next")]
    #[serde(default)]
    pub moon: Option<String>,
    /// The EndpointSlices of the Service, by their names in the exporting cluster. If the mailbox lacks a slice, readers
    /// keep its copy while this list names it.
    #[serde(default)]
    pub slices: Vec<String>,
}

/// A port of an exported Service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedPort {
    /// Empty if unnamed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port of the Service.
    pub port: u16,
    /// As of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// As of a Service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionAffinityConfig {
    /// For `ClientIP`.
    #[serde(rename = "clientIP")]
    pub client_ip: ClientIpConfig,
}

/// As of a Service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    /// In seconds.
    pub timeout_seconds: Option<i32>,
}

/// A published export, and the names of its slices.
#[derive(Clone, PartialEq, Debug)]
pub struct Exported {
    /// The export.
    pub export: Export,
    /// The slices by their names in the source cluster, sorted.
    pub slices: Vec<Arc<str>>,
}

/// An ExportedService.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportedObject {
    /// Its content.
    pub exported: Exported,
    /// When it was written.
    pub stamp: Stamp,
    /// Whether the export has ended.
    pub is_withdrawn: bool,
    /// Unknown fields that a reader has to understand in order to import the service.
    pub unknown_demands: Vec<String>,
    /// `metadata.resourceVersion`.
    pub version: Option<Arc<str>>,
}

impl ExportedObject {
    /// Whether readers of this version can import it.
    pub const fn is_usable(&self) -> bool {
        !self.is_withdrawn && self.unknown_demands.is_empty()
    }
}

/// The fields of `spec` that restrict who imports a service, as far as this version knows them.
const DEMANDS: [&str; 1] = ["audience"];

/// Decodes ExportedServices.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportedServiceDecoder;

#[derive(Deserialize)]
struct Fields {
    metadata: ObjectMeta,
    spec: ExportedServiceSpec,
}

impl Decoder for ExportedServiceDecoder {
    type Value = ExportedObject;

    fn decode(_: ObjectKey, object: &Value) -> Result<ExportedObject, String> {
        let Fields { metadata, spec } = typed(object)?;
        let exported = exported(spec)?;
        let expected = exported_name(&exported.export.name);
        let name = metadata.name.unwrap_or_default();
        if name != expected {
            return Err(format!("its name is {name:?}, and has to be {expected}"));
        }
        let annotations = metadata.annotations.unwrap_or_default();
        let said = |name: &str| annotations.get(name).map_or("", String::as_str);
        let demands = said(well_known::MUST_UNDERSTAND).split(',').map(str::trim);
        let unknown = demands.filter(|field| !field.is_empty() && !DEMANDS.contains(field));
        Ok(ExportedObject {
            exported,
            stamp: said(well_known::WRITTEN).parse().unwrap_or(Stamp::NONE),
            is_withdrawn: said(well_known::WITHDRAWN) == "true",
            unknown_demands: unknown.map(str::to_owned).collect(),
            version: metadata.resource_version.map(Into::into),
        })
    }

    fn weight(object: &ExportedObject) -> usize {
        object.exported.weight()
    }

    /// The namespace that exports.
    fn account(name: &str) -> &str {
        name.split_once('.').map_or("", |(namespace, _)| namespace)
    }
}

/// The service of the ExportedService with this name, whatever its content is.
pub fn service_of(name: &str) -> Option<ServiceName> {
    let (namespace, name) = name.split_once('.')?;
    ServiceName::new(namespace, name).ok()
}

fn exported(spec: ExportedServiceSpec) -> Result<Exported, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let created: Time = spec.exported_at.parse().map_err(|error| text(&error))?;
    let audience = match spec.audience {
        None => Audience::All,
        Some(ids) => Audience::Only(ids.iter().filter_map(|id| id.parse().ok()).collect()),
    };
    let service_type = match &*spec.service_type {
        "ClusterSetIP" => ServiceType::ClusterSetIp,
        "Headless" => ServiceType::Headless,
        other => return Err(format!("spec.type: {other:?} is neither ClusterSetIP nor Headless")),
    };
    let source = ExportSource::Service(ServiceSpec {
        service_type,
        ports: spec.ports.into_iter().filter_map(port).collect(),
        ip_families: spec.ip_families.iter().filter_map(|family| ip_family(family)).collect(),
        session_affinity: session_affinity(
            spec.session_affinity.as_deref(),
            spec.session_affinity_config.and_then(|config| config.client_ip.timeout_seconds),
        ),
        internal_traffic_policy: internal_traffic_policy(spec.internal_traffic_policy.as_deref()),
        traffic_distribution: spec.traffic_distribution.map(Into::into),
        labels: map(Some(spec.labels)),
        annotations: map(Some(spec.annotations)),
    });
    let mut slices: Vec<Arc<str>> = spec.slices.into_iter().map(Into::into).collect();
    slices.sort();
    let export = Export {
        cluster: spec.cluster_id.parse().map_err(|error| text(&error))?,
        name: ServiceName::new(&spec.namespace, &spec.name).map_err(|error| text(&error))?,
        created: Timestamp(created.as_second()),
        source,
        vips: spec.ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()).collect(),
        audience,
    };
    Ok(Exported { export, slices })
}

fn port(port: ExportedPort) -> Option<ServicePort> {
    Some(ServicePort {
        name: port.name.into(),
        protocol: protocol(Some(&port.protocol))?,
        port: port.port,
        app_protocol: port.app_protocol.map(Into::into),
    })
}

/// The name of a service's ExportedService. A namespace has no dot, so two services never share one.
pub fn exported_name(service: &ServiceName) -> String {
    format!("{}.{}", service.namespace(), service.name())
}

/// An ExportedService as the controller writes it. `None`: there is no Service to export. With `version`, it only replaces
/// that version.
pub fn exported_service(
    mailbox: &str,
    exported: &Exported,
    stamp: Stamp,
    is_withdrawn: bool,
    version: Option<&str>,
) -> Option<Value> {
    let Exported { export, slices } = exported;
    let spec = export.spec()?;
    let created = Time::from_second(export.created.0).unwrap_or_default();
    let port = |port: &ServicePort| ExportedPort {
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
        port: port.port,
        app_protocol: port.app_protocol.as_deref().map(str::to_owned),
    };
    let strings = |map: &BTreeMap<Arc<str>, Arc<str>>| {
        map.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    let audience = match &export.audience {
        Audience::All => None,
        Audience::Only(ids) => Some(ids.iter().map(ClusterId::to_string).collect()),
    };
    let spec = ExportedServiceSpec {
        cluster_id: export.cluster.to_string(),
        namespace: export.name.namespace().to_owned(),
        name: export.name.name().to_owned(),
        exported_at: conditions::seconds(created),
        service_type: spec.service_type.to_string(),
        ports: spec.ports.iter().map(port).collect(),
        ip_families: spec.ip_families.iter().map(ToString::to_string).collect(),
        session_affinity: Some(spec.session_affinity.name().to_owned()),
        session_affinity_config: spec.session_affinity.timeout_seconds().map(|seconds| {
            SessionAffinityConfig { client_ip: ClientIpConfig { timeout_seconds: Some(seconds) } }
        }),
        internal_traffic_policy: Some(spec.internal_traffic_policy.to_string()),
        traffic_distribution: spec.traffic_distribution.as_deref().map(str::to_owned),
        labels: strings(&spec.labels),
        annotations: strings(&spec.annotations),
        ips: export.vips.iter().map(ToString::to_string).collect(),
        audience,
        #[cfg(feature = "next")]
        moon: Some("full".to_owned()),
        slices: slices.iter().map(ToString::to_string).collect(),
    };
    let mut annotations = json!({well_known::WRITTEN: stamp.to_string()});
    if spec.audience.is_some() {
        annotations[well_known::MUST_UNDERSTAND] = json!("audience");
    }
    if is_withdrawn {
        annotations[well_known::WITHDRAWN] = json!("true");
    }
    Some(json!({
        "apiVersion": format!("{}/{OWN_VERSION}", well_known::GROUP),
        "kind": "ExportedService",
        "metadata": {
            "namespace": mailbox,
            "name": exported_name(&export.name),
            "resourceVersion": version,
            "labels": {well_known::MANAGED_BY: well_known::CONTROLLER},
            "annotations": annotations,
        },
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::{InternalTrafficPolicy, IpFamily, Protocol, SessionAffinity};

    #[test]
    fn an_exported_service_is_read_as_it_was_written() {
        let pairs = |key: &str| [(key.into(), "v".into())].into();
        let spec = ServiceSpec {
            service_type: ServiceType::ClusterSetIp,
            ports: vec![ServicePort {
                name: "http".into(),
                protocol: Protocol::Udp,
                port: 80,
                app_protocol: Some("h2c".into()),
            }],
            ip_families: vec![IpFamily::V6, IpFamily::V4],
            session_affinity: SessionAffinity::ClientIp { timeout_seconds: 10 },
            internal_traffic_policy: InternalTrafficPolicy::Local,
            traffic_distribution: Some("PreferClose".into()),
            labels: pairs("l"),
            annotations: pairs("a"),
        };
        let exported = Exported {
            export: Export {
                cluster: "east".parse().unwrap(),
                name: ServiceName::new("shop", "web").unwrap(),
                created: Timestamp(1_767_323_045),
                source: ExportSource::Service(spec),
                vips: vec!["241.1.2.3".parse().unwrap()],
                audience: Audience::Only(["west".parse().unwrap()].into()),
            },
            slices: vec!["web-a".into(), "web-b".into()],
        };
        let stamp = Stamp { mailbox: 0, epoch: 1, sequence: 2 };
        let write = |is_withdrawn| {
            exported_service("mcs-mailbox", &exported, stamp, is_withdrawn, Some("9")).unwrap()
        };
        let object = write(false);
        assert_eq!(object["metadata"]["name"], "shop.web");
        let key = ObjectKey::new("mcs-mailbox", "shop.web");
        let read = |object: &Value| ExportedServiceDecoder::decode(key.clone(), object);
        let expected = ExportedObject {
            exported: exported.clone(),
            stamp,
            is_withdrawn: false,
            unknown_demands: vec![],
            version: Some("9".into()),
        };
        assert_eq!(read(&object), Ok(expected));
        assert!(read(&write(true)).unwrap().is_withdrawn);
        let mut other = object.clone();
        other["metadata"]["name"] = json!("shop.cart");
        assert!(read(&other).is_err());
        let mut next = object;
        next["spec"]["moon"] = json!("full");
        assert!(read(&next).unwrap().is_usable(), "a field of a later version");
        next["metadata"]["annotations"][well_known::MUST_UNDERSTAND] = json!("audience,moon");
        let next = read(&next).unwrap();
        assert_eq!((next.is_usable(), next.unknown_demands), (false, vec!["moon".to_owned()]));
        assert_eq!(service_of("shop.web"), Some(exported.export.name));
        assert_eq!([service_of("web"), service_of("shop.w.b")], [None, None]);
    }
}
