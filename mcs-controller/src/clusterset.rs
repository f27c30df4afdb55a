//! The rules of a clusterset: from what the clusters export to what this cluster imports. The rules are
//! pure functions without Kubernetes types, clock and I/O.

mod condition;
mod conflict;
mod export;
mod import;
mod name;
mod property;
mod slice;
pub mod well_known;

pub use condition::{Condition, ConditionStatus, ConditionType};
pub use conflict::{Conflict, ConflictReason};
pub use export::{Audience, Export, ExportSource, Timestamp};
pub use import::{EndpointSliceObjects, Import, ImportSpec, ImportStatus};
pub use name::{ClusterId, NameError, ServiceName};
pub use property::{
    InternalTrafficPolicy, IpFamily, Protocol, ServicePort, ServiceType, SessionAffinity,
};
pub use slice::{Endpoint, EndpointConditions, ImportedSlice, SlicePort, SourceSlice};
