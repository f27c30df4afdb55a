//! Adopts the objects of controllers that do not follow KEP-1645 (`--adopt`): makes imports and imported slices of
//! what they leave in a cluster.
//!
//! It stands between the decoder and the store. Rules and store see the result alone. Without the flag no object passes it:
//! it looks at imports, to say in `status` what the flag would do for them.

mod antrea;
mod args;
mod coverage;
mod decoders;
mod feature;
mod filter;
mod gke;
mod group;
mod karmada;
mod objects;
mod offers;
mod service;
mod slice;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use self::{
    coverage::Coverage,
    objects::{Adopter, List},
    offers::recognise,
    service::Service,
    slice::ForeignSlice,
};
use crate::core::{
    feature::Definition,
    model::{Object, ServiceImport},
    source::objects::LabelledImport,
};

/// Adoption in the list of features.
pub const FEATURE: Definition = Definition {
    flags: args::flags,
    reads: args::reads,
    filter: |from| Some(Box::new(filter::Adoption::new(from))),
    start: feature::start,
    source_lines: offers::lines,
    ..Definition::named("adopt")
};

/// A multi-cluster controller whose objects the agent serves with `--adopt`. They lack the labels of KEP-1645, or have
/// another API group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Controller {
    /// Antrea's ServiceImports, for clusters that export pod addresses (`endpointIPType: PodIP`)
    Antrea,
    /// GKE's ServiceImports (net.gke.io)
    Gke,
    /// Services of Karmada's multi-cluster services, and ServiceImports that Karmada propagates
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

/// On a slice: the Service that it belongs to.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// On a slice: the controller that keeps it.
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// An object as it is kept: by whose it is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SortedObject {
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
struct ForeignImport {
    import: ServiceImport,
    controller: Controller,
    /// The Service's name, in the namespace of the import.
    service: String,
}

impl SortedObject {
    /// An import. Labels or annotations can show that a controller has made a Service for it.
    fn of_import(mut read: LabelledImport) -> Self {
        match recognise(&mut read) {
            Some((controller, service)) => {
                Self::Import(ForeignImport { import: read.import, controller, service })
            }
            None => Self::Standard(Object::Import(read.import)),
        }
    }
}

/// The label selector of the slices that these controllers write, but for those with the label of an import.
/// `None`: they write none.
fn slice_selector(controllers: &BTreeSet<Controller>) -> Option<String> {
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
            crate::core::source::objects::SERVICE_NAME_LABEL
        )
    })
}
