//! The Services and slices that other controllers may have written: their decoders, and the Services of the own cluster
//! whose slices are read.

use std::collections::BTreeSet;

use mcs_kube::{
    Decoder,
    objects::{self, SessionAffinityConfig},
};

use super::{MANAGED_BY_LABEL, SERVICE_LABEL, karmada};
use crate::core::{
    model::{EndpointSlice, Kind, ObjectKey, ServiceImport, ServiceType, Timestamp},
    source::objects::{PUBLISH, into_domain, port},
};

/// What the agent uses of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Service {
    pub(super) key: ObjectKey,
    /// The Service as an import, if the agent adopts it. Its addresses are the ClusterIPs.
    pub(super) import: ServiceImport,
    /// The name that Karmada has for the own cluster.
    pub(super) own_cluster: Option<Box<str>>,
}

impl Service {
    /// Converts a Service. It has no addresses if it is headless, or an alias.
    pub(super) fn convert(service: objects::Service, key: ObjectKey) -> Self {
        let objects::Service { metadata, spec, .. } = service;
        let addresses =
            if spec.cluster_ips.is_empty() { vec![spec.cluster_ip] } else { spec.cluster_ips };
        let ips: Vec<String> =
            addresses.into_iter().filter(|ip| !ip.is_empty() && ip != "None").collect();
        Self {
            own_cluster: metadata
                .annotation(karmada::WORK_NAMESPACE_ANNOTATION)
                .and_then(karmada::own_cluster)
                .map(Into::into),
            import: ServiceImport {
                created: metadata.creation_timestamp.map(|time| Timestamp(time.seconds)),
                derived_service: Some(key.name.to_string()),
                remedy: PUBLISH.into(),
                service_type: if ips.is_empty() {
                    ServiceType::Headless
                } else {
                    ServiceType::ClusterSetIp
                },
                ips,
                ports: spec.ports.into_iter().map(port).collect(),
                session_affinity: Some(spec.session_affinity).filter(|one| !one.is_empty()),
                affinity_timeout_seconds: spec
                    .session_affinity_config
                    .and_then(SessionAffinityConfig::timeout_seconds),
                internal_traffic_policy: spec.internal_traffic_policy,
                traffic_distribution: spec.traffic_distribution.map(Into::into),
                ..ServiceImport::new(Kind::Service, key.clone())
            },
            key,
        }
    }
}

/// A slice of a Service that may be another controller's import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ForeignSlice {
    /// `service` names the Service. An annotation names the source cluster.
    pub(super) slice: EndpointSlice,
    pub(super) origin: SliceOrigin,
    /// The name that Karmada has for the own cluster.
    pub(super) own_cluster: Option<Box<str>>,
}

/// Who keeps a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SliceOrigin {
    /// Karmada.
    Karmada(karmada::Role),
    /// A controller of Kubernetes mirrors it from Endpoints.
    Mirrored,
    /// Anybody else, Kubernetes for the Services of the own cluster among them.
    Other,
}

impl ForeignSlice {
    /// Converts a slice without the label of an import. Returns `None` for one of no Service.
    pub(super) fn convert(slice: objects::EndpointSlice, key: ObjectKey) -> Option<Self> {
        let metadata = &slice.metadata;
        let service = metadata.label(SERVICE_LABEL)?.into();
        let manager = metadata.label(MANAGED_BY_LABEL).unwrap_or_default();
        let origin = match karmada::role(manager) {
            Some(role) => SliceOrigin::Karmada(role),
            None if super::gke::MANAGERS.contains(&manager) => SliceOrigin::Mirrored,
            None => SliceOrigin::Other,
        };
        let cluster = match origin {
            SliceOrigin::Karmada(karmada::Role::Dispatched) => {
                metadata.annotation(karmada::PROVIDER_ANNOTATION)
            }
            _ => None,
        };
        let cluster = cluster.unwrap_or_default().into();
        let namespace = metadata.annotation(karmada::WORK_NAMESPACE_ANNOTATION);
        Some(Self {
            origin,
            own_cluster: namespace.and_then(karmada::own_cluster).map(Into::into),
            slice: into_domain(slice, key, service, cluster),
        })
    }
}

/// Bytes of Service names that a request has room for. The crate `http` takes URIs of at most 65,534 bytes.
const NAMES: usize = 48 * 1024;

/// The Services whose local slices a list has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Coverage {
    /// Those of these names.
    Named(BTreeSet<String>),
    /// All Services of the cluster.
    All,
}

impl Coverage {
    /// Covers no Service.
    pub(super) const NONE: Self = Self::Named(BTreeSet::new());

    /// The least that covers these Services and that one request can ask for.
    ///
    /// What covers all stays so until the names take half of the room: few changes then do not list all slices of the
    /// cluster again and again.
    pub(super) fn of(services: BTreeSet<String>, before: &Self) -> Self {
        let room = if *before == Self::All { NAMES / 2 } else { NAMES };
        // `,` becomes `%2C`.
        let bytes: usize = services.iter().map(|name| name.len() + 3).sum();
        if bytes <= room { Self::Named(services) } else { Self::All }
    }

    /// Whether it covers the Services of this name.
    pub(super) fn has(&self, service: &str) -> bool {
        match self {
            Self::Named(services) => services.contains(service),
            Self::All => true,
        }
    }

    /// The label selector of the slices that the own cluster's controllers keep for these Services.
    pub(super) fn selector(&self) -> String {
        let services = match self {
            Self::Named(services) => {
                let services: Vec<&str> = services.iter().map(String::as_str).collect();
                format!(" in ({})", services.join(","))
            }
            Self::All => String::new(),
        };
        format!(
            "{SERVICE_LABEL}{services},{MANAGED_BY_LABEL} notin ({}),!{}",
            karmada::MANAGERS.join(","),
            crate::core::source::objects::SERVICE_NAME_LABEL
        )
    }
}

/// Decodes Services.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ServiceDecoder;

impl Decoder for ServiceDecoder {
    type Object = objects::Service;
    type Value = Service;

    fn convert(key: &ObjectKey, service: objects::Service) -> Result<Self::Value, String> {
        Ok(Service::convert(service, key.clone()))
    }
}

/// Decodes EndpointSlices without the label of an import; `None` is a slice of no Service.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ForeignSliceDecoder;

impl Decoder for ForeignSliceDecoder {
    type Object = objects::EndpointSlice;
    type Value = Option<ForeignSlice>;

    fn convert(key: &ObjectKey, slice: Self::Object) -> Result<Self::Value, String> {
        Ok(ForeignSlice::convert(slice, key.clone()))
    }
}
