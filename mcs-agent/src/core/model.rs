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
mod memory;
mod node;
mod object;

pub use capacity::Capacity;
pub use departure::Departure;
pub use desired::{DesiredChanges, DesiredState, Parts, Totals};
pub use ejection::{Ejection, EjectionState, Ejections, FailedConnects};
pub use event::{EventBatch, ObjectEvent};
pub use frontend::{Backend, ClusterRun, Frontend, KEPT_FOR, Slots};
pub(crate) use mcs_kube::shorten;
pub use mcs_kube::{
    ClusterTraffic, ObjectKey, ServiceType, Tiers, Traffic, Unreachable, VIP_RANGES_PROPERTY,
    reasons::{LeftAloneReason, RejectionReason},
    report::{
        FrontendId, ImportReport, ImportState, Kind, KindStatus, NodeFacts, ObjectRef, Protocol,
        Rejection, Sections, SourceProblem, SourceStatus,
    },
};
pub use memory::{Memory, MemoryError};
pub use node::{AcceptedVips, NodeContext};
pub use object::{
    ClusterAffinity, Endpoint, EndpointAddress, EndpointSlice, ImportPort, Location, Object,
    ServiceImport, SlicePort, Timestamp, TopologyHints,
};
