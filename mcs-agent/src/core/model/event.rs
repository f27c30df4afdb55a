//! Events: what a source tells the store.

use std::sync::Arc;

use super::{Kind, NodeFacts, Object, ObjectRef, SourceStatus};

/// A change of objects. All sources report changes in this form. `T`: what an object was read as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectEvent<T = Object> {
    /// The object exists with this content.
    Apply(T),
    /// The object does not exist any more.
    Delete(ObjectRef),
    /// The object exists but cannot be read as its kind. The agent stops using it and reports it.
    Malformed {
        /// The object.
        object: ObjectRef,
        /// The error and its place.
        message: String,
    },
    /// The complete list of a kind. Other objects of this kind do not exist; the kind is synced.
    Relist {
        /// The kind.
        kind: Kind,
        /// Every object of this kind that can be read.
        objects: Vec<T>,
    },
}

impl<T> ObjectEvent<T> {
    /// The event about what each object becomes. An object can become nothing.
    pub(crate) fn filter_map<U>(
        self,
        mut to: impl FnMut(T) -> Option<U>,
    ) -> Option<ObjectEvent<U>> {
        Some(match self {
            Self::Apply(object) => ObjectEvent::Apply(to(object)?),
            Self::Delete(object) => ObjectEvent::Delete(object),
            Self::Malformed { object, message } => ObjectEvent::Malformed { object, message },
            Self::Relist { kind, objects } => {
                ObjectEvent::Relist { kind, objects: objects.into_iter().filter_map(to).collect() }
            }
        })
    }
}

/// Changes that belong together, and the status of the source after them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventBatch {
    /// The store applies them in this order.
    pub events: Vec<ObjectEvent>,
    /// Facts about the node. They replace the facts of the batch before. Most batches share one value.
    pub node: Arc<NodeFacts>,
    /// The status of the source. It replaces the status of the batch before. Most batches share one value.
    pub status: Arc<SourceStatus>,
}
