//! The rules: from the objects of a snapshot to what the dataplane must do. Pure and synchronous.
//!
//! ```text
//! per import        all imports              per import                 all imports
//! claim::judge  ->  allotment::allot     ->  slice, selection       ->  capacity::bound  ->  report
//! its own words     precedence, VIP and      slices to backends,        endpoints and
//!                   frontend capacity        VIPs known                 source clusters
//! ```
//!
//! What a rule turns down becomes a [`crate::model::Rejection`], and touches nothing else:
//!
//! | wrong | consequence |
//! |---|---|
//! | object cannot be read; name too long; affinity or traffic policy invalid | the import makes nothing |
//! | entry of `spec.ips` | that address is not ours |
//! | entry of `spec.ports` | that port is refused, like every unknown port of a VIP |
//! | frontend that an older import holds | the holder keeps it; both keep the VIP |
//! | `Local` without `--node-name` and `--cluster-id` | every client is refused |
//! | slice of another address type, or with a cluster name too long | the slice offers nothing |
//! | port or endpoint of a slice | that port or endpoint is not used |
//! | more VIPs or frontends than fit | those that are not in force are not made, the younger imports' first |
//! | more endpoints than fit | a frontend gets no more than it has; one that has none refuses |
//! | more source clusters than fit | the backends of those that are not in force are not used |

mod address;
mod affinity;
mod allotment;
mod candidate;
mod capacity;
mod claim;
mod condition;
mod endpoint;
mod name;
mod policy;
mod port;
mod precedence;
#[cfg(test)]
mod properties;
mod refusal;
mod report;
mod rules;
mod scope;
mod selection;
mod service;
mod slice;
mod standing;
#[cfg(test)]
mod tests;
mod topology;
mod totals;
mod vip;
mod whole;

pub use self::{
    rules::{Round, Rules},
    totals::Totals,
};

/// What [`Rules`] have to come to.
#[cfg(test)]
fn compute(
    snapshot: &crate::store::Snapshot,
    node: &crate::model::NodeContext,
    in_force: &crate::model::DesiredState,
) -> crate::model::DesiredState {
    whole::judge(snapshot, node, in_force).desired
}
