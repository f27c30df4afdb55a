//! The rules: they turn the objects of a snapshot into the desired state. They are pure and
//! synchronous.
//!
//! ```text
//! per import         all imports             per import              all imports
//! claim::evaluate -> assignment::assign  ->  slice, selection,   ->  capacity::limit  ->  report
//! its own fields     precedence, VIP and     slots: slices to        slots and
//!                    frontend limits         backends, no VIP        source clusters
//! ```
//!
//! A rejected part of an object becomes a [`crate::model::Rejection`] and affects nothing else:
//!
//! | problem | consequence |
//! |---|---|
//! | object cannot be read; name too long; affinity or traffic policy invalid | the import gets no frontend |
//! | cluster selector results, affinity to a cluster, spill, passive health or traffic distribution that is unknown | the import is used without it |
//! | entry of `spec.ips` | that address is no VIP |
//! | entry of `spec.ports` | the port is refused, like every unknown port of a VIP |
//! | frontend that another import holds: an import with slices, or else an older one | the holder keeps it; both imports keep the VIP |
//! | `Local` without `--node-name` and `--cluster-id` | every client is refused |
//! | slice of another address type, or with a cluster name too long | the slice is not used |
//! | port or endpoint of a slice | that port or endpoint is not used |
//! | more VIPs or frontends than fit | VIPs and frontends in force stay; new ones of the younger imports are rejected first; a VIP without its frontends refuses |
//! | more endpoints than fit | weights do not count; a frontend keeps the backends that it has, and the room of those that it ejects, and gets no more; a frontend without backends refuses |
//! | more source clusters than fit | the backends of clusters that are not in force are not used |

mod address;
mod affinity;
mod assigned_import;
mod assignment;
mod candidate;
mod capacity;
mod claim;
mod coverage;
mod departure;
mod ejection;
mod eligibility;
mod explain;
mod fate;
mod full_round;
mod ip_family;
mod name;
mod partial_round;
mod port;
mod preference;
mod problem;
#[cfg(test)]
mod properties;
mod quota;
mod report;
mod round;
mod rules;
mod selection;
mod slice;
mod slots;
mod spill;
#[cfg(test)]
mod tests;
mod tier;
mod topology;
mod totals;
mod traffic_policy;
mod vip;

pub(crate) use self::address::forbidden;
pub(crate) use self::ip_family::IpFamily;
pub use self::{
    explain::{ExplainedEndpoint, ExplainedSlice, Explanation, claimants, explain},
    fate::{Fallback, Fate, PortFate},
    round::Round,
    rules::Rules,
    totals::Totals,
};

/// The result of a full round, which every sequence of rounds has to reach.
#[cfg(test)]
fn compute(
    snapshot: &crate::store::Snapshot,
    node: &crate::model::NodeContext,
    in_force: &crate::model::DesiredState,
) -> crate::model::DesiredState {
    full_round::evaluate(snapshot, node, in_force, &mut spill::Spills::default()).desired
}
