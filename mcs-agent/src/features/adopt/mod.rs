//! Adopts the objects of controllers that do not follow KEP-1645 (`--adopt`): makes imports and imported slices of
//! what they leave in a cluster.
//!
//! It stands between the decoder and the store. Rules and store see the result alone. Without the flag no object passes it:
//! it looks at imports, to say in `status` what the flag would do for them.

mod antrea;
mod filter;
mod foreign;
mod gke;
mod group;
mod karmada;
mod objects;
mod offers;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, sync::Arc};

use clap::{ArgMatches, Args, Command, FromArgMatches as _, ValueEnum};
use serde::{Deserialize, Serialize};

use self::{
    foreign::{Coverage, ForeignSlice, Service},
    objects::{Adopter, List},
    offers::{of_status, recognise},
};
use crate::core::{
    feature::{Core, Definition, Feature},
    model::{Object, ServiceImport, SourceStatus},
    source::{ReadFrom, objects::LabelledImport},
};

/// Adoption in the list of features.
pub const FEATURE: Definition = Definition {
    flags,
    reads,
    filter: |from| Some(Box::new(filter::Adoption::new(from))),
    start,
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

/// The section of what an agent reads.
const SECTION: &str = "adopt";

#[derive(Debug, Args)]
struct AdoptArgs {
    /// Serve the objects of these controllers too, which do not follow KEP-1645 [default: none]
    #[arg(long, env = "MCS_ADOPT", value_name = "CONTROLLER", value_delimiter = ',')]
    adopt: Vec<Controller>,
}

fn flags(command: Command) -> Command {
    AdoptArgs::augment_args(command)
}

fn reads(matches: &ArgMatches, from: &mut ReadFrom) -> anyhow::Result<()> {
    let adopt: BTreeSet<_> = AdoptArgs::from_arg_matches(matches)?.adopt.into_iter().collect();
    from.sections.set(SECTION, &adopt);
    Ok(())
}

/// The controllers whose objects are adopted.
fn adopted(from: &ReadFrom) -> BTreeSet<Controller> {
    from.sections.get(SECTION).unwrap_or_default()
}

/// Logs offers that are new.
struct OfferLog {
    /// The status after the batch before.
    known: Arc<SourceStatus>,
}

#[expect(clippy::unnecessary_wraps, reason = "the list calls each feature alike")]
fn start(_: &ArgMatches, core: &mut Core) -> anyhow::Result<Option<Box<dyn Feature>>> {
    Ok(Some(Box::new(OfferLog { known: Arc::clone(core.engine.source()) })))
}

impl Feature for OfferLog {
    fn after_objects(&mut self, core: &mut Core) {
        let now = core.engine.source();
        if Arc::ptr_eq(&self.known, now) {
            return;
        }
        let (known_objects, known_groups) = of_status(&self.known);
        let (objects, groups) = of_status(now);
        for one in objects {
            if known_objects.iter().all(|known| known.controller != one.controller) {
                tracing::info!("{}", one.offer());
            }
        }
        for group in groups.iter().filter(|group| !known_groups.contains(group)) {
            tracing::info!("{}", group.offer());
        }
        self.known = Arc::clone(now);
    }
}
