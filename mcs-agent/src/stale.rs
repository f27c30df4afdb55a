//! Connected sockets whose backend no longer serves. The kernel would go on sending their data there, since it runs no
//! hook for them. So the agent destroys these sockets: sockets of UDP by default, whose owners would not notice otherwise,
//! and sockets of TCP by choice, which would end by a timeout. The next recv(2) or `SO_ERROR` says `ECONNABORTED`. A UDP
//! socket has no peer any more: each send(2) says `EDESTADDRREQ`.
//!
//! The agent destroys a socket only if the programs have listed its connection, by its cookie, as one to a VIP
//! that was given this backend, and if the kernel shows a socket of that cookie, in that network namespace,
//! with that backend as its peer.

mod addresses;
mod connections;
mod lost_socket_slots;
mod namespaces;
mod pass;
mod probe;
mod report;
mod select;
mod senders;
mod socket_slots;
mod task;
mod thread;

pub use addresses::addresses_in_use;
pub use connections::{Connection, Connections, SocketInUse};
pub use lost_socket_slots::LostSocketSlots;
pub use namespaces::{NetNamespace, NetNamespaces};
pub use pass::{Pass, Unmatched, destroy};
pub use probe::{Obstacle, probe};
pub use report::StaleReport;
pub use senders::{Sender, senders};
pub use task::{StaleEvent, StaleSockets};
