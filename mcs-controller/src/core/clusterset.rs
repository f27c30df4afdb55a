//! The rules of a clusterset: from what the clusters export to what this cluster imports. The rules are
//! pure functions without Kubernetes types, clock and I/O.

mod acceptance;
mod actual;
mod addresses;
mod condition;
mod conflict;
mod copy;
mod endpoints;
mod export;
mod export_status;
#[cfg(test)]
pub(crate) mod fixture;
mod import;
mod label;
mod memo;
mod merge;
mod name;
mod properties;
mod property;
mod readiness;
mod refused;
pub(crate) mod resolve;
mod slice;
mod stamp;
mod trust;
mod vips;
pub mod well_known;

pub(crate) use self::export_status::{bounded, in_import};
pub use actual::{Actual, ActualDerived, ActualImport, ActualSlice, Owner};
pub use addresses::Addresses;
pub use condition::{Condition, ConditionStatus, ConditionType, differ_in_words};
pub use conflict::{Conflict, Loss};
pub use copy::{SliceCopier, slice_name};
pub use endpoints::EndpointCount;
pub use export::{Audience, Export, ExportSource, ServiceSpec, Timestamp, export_state};
pub use export_status::{
    Publication, export_conditions, is_exportable, is_named_as_lacking, misnamed_conditions,
    not_imported, of_audience, of_derived, over_limit_conditions, while_unread,
};
pub use import::{EndpointSliceObjects, Import, ImportStatus, derived_name, derived_ports};
pub use label::is_object_name;
pub use mcs_kube::{
    EndpointConditions, NamespaceRules, ServiceType,
    reasons::{ExportState, ImportState},
};
pub use memo::{CopyRules, Memo};
pub use merge::{Contribution, Merged, merge};
pub use name::{ClusterId, NameError, ServiceName};
pub use properties::{Properties, published, read_published};
pub use property::{InternalTrafficPolicy, IpFamily, Protocol, ServicePort, SessionAffinity};
pub use refused::{Refused, ServiceObject};
pub use resolve::{
    Importer, Known, KnownExport, SourceRules, Wanted, WantedImport, WantedSlice, resolve,
    vip_order,
};
pub use slice::{Endpoint, ImportedSlice, SlicePort, SourceSlice};
pub use stamp::Stamp;
pub use trust::{EndpointRules, Reserved};
pub use vips::{LostVip, NoFreeVip, VipRanges, VipsInUse, overlap};

#[cfg(test)]
pub(crate) use memo::work;
#[cfg(test)]
pub(crate) use merge::tests::any_spec;
#[cfg(test)]
pub(crate) use resolve::tests::World;
