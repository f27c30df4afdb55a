//! What stands between a source and the store: the filter of a feature, or nothing.

use std::{any::Any, fmt, sync::Arc};

use mcs_kube::{ApiAccess, discovery::ApiGroups};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    SourceOptions,
    kubernetes::{ClusterUpdate, Watch, watched_list::WatchedResource},
    objects::LabelledImport,
};
use crate::core::model::{
    EndpointSlice, Kind, Object, ObjectEvent, ObjectKey, ObjectRef, Sections,
};

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
