//! The list of connected UDP sockets that the programs keep.

use std::{io, path::Path};

use mcs_common::{ConnectedValue, ReverseKey, maps};

use crate::bpf::PinnedHash;

/// A connection of a UDP socket to a VIP, as the programs made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpConnection {
    /// The socket, and the backend that the connection was given.
    pub key: ReverseKey,
    /// The VIP, and the network namespace.
    pub value: ConnectedValue,
}

/// The pinned list of connected UDP sockets. It also has sockets that were closed since, or connected to another
/// backend of their VIP.
#[derive(Debug)]
pub struct UdpConnections(PinnedHash<ReverseKey, ConnectedValue>);

impl UdpConnections {
    /// Opens the list that is pinned in the state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        PinnedHash::open(&state.join(maps::UDP_CONNECTED)).map(Self)
    }

    /// Every connection.
    pub fn all(&self) -> io::Result<Vec<UdpConnection>> {
        let mut all = Vec::new();
        self.0.for_each(|key, value| all.push(UdpConnection { key, value }))?;
        Ok(all)
    }

    /// Whether a connection is still listed, and to the same VIP.
    pub fn has(&self, connection: &UdpConnection) -> io::Result<bool> {
        Ok(self.0.get(&connection.key)? == Some(connection.value))
    }

    /// Removes a connection from the list. An absent one counts as success.
    pub fn remove(&mut self, key: &ReverseKey) -> io::Result<()> {
        self.0.remove(key)
    }
}
