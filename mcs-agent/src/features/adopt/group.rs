//! A Service with its import and slices, and the import and slices that the agent makes of them.

use std::sync::Arc;

use super::{
    Controller, ForeignImport, ForeignSlice, Service, antrea,
    foreign::SliceOrigin,
    karmada::{self, Role},
};
use crate::core::model::{EndpointSlice, Object, ServiceImport};

/// The remedy of an import that is adopted and has no slices yet.
const ADOPTED: &str =
    "nothing to do: the agent serves it as soon as that Service has EndpointSlices";

/// What belongs to one Service.
#[derive(Default)]
pub(super) struct Group<'a> {
    pub(super) service: Option<&'a Service>,
    /// The imports that name the Service, by name.
    pub(super) imports: Vec<&'a ForeignImport>,
    pub(super) slices: Vec<&'a ForeignSlice>,
}

impl Group<'_> {
    /// The objects for the store. A second import of the same Service gets no slices.
    pub(super) fn objects(&self) -> Vec<Object> {
        let Some((first, others)) = self.imports.split_first() else { return Vec::new() };
        let mut objects = self.of_import(first);
        objects.extend(others.iter().map(|other| Object::Import(other.import.clone())));
        objects
    }

    fn of_import(&self, foreign: &ForeignImport) -> Vec<Object> {
        let ForeignImport { import, controller, service } = foreign;
        let is_of_antrea = *controller == Controller::Antrea;
        if is_of_antrea && !self.has_mirrored_slices() {
            return vec![Object::Import(import.clone())];
        }
        let mut adopted = ServiceImport {
            derived_service: Some(service.clone()),
            remedy: ADOPTED.into(),
            pod_remedy: is_of_antrea.then_some(antrea::POD_REMEDY),
            ..import.clone()
        };
        if let Some(service) = self.service.filter(|_| import.ips.is_empty()) {
            adopted.ips.clone_from(&service.import.ips);
        }
        let name = &adopted.key.name;
        let slices = self.slices.iter().filter_map(|foreign| match (*controller, foreign.origin) {
            (Controller::Antrea | Controller::Gke, SliceOrigin::Mirrored) => {
                Some(imported(&foreign.slice, name, None))
            }
            (Controller::Karmada, SliceOrigin::Karmada(Role::Imported)) => {
                let cluster = karmada::cluster_of_imported(&foreign.slice.key.name, name);
                Some(imported(&foreign.slice, name, cluster))
            }
            _ => None,
        });
        let slices: Vec<Object> = slices.map(Object::Slice).collect();
        std::iter::once(Object::Import(adopted)).chain(slices).collect()
    }

    /// Whether Kubernetes mirrors slices of the Service.
    fn has_mirrored_slices(&self) -> bool {
        self.slices.iter().any(|foreign| foreign.origin == SliceOrigin::Mirrored)
    }

    /// Whether Karmada dispatches slices of other clusters to the Service.
    pub(super) fn has_dispatched_slices(&self) -> bool {
        let dispatched = SliceOrigin::Karmada(Role::Dispatched);
        self.slices.iter().any(|foreign| foreign.origin == dispatched)
    }

    /// The objects of a `MultiClusterService`: the Service as an import, with the dispatched slices and those of the own
    /// cluster.
    pub(super) fn multi_cluster_service(&self) -> Vec<Object> {
        let Some(service) = self.service.filter(|_| self.has_dispatched_slices()) else {
            return Vec::new();
        };
        let annotated = self.slices.iter().find_map(|foreign| foreign.own_cluster.as_deref());
        let own_cluster = service.own_cluster.as_deref().or(annotated);
        let name = &service.key.name;
        let slices = self.slices.iter().filter_map(|foreign| match foreign.origin {
            SliceOrigin::Karmada(Role::Dispatched) => Some(imported(&foreign.slice, name, None)),
            SliceOrigin::Karmada(Role::Imported) => None,
            SliceOrigin::Mirrored | SliceOrigin::Other => {
                Some(imported(&foreign.slice, name, own_cluster))
            }
        });
        let slices: Vec<Object> = slices.map(Object::Slice).collect();
        std::iter::once(Object::Import(service.import.clone())).chain(slices).collect()
    }
}

/// The slice as one of the import `name`. Without `cluster` its source cluster stays.
fn imported(slice: &EndpointSlice, name: &Arc<str>, cluster: Option<&str>) -> EndpointSlice {
    let source_cluster = cluster.map_or_else(|| Arc::clone(&slice.source_cluster), Into::into);
    EndpointSlice { service: Arc::clone(name), source_cluster, ..slice.clone() }
}
