//! The domain types that cross module boundaries: what a source reads, what the rules want. No
//! Kubernetes type, no map type.

mod capacity;
mod desired;
mod event;
#[cfg(test)]
pub(crate) mod fixture;
mod memory;
mod node;
mod object;
mod rejection;

pub use capacity::Capacity;
pub use desired::{
    Backend, ClusterRun, DesiredChanges, DesiredState, Frontend, FrontendId, ImportReport,
    ImportState, Protocol,
};
pub use event::{EventBatch, KindStatus, ObjectEvent, SourceProblem, SourceStatus};
pub use memory::{Memory, MemoryError};
pub use node::{NodeContext, NodeFacts};
pub use object::{
    Endpoint, EndpointAddress, EndpointSlice, Hints, ImportPort, Kind, Object, ObjectKey,
    ObjectRef, ServiceImport, ServiceType, SlicePort, Timestamp,
};
pub use rejection::{Rejection, RejectionReason};
