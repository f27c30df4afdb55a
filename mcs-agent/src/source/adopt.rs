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

use std::collections::{BTreeMap, BTreeSet};

pub use self::{antrea::ANTREA, gke::GKE, karmada::KARMADA};
pub(super) use self::{
    cilium::AFFINITY_ANNOTATION,
    gke::{GROUP as GKE_GROUP, VERSIONS as GKE_VERSIONS},
    karmada::SERVICE_SELECTOR,
    objects::{Adopter, List, ReadEvent},
    service::Service,
    slice::ForeignSlice,
};
use crate::model::{Adoptable, AdoptableGroup, Controller, Object};

/// Groups whose presence shows a controller.
const GROUPS: [(&str, Controller); 4] = [
    (antrea::GROUP, ANTREA),
    (gke::GROUP, GKE),
    ("networking.karmada.io", KARMADA),
    ("work.karmada.io", KARMADA),
];

/// On a slice: the Service that it belongs to.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// On a slice: the controller that keeps it.
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// An object as a source reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ReadObject {
    /// An object of KEP-1645. An import may be another controller's all the same.
    Standard(Object),
    /// A Service that may belong to another controller's import.
    Service(Box<Service>),
    /// A slice without the label of an import.
    Slice(ForeignSlice),
}

/// The other controller that an import belongs to, and its Service.
pub(super) fn of_import(
    name: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Option<Adoptable> {
    gke::of_import(annotations).or_else(|| karmada::of_import(name, labels))
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
    [ANTREA, GKE, KARMADA].into_iter().find(|controller| controller.to_string() == word)
}

/// What `--adopt` would do with the objects of a group.
pub fn offer(AdoptableGroup { controller, group }: &AdoptableGroup) -> String {
    let objects = match GROUPS.iter().find(|(known, _)| known == group) {
        Some((_, ANTREA)) => {
            "its ServiceImports, if it exports pod addresses (endpointIPType: PodIP)"
        }
        Some((_, KARMADA)) => "the Services and ServiceImports that Karmada propagates",
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
            ANTREA => antrea::MANAGERS,
            GKE => gke::MANAGERS,
            KARMADA => karmada::MANAGERS,
            _ => &[],
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
