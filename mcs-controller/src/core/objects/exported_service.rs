//! ExportedServices as the controller uses them.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp as Time;
use mcs_kube::{
    Decoder, ObjectKey,
    objects::{self, ClientIpConfig, ExportedService, ExportedServiceSpec, SessionAffinityConfig},
};
use serde_json::{Value, json};

use super::{
    OWN_VERSION, conditions, map,
    service::{internal_traffic_policy, ip_families, ports, session_affinity},
};
use crate::core::clusterset::{
    Audience, ClusterId, Export, ExportSource, ServiceName, ServicePort, ServiceSpec, Stamp,
    Timestamp, well_known,
};

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

impl Decoder for ExportedServiceDecoder {
    type Object = ExportedService;
    type Value = ExportedObject;

    fn convert(key: &ObjectKey, object: ExportedService) -> Result<ExportedObject, String> {
        let ExportedService { metadata, spec } = object;
        let exported = exported(spec)?;
        let expected = exported_name(&exported.export.name);
        if *key.name != expected {
            return Err(format!("its name is {:?}, and has to be {expected}", key.name));
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
    let source = ExportSource::Service(ServiceSpec {
        service_type: spec.service_type,
        ports: ports(spec.ports),
        ip_families: ip_families(&spec.ip_families),
        session_affinity: session_affinity(
            spec.session_affinity.as_deref(),
            spec.session_affinity_config,
        ),
        internal_traffic_policy: internal_traffic_policy(spec.internal_traffic_policy.as_deref()),
        traffic_distribution: spec.traffic_distribution.map(Into::into),
        labels: map(spec.labels),
        annotations: map(spec.annotations),
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
    let port = |port: &ServicePort| objects::ServicePort {
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
        port: port.port.into(),
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
        service_type: spec.service_type,
        ports: spec.ports.iter().map(port).collect(),
        ip_families: spec.ip_families.iter().map(ToString::to_string).collect(),
        session_affinity: Some(spec.session_affinity.name().to_owned()),
        session_affinity_config: spec.session_affinity.timeout_seconds().map(|seconds| {
            let client_ip = ClientIpConfig { timeout_seconds: Some(seconds) };
            SessionAffinityConfig { client_ip: Some(client_ip) }
        }),
        internal_traffic_policy: Some(spec.internal_traffic_policy.to_string()),
        traffic_distribution: spec.traffic_distribution.as_deref().map(str::to_owned),
        labels: strings(&spec.labels),
        annotations: strings(&spec.annotations),
        ips: export.vips.iter().map(ToString::to_string).collect(),
        audience,
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
    use crate::core::{
        clusterset::{InternalTrafficPolicy, IpFamily, Protocol, ServiceType, SessionAffinity},
        objects::decoded,
    };

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
        let read = decoded::<ExportedServiceDecoder>;
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
