//! The types that all parts of the agent share: objects and events from the sources, and the desired
//! state. No type here is one of the Kubernetes API or of the map ABI.

mod capacity;
mod departure;
mod desired;
mod ejection;
mod event;
#[cfg(test)]
pub(crate) mod fixture;
mod frontend;
mod import_report;
mod memory;
mod node;
mod object;
mod rejection;
mod slots;
mod spill;

pub use capacity::Capacity;
pub use departure::Departure;
pub use desired::{DesiredChanges, DesiredState};
pub use ejection::{Ejection, EjectionState, Ejections, PassiveHealth};
pub use event::{
    AdoptableGroup, AdoptableObjects, EventBatch, KindStatus, ObjectEvent, SourceProblem,
    SourceStatus,
};
pub use frontend::{Backend, ClusterRun, Frontend, FrontendId, KEPT_FOR, Protocol};
pub use import_report::{ImportReport, ImportState, LeftAloneReason};
pub use mcs_kube::{ClusterTraffic, ObjectKey, Tiers, Traffic, Unreachable, VIP_RANGES_PROPERTY};
pub use memory::{Memory, MemoryError};
pub use node::{AcceptedVips, NodeContext, NodeFacts};
pub use object::{
    ClusterAffinity, Endpoint, EndpointAddress, EndpointSlice, ImportPort, Kind, Location, Object,
    ObjectRef, ServiceImport, ServiceType, SlicePort, Timestamp, TopologyHints,
};
pub(crate) use rejection::shorten;
pub use rejection::{Rejection, RejectionReason};
pub use slots::Slots;
pub use spill::{Spill, SpillWish, TierShare, TierState};
