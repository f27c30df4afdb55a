//! Connected UDP sockets whose backend no longer serves. The kernel would go on sending their datagrams there, since it
//! runs no hook for them. So the agent destroys these sockets, and their owners get `ECONNABORTED`.
//!
//! The agent destroys a socket only if the programs have listed its connection, by its cookie, as one to a VIP
//! that was given this backend, and if the kernel shows a socket of that cookie, in that network namespace,
//! with that backend as its peer.

mod connections;
mod leaks;
mod namespaces;
mod pass;
mod probe;
mod report;
mod select;
mod slots;
mod task;

pub use connections::{UdpConnection, UdpConnections};
pub use namespaces::NetNamespaces;
pub use pass::{Pass, Unmatched, destroy};
pub use probe::{Obstacle, probe};
pub use report::StaleUdpReport;
pub use select::stale_connections;
pub use task::{StaleUdp, StaleUdpEvent};
