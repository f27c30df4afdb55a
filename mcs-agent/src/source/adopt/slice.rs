//! Slices that have no label of an import.

use k8s_openapi::api::discovery::v1;

use super::{MANAGED_BY_LABEL, SERVICE_LABEL, karmada};
use crate::{
    model::{EndpointSlice, ObjectKey},
    source::objects::{SERVICE_NAME_LABEL, domain_slice},
};

/// A slice of a Service, which may be another controller's import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::source) struct ForeignSlice {
    /// Its `service` is the Service. Its source cluster is that of the annotation, if there is one.
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
    /// Converts a slice. Returns `None` for one of no Service, or with the label of an import.
    pub(in crate::source) fn convert(slice: v1::EndpointSlice, key: ObjectKey) -> Option<Self> {
        let labels = slice.metadata.labels.as_ref()?;
        let label = |name: &str| labels.get(name).filter(|value| !value.is_empty());
        if label(SERVICE_NAME_LABEL).is_some() {
            return None;
        }
        let service = label(SERVICE_LABEL)?.clone();
        let manager = label(MANAGED_BY_LABEL).map_or("", String::as_str);
        let origin = match karmada::role(manager) {
            Some(role) => SliceOrigin::Karmada(role),
            None if super::gke::MANAGERS.contains(&manager) => SliceOrigin::Mirrored,
            None => SliceOrigin::Other,
        };
        let annotations = slice.metadata.annotations.clone().unwrap_or_default();
        let cluster = match origin {
            SliceOrigin::Karmada(karmada::Role::Dispatched) => karmada::provider(&annotations),
            _ => None,
        };
        Some(Self {
            origin,
            own_cluster: karmada::own_cluster(&annotations).map(Into::into),
            slice: domain_slice(slice, key, service, cluster.unwrap_or_default().to_owned()),
        })
    }
}
