//! The domain types that cross module boundaries: what a source reads, what the rules want. No
//! Kubernetes type, no map type.

mod capacity;
mod desired;
mod event;
#[cfg(test)]
pub(crate) mod fixture;
mod node;
mod object;
mod rejection;

pub use capacity::{Capacity, Memory, MemoryError};
pub use desired::{
    Backend, ClusterRun, DesiredChanges, DesiredState, Frontend, FrontendId, ImportReport,
    ImportState, Protocol,
};
pub use event::{EventBatch, KindStatus, ObjectEvent, SourceProblem, SourceStatus};
pub use node::{NodeContext, NodeFacts};
pub use object::{
    Endpoint, EndpointAddress, EndpointSlice, Hints, ImportPort, Kind, Object, ObjectKey,
    ObjectRef, ServiceImport, ServiceType, SlicePort, Timestamp, Trigger,
};
pub use rejection::{Rejection, RejectionReason};
