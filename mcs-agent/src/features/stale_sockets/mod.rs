//! Connected sockets whose backend no longer serves. The kernel would go on sending their data there, since it runs no
//! hook for them. So the agent destroys these sockets: sockets of UDP by default, whose owners would not notice otherwise,
//! and sockets of TCP by choice, which would end by a timeout. The next recv(2) or `SO_ERROR` says `ECONNABORTED`. A UDP
//! socket has no peer any more: each send(2) says `EDESTADDRREQ`.
//!
//! The agent destroys a socket only if the programs have listed its connection, by its cookie, as one to a VIP
//! that was given this backend, and if the kernel shows a socket of that cookie, in that network namespace,
//! with that backend as its peer.

mod args;
mod feature;
mod lost_socket_slots;
mod output;
mod pass;
mod probe;
mod report;
mod select;
mod task;
mod thread;

pub use lost_socket_slots::LostSocketSlots;
pub use pass::{StalePass, Unmatched, destroy};
pub use probe::{Obstacle, probe};
pub use report::StaleReport;
pub use task::{StaleEvent, StaleSockets};

use crate::core::feature::Definition;

/// Stale sockets in the list of features.
pub const FEATURE: Definition = Definition {
    flags: args::flags,
    start: args::start,
    parts: |all| [UDP, TCP].iter().try_for_each(|name| all.expect::<StaleReport>(name)),
    lines: output::lines,
    metrics: output::metrics,
    ..Definition::named("stale_sockets")
};

/// Its parts of the report.
const UDP: &str = "stale_udp";
const TCP: &str = "stale_tcp";
