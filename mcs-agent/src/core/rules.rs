//! The rules: they turn the objects of a snapshot into the desired state. They are pure and
//! synchronous.
//!
//! ```text
//! per import         all imports             per import              all imports
//! claim::evaluate -> assignment::assign  ->  slice, preference,  ->  capacity::limit  ->  report
//! its own fields     precedence, VIP and     slots: slices to        slots and
//!                    frontend limits         backends, no VIP        source clusters
//! ```
//!
//! A rejected part of an object becomes a [`crate::core::model::Rejection`] and affects nothing else:
//!
//! | problem | consequence |
//! |---|---|
//! | object cannot be read; name too long; affinity or traffic policy invalid | the import gets no frontend |
//! | cluster selector results, affinity to a cluster, traffic distribution or setting of a feature that is unknown | the import is used without it |
//! | entry of `spec.ips` | that address is no VIP |
//! | entry of `spec.ports` | the port is refused, like every unknown port of a VIP |
//! | frontend that another import holds: an import with slices, or else an older one | the holder keeps it; both imports keep the VIP |
//! | `Local` without `--node-name` and `--cluster-id` | every client is refused |
//! | slice of another address type, or with a cluster name too long | the slice is not used |
//! | port or endpoint of a slice | that port or endpoint is not used |
//! | more VIPs or frontends than fit | VIPs and frontends in force stay; new ones of the younger imports are rejected first; a VIP without its frontends refuses |
//! | more endpoints than fit | weights do not count; a frontend keeps the backends that it has, and the room of those that it ejects, and gets no more; a frontend without backends refuses |
//! | more source clusters than fit | the backends of clusters that are not in force are not used |

mod assigned_import;
mod assignment;
pub(crate) mod candidate;
mod capacity;
mod claim;
mod ejection;
mod eligibility;
pub(crate) mod fields;
pub(crate) mod full_round;
mod partial_round;
pub(crate) mod preference;
#[cfg(test)]
mod properties;
pub(crate) mod report;
mod rule_set;
mod slots;
#[cfg(test)]
mod tests;
pub(crate) mod tier;
mod topology;
mod vip;

pub(crate) use self::fields::{IpFamily, forbidden};
#[cfg(test)]
pub(crate) use self::preference::EjectsAll;
pub(crate) use self::preference::{Bounded, Choice, Preference, Share, Wishes};
pub use self::{candidate::Fallback, full_round::Round, rule_set::Rules};
pub use mcs_kube::reasons::Fate;

/// The result of a full round, which every sequence of rounds has to reach.
#[cfg(test)]
fn compute(
    snapshot: &crate::core::store::Snapshot,
    node: &crate::core::model::NodeContext,
    in_force: &crate::core::model::DesiredState,
) -> crate::core::model::DesiredState {
    full_round::evaluate(snapshot, node, in_force, &mut preference::Preferences::default()).desired
}
