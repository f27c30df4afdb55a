//! Adopts the objects of controllers that do not follow KEP-1645 (`--adopt`): makes imports and imported slices of
//! what they leave in a cluster.
//!
//! It stands between the decoder and the store. Rules and store see the result alone.

mod antrea;
mod cilium;
mod gke;
mod group;
mod karmada;
mod objects;
mod service;
mod slice;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

pub(super) use self::{
    cilium::{AFFINITY_ANNOTATION, PUBLISH},
    gke::{GROUP as GKE_GROUP, VERSIONS as GKE_VERSIONS},
    karmada::SERVICE_SELECTOR,
    objects::{Adopter, List, ReadEvent},
    service::Service,
    slice::ForeignSlice,
};
use crate::model::{AdoptableGroup, Object, ServiceImport};

/// A multi-cluster controller whose objects the agent serves with `--adopt`. They lack the labels of KEP-1645, or have
/// another API group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Controller {
    /// ServiceImports whose Service `antrea-mc-NAME` has the addresses of pods.
    Antrea,
    /// ServiceImports of an API group of its own.
    Gke,
    /// Services of a `MultiClusterService`, and ServiceImports that Karmada propagates.
    Karmada,
}

impl fmt::Display for Controller {
    /// The word of `--adopt`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Antrea => "antrea",
            Self::Gke => "gke",
            Self::Karmada => "karmada",
        })
    }
}

/// Groups whose presence shows a controller.
const GROUPS: [(&str, Controller); 4] = [
    (antrea::GROUP, Controller::Antrea),
    (gke::GROUP, Controller::Gke),
    ("networking.karmada.io", Controller::Karmada),
    ("work.karmada.io", Controller::Karmada),
];

/// On a slice: the Service that it belongs to.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// On a slice: the controller that keeps it.
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// An object as a source reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ReadObject {
    /// An object of KEP-1645.
    Standard(Object),
    /// An import of another controller.
    Import(ForeignImport),
    /// A Service that may belong to another controller's import.
    Service(Box<Service>),
    /// A slice without the label of an import.
    Slice(ForeignSlice),
}

/// An import for which a controller has made a Service, by a convention of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ForeignImport {
    import: ServiceImport,
    controller: Controller,
    /// The Service's name, in the namespace of the import.
    service: String,
}

impl ReadObject {
    /// An import. Labels or annotations can show that a controller has made a Service for it.
    pub(super) fn of_import(
        mut import: ServiceImport,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        let of_karmada =
            || Some((Controller::Karmada, karmada::service_of(&import.key.name, labels)?));
        let of_gke = gke::service_of(annotations).map(|service| (Controller::Gke, service));
        // The agent serves no import whose endpoints are not published, adopted or not.
        let is_published = import.endpoint_slice_objects.as_deref() != Some("Absent");
        match of_gke.or_else(of_karmada) {
            Some((controller, service)) if is_published && import.derived_service.is_none() => {
                import.remedy = format!("to hand it to the agent, set --adopt={controller}").into();
                // GKE's import names its Service, which serves the import until the agent adopts it.
                import.derived_service = (controller == Controller::Gke).then(|| service.clone());
                Self::Import(ForeignImport { import, controller, service })
            }
            _ => Self::Standard(Object::Import(import)),
        }
    }
}

/// The groups among these that show a controller that is not `adopted`, one of each.
pub(super) fn adoptable_groups<'a>(
    groups: impl Iterator<Item = &'a str>,
    adopted: &BTreeSet<Controller>,
) -> Vec<AdoptableGroup> {
    let groups: BTreeSet<&str> = groups.collect();
    let mut shown = adopted.clone();
    GROUPS
        .into_iter()
        .filter(|(group, controller)| groups.contains(group) && shown.insert(*controller))
        .map(|(group, controller)| AdoptableGroup {
            controller: controller.to_string(),
            group: group.to_owned(),
        })
        .collect()
}

/// The controller with this word of `--adopt`.
pub fn controller(word: &str) -> Option<Controller> {
    [Controller::Antrea, Controller::Gke, Controller::Karmada]
        .into_iter()
        .find(|controller| controller.to_string() == word)
}

/// What `--adopt` would do with the objects of a group.
pub fn offer(AdoptableGroup { controller, group }: &AdoptableGroup) -> String {
    let objects = match GROUPS.iter().find(|(known, _)| known == group) {
        Some((_, Controller::Antrea)) => {
            "its ServiceImports, if it exports pod addresses (endpointIPType: PodIP)"
        }
        Some((_, Controller::Karmada)) => "the Services and ServiceImports that Karmada propagates",
        _ => "its ServiceImports",
    };
    format!("the API server has the group {group}: --adopt={controller} serves {objects}")
}

/// The label selector of the slices that these controllers write, but for those with the label of an import.
/// `None`: they write none.
pub(super) fn slice_selector(controllers: &BTreeSet<Controller>) -> Option<String> {
    let managers: BTreeSet<&str> = controllers
        .iter()
        .flat_map(|controller| match *controller {
            Controller::Antrea => antrea::MANAGERS,
            Controller::Gke => gke::MANAGERS,
            Controller::Karmada => karmada::MANAGERS,
        })
        .copied()
        .collect();
    let managers: Vec<&str> = managers.into_iter().collect();
    (!managers.is_empty()).then(|| {
        format!(
            "{MANAGED_BY_LABEL} in ({}),!{}",
            managers.join(","),
            super::objects::SERVICE_NAME_LABEL
        )
    })
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
            super::objects::SERVICE_NAME_LABEL
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::import;

    #[test]
    fn labels_and_annotations_show_whose_import_it_is() {
        let of_gke = [("net.gke.io/derived-service".to_owned(), "gke-abc".to_owned())].into();
        let of_karmada = [("karmada.io/managed".to_owned(), "true".to_owned())].into();
        let none = BTreeMap::new();
        let derived =
            || ServiceImport { derived_service: Some("other".to_owned()), ..import("shop/web") };
        let absent = || ServiceImport {
            endpoint_slice_objects: Some("Absent".to_owned()),
            ..import("shop/web")
        };
        for (import, labels, annotations, expected) in [
            (import("shop/web"), &none, &none, None),
            (import("shop/web"), &none, &of_gke, Some(("gke", "gke-abc"))),
            (import("shop/web"), &of_karmada, &none, Some(("karmada", "derived-web"))),
            (import("shop/web"), &of_karmada, &of_gke, Some(("gke", "gke-abc"))),
            (derived(), &of_karmada, &of_gke, None),
            (absent(), &of_karmada, &of_gke, None),
        ] {
            match (ReadObject::of_import(import, labels, annotations), expected) {
                (ReadObject::Standard(_), None) => {}
                (ReadObject::Import(foreign), Some((word, service))) => {
                    assert_eq!(
                        (&*foreign.controller.to_string(), &*foreign.service),
                        (word, service)
                    );
                    let remedy = format!("to hand it to the agent, set --adopt={word}");
                    assert_eq!(foreign.import.remedy, remedy);
                }
                (read, expected) => panic!("{read:?} instead of {expected:?}"),
            }
        }
    }
}
