//! Slices that have no label of an import.

use mcs_kube::objects;

use super::{MANAGED_BY_LABEL, SERVICE_LABEL, karmada};
use crate::core::{
    model::{EndpointSlice, ObjectKey},
    source::objects::into_domain,
};

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
