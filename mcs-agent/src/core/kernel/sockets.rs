//! What the maps have of sockets: connections, senders and slots, with the network namespaces of sockets.

mod connections;
mod namespaces;
mod socket_slots;

pub use connections::{Connection, Connections, SocketInUse, addresses_in_use};
pub use namespaces::{NetNamespace, NetNamespaces};
pub use socket_slots::{Sender, senders};
pub(crate) use socket_slots::{SocketSlots, address};
