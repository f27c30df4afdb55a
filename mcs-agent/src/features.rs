//! What the agent could lack and still route every VIP. Each feature has one folder.

pub mod adopt;
pub mod audit;
pub mod borders;
pub mod cleanup_nodes;
pub mod explain;
pub mod figures;
pub mod filter_rebuild;
pub mod flow_list;
pub mod manifests;
pub mod passive_health;
pub mod peer_reach;
pub mod probe_command;
pub mod self_test;
pub mod service_list;
pub mod socket_list;
pub mod spill;
pub mod stale_sockets;
pub mod trace;
pub mod web_page;

use crate::core::feature::Definition;

/// Every feature, in the order in which they report.
pub const LIST: &[Definition] = &[
    manifests::FEATURE,
    adopt::FEATURE,
    self_test::FEATURE,
    audit::FEATURE,
    filter_rebuild::FEATURE,
    stale_sockets::FEATURE,
    peer_reach::FEATURE,
    borders::FEATURE,
    spill::FEATURE,
    passive_health::FEATURE,
    web_page::FEATURE,
    trace::FEATURE,
    figures::FEATURE,
    service_list::FEATURE,
    flow_list::FEATURE,
    socket_list::FEATURE,
    explain::FEATURE,
    probe_command::FEATURE,
    cleanup_nodes::FEATURE,
];
