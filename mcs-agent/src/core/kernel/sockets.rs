//! What the maps have of sockets: connections, senders and slots, with the network namespaces of sockets.

mod addresses;
mod connections;
mod namespaces;
mod senders;
mod socket_slots;

pub use addresses::addresses_in_use;
pub use connections::{Connection, Connections, SocketInUse};
pub use namespaces::{NetNamespace, NetNamespaces};
pub use senders::{Sender, senders};
pub(crate) use socket_slots::{SocketSlots, address};
