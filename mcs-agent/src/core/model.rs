//! The types that all parts of the agent share: objects and events from the sources, and the desired
//! state. No type here is one of the Kubernetes API or of the map ABI.

mod capacity;
mod desired;
#[cfg(test)]
pub(crate) mod fixture;
mod node;
mod object;

pub use capacity::{Capacity, Memory, MemoryError};
pub use desired::{
    Backend, ClusterRun, Departure, DesiredChanges, DesiredState, Frontend, KEPT_FOR, Parts, Slots,
    Totals,
};
pub(crate) use mcs_kube::shorten;
pub use mcs_kube::{
    ClusterTraffic, ObjectKey, ServiceType, Tiers, Traffic, Unreachable, VIP_RANGES_PROPERTY,
    reasons::{LeftAloneReason, RejectionReason},
    report::{
        FrontendId, ImportReport, ImportState, Kind, KindStatus, NodeFacts, ObjectRef, Protocol,
        Rejection, Sections, SourceProblem, SourceStatus,
    },
};
pub use node::{AcceptedVips, Ejection, EjectionState, Ejections, FailedConnects, NodeContext};
pub use object::{
    ClusterAffinity, Endpoint, EndpointAddress, EndpointSlice, EventBatch, ImportPort, Location,
    Object, ObjectEvent, ServiceImport, SlicePort, Timestamp, TopologyHints,
};
