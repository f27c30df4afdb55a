//! What the controller could lack and still import every service: each feature is a folder and a line of the list.

pub mod probe_command;
#[cfg(test)]
mod tests;
pub mod traffic_property;

use crate::core::feature::Entry;

pub mod acceptances;
pub mod agent_ranges;
pub mod cluster_dns;
pub mod cluster_selectors;
pub mod contests;
pub mod export_rules;
pub mod lost_addresses;
pub mod namespace_limits;
pub mod page;
pub mod peer_reach;
pub mod propagation;
pub mod range_overlaps;
pub mod rights;
pub mod service_events;
pub mod troubles;

/// The features, in the order in which they act and report.
pub const ALL: &[Entry] = &[
    export_rules::ENTRY,
    namespace_limits::ENTRY,
    cluster_selectors::ENTRY,
    lost_addresses::ENTRY,
    contests::ENTRY,
    acceptances::ENTRY,
    service_events::ENTRY,
    range_overlaps::ENTRY,
    peer_reach::ENTRY,
    cluster_dns::ENTRY,
    rights::ENTRY,
    traffic_property::ENTRY,
    agent_ranges::ENTRY,
    propagation::ENTRY,
    troubles::ENTRY,
    page::ENTRY,
    probe_command::ENTRY,
];
