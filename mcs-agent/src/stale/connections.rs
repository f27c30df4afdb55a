//! The connected UDP sockets that the programs list: in the table of sockets, and those without a slot in a map.

use std::{io, path::Path};

use mcs_common::{ConnectedValue, ReverseKey, SlotConnection, maps};

use super::slots::SocketSlots;

use crate::bpf::PinnedHash;

/// A connection of a UDP socket to a VIP, as the programs made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpConnection {
    /// The socket, and the backend that the connection was given.
    pub key: ReverseKey,
    /// The VIP, and the network namespace.
    pub value: ConnectedValue,
}

impl UdpConnection {
    fn of_slot(connection: &SlotConnection) -> Self {
        let &SlotConnection { cookie, netns_cookie, .. } = connection;
        Self {
            key: ReverseKey { cookie, backend: connection.backend() },
            value: ConnectedValue { vip: connection.vip(), netns_cookie },
        }
    }
}

/// The pinned lists of connected UDP sockets. They also have sockets that were closed since, or connected to another
/// backend of their VIP.
#[derive(Debug)]
pub struct UdpConnections {
    slots: SocketSlots,
    others: PinnedHash<ReverseKey, ConnectedValue>,
}

impl UdpConnections {
    /// Opens the lists that are pinned in the state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        Ok(Self {
            slots: SocketSlots::open(state)?,
            others: PinnedHash::open(&state.join(maps::UDP_CONNECTED))?,
        })
    }

    /// Every connection.
    pub fn all(&self) -> io::Result<Vec<UdpConnection>> {
        let in_slots = self.slots.all().filter(|(_, connection)| connection.listed != 0);
        let mut all: Vec<_> =
            in_slots.map(|(_, connection)| UdpConnection::of_slot(&connection)).collect();
        self.others.for_each(|key, value| all.push(UdpConnection { key, value }))?;
        Ok(all)
    }

    /// Whether a connection is still listed, and to the same VIP.
    pub fn has(&self, connection: &UdpConnection) -> io::Result<bool> {
        Ok(self.slot(&connection.key).is_some_and(|(_, slot)| slot == *connection)
            || self.others.get(&connection.key)? == Some(connection.value))
    }

    /// Removes a connection from the list. An absent one counts as success.
    pub fn remove(&mut self, key: &ReverseKey) -> io::Result<()> {
        if let Some((slot, _)) = self.slot(key) {
            self.slots.unlist(slot)?;
        }
        self.others.remove(key)
    }

    fn slot(&self, key: &ReverseKey) -> Option<(u32, UdpConnection)> {
        let (slot, connection) = self.slots.of(key.cookie)?;
        let is_listed = connection.listed != 0 && connection.backend() == key.backend;
        is_listed.then(|| (slot, UdpConnection::of_slot(&connection)))
    }
}
