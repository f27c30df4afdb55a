//! Where objects come from: an API server, or what a feature reads in its place. A source sends [`EventBatch`]es of events
//! on domain types; no Kubernetes type and no file leaves it. An agent runs exactly one source.

pub(crate) mod decode;
pub(crate) mod kubernetes;
pub(crate) mod objects;

use std::{any::Any, collections::BTreeSet, fmt, path::PathBuf, pin::Pin, sync::Arc};

use mcs_kube::{ApiAccess, discovery::ApiGroups};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

#[cfg(feature = "testing")]
pub use self::kubernetes::testing;
pub use self::kubernetes::{AccessError, KubernetesSource};
use self::{
    kubernetes::{ClusterUpdate, Watch, state::WatchedResource},
    objects::{LabelledImport, MCS_GROUP},
};
use super::model::{
    EndpointSlice, EventBatch, Kind, Object, ObjectEvent, ObjectKey, ObjectRef, Sections,
};

/// A source that has read nothing yet.
pub trait ObjectSource {
    /// Begins to read. What it returns sends a batch for each change, until the receiver is dropped. Errors are part of the
    /// batches' status.
    fn start(self: Box<Self>, filter: Filter, batches: mpsc::Sender<EventBatch>) -> Starting;

    /// Whether its first batch has all that can be read now, of every name.
    fn reads_at_once(&self) -> bool {
        false
    }
}

/// A source at work, once it is polled.
pub type Running = Pin<Box<dyn Future<Output = ()>>>;
/// A source that begins. It fails if it will never read anything.
pub type Starting = Pin<Box<dyn Future<Output = anyhow::Result<Running>>>>;

/// An object as a source reads it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ReadObject {
    /// An import.
    Import(Box<LabelledImport>),
    /// A slice of an import.
    Slice(EndpointSlice),
    /// An object that the filter reads, as JSON.
    Other(ObjectRef, Arc<Value>),
}

/// A change of what a source reads.
pub(crate) type ReadEvent = ObjectEvent<ReadObject>;

impl ReadObject {
    /// The object for the store.
    fn into_model(self) -> Option<Object> {
        match self {
            Self::Import(read) => Some(Object::Import(read.import)),
            Self::Slice(slice) => Some(Object::Slice(slice)),
            Self::Other(..) => None,
        }
    }
}

fn is_of_imports(event: &ReadEvent) -> bool {
    match event {
        ReadEvent::Apply(read) => matches!(read, ReadObject::Import(_)),
        ReadEvent::Delete(object) | ReadEvent::Malformed { object, .. } => {
            object.kind == Kind::ServiceImport
        }
        ReadEvent::Relist { kind, .. } => *kind == Kind::ServiceImport,
    }
}

/// Begins to watch a resource of an API server, until the receiver is dropped.
pub(crate) type StartWatch = Box<
    dyn for<'a> FnOnce(&'a ApiAccess, &'a mpsc::Sender<ClusterUpdate>) -> Watch<'a> + Send + Sync,
>;

/// Makes imports and slices of objects that do not follow KEP-1645. It keeps what it needs of them.
pub(crate) trait ObjectFilter: fmt::Debug + Send + Sync {
    /// Whether events pass it. If not, those of KEP-1645 go straight to the store, and it reads nothing else.
    fn is_on(&self) -> bool;

    /// Looks at an event of imports that goes straight to the store: what would it do with them if it were on?
    fn look(&mut self, event: &mut ReadEvent);

    /// Takes an event of what KEP-1645 names, or of a directory. Returns those for the store.
    fn take(&mut self, event: ReadEvent) -> Vec<ObjectEvent>;

    /// The kind of this name, if the filter reads it beside KEP-1645.
    fn kind(&self, api_version: &str, kind: &str) -> Option<Kind>;

    /// Whether it uses an object that is neither an import nor a slice of one.
    fn uses(&self, kind: Kind, key: &ObjectKey, object: &Value) -> Result<bool, String>;

    /// Takes the API groups that an API server has.
    fn take_groups(&mut self, groups: &ApiGroups);

    /// Further resources to watch. A source of an API server asks first of all.
    fn watches(&mut self, options: &SourceOptions) -> Vec<StartWatch>;

    /// Takes what a watch of its own has sent. Returns events for the store.
    fn update(&mut self, update: Box<dyn Any + Send>) -> Vec<ObjectEvent>;

    /// The resources that it watches, for `status`.
    fn resources(&self) -> Vec<&WatchedResource>;

    /// Whether it has read what the first events for the store need.
    fn is_complete(&self) -> bool;

    /// Its sections of the source's status.
    fn status(&self, sections: &mut Sections);
}

/// The filter of a source, if a feature has one.
#[derive(Default, Debug)]
pub struct Filter(pub(crate) Option<Box<dyn ObjectFilter>>);

impl Filter {
    /// The filter, if events pass it.
    pub(crate) fn on(&self) -> Option<&dyn ObjectFilter> {
        self.0.as_deref().filter(|filter| filter.is_on())
    }

    /// The events for the store.
    pub(crate) fn pass(&mut self, events: Vec<ReadEvent>) -> Vec<ObjectEvent> {
        match &mut self.0 {
            Some(filter) if filter.is_on() => {
                events.into_iter().flat_map(|event| filter.take(event)).collect()
            }
            filter => {
                let straight = events.into_iter().filter_map(|mut event| {
                    if let Some(filter) = filter
                        && is_of_imports(&event)
                    {
                        filter.look(&mut event);
                    }
                    event.filter_map(ReadObject::into_model)
                });
                straight.collect()
            }
        }
    }

    pub(crate) fn status(&self) -> Sections {
        let mut sections = Sections::default();
        self.0.iter().for_each(|filter| filter.status(&mut sections));
        sections
    }
}

/// Where an agent reads objects, so that another process can read them too. Part of `status -o json`: fields are added,
/// never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadFrom {
    /// `--kubeconfig`; without it, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--import-group`.
    pub import_group: String,
    /// `--import-selector`.
    pub import_selector: Option<String>,
    /// What the flags of features say of it.
    #[serde(flatten)]
    pub sections: Sections,
}

impl Default for ReadFrom {
    /// The objects of KEP-1645, with the pod's service account.
    fn default() -> Self {
        let import_group = MCS_GROUP.to_owned();
        let sections = Sections::default();
        Self { kubeconfig: None, context: None, import_group, import_selector: None, sections }
    }
}

/// Where a source reads objects, and what else an API server is asked for: nothing by default.
#[derive(Clone, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what is watched and what not")]
pub struct SourceOptions {
    /// Where it reads.
    pub from: ReadFrom,
    /// The Node whose zone and pod ranges are watched.
    pub node: Option<String>,
    /// Whether its zone is needed. If not, the right to read Nodes may be missing.
    pub zone: bool,
    /// Whether the ClusterProperty with the cluster's id is watched (KEP-2149).
    pub cluster_id: bool,
    /// Whether the ServiceCIDRs are watched. The cluster need not have them, and the right may be missing.
    pub service_ranges: bool,
    /// Whether the ClusterProperty with the ranges of ClusterSetIPs is watched. The right may be missing. Controllers that
    /// do not follow KEP-1645 have ranges of their own.
    pub vip_ranges: bool,
    /// The names of the imports whose slices are read, and no others, at once; `None`: all, after a random delay.
    pub only: Option<BTreeSet<String>>,
}
