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
        self.others.for_each(|key, value| {
            if !decides(self.slot(&key).as_ref(), &key) {
                all.push(UdpConnection { key, value });
            }
        })?;
        Ok(all)
    }

    /// Whether a connection is still listed, and to the same VIP.
    pub fn has(&self, connection: &UdpConnection) -> io::Result<bool> {
        match self.slot(&connection.key) {
            Some(slot) if decides(Some(&slot), &connection.key) => Ok(lists(&slot, connection)),
            _ => Ok(self.others.get(&connection.key)? == Some(connection.value)),
        }
    }

    /// Removes a connection from the list. An absent one counts as success.
    pub fn remove(&mut self, key: &ReverseKey) -> io::Result<()> {
        if let Some((slot, connection)) = self.slots.of(key.cookie)
            && decides(Some(&connection), key)
        {
            self.slots.unlist(slot, &connection)?;
        }
        self.others.remove(key)
    }

    fn slot(&self, key: &ReverseKey) -> Option<SlotConnection> {
        self.slots.of(key.cookie).map(|(_, connection)| connection)
    }
}

/// Whether the socket's slot alone says what the socket is connected to: it has the same backend, and is newer than
/// the entry of the map. That may name another VIP.
fn decides(slot: Option<&SlotConnection>, key: &ReverseKey) -> bool {
    slot.is_some_and(|slot| slot.backend() == key.backend)
}

fn lists(slot: &SlotConnection, connection: &UdpConnection) -> bool {
    slot.listed != 0 && UdpConnection::of_slot(slot) == *connection
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bytemuck::Zeroable as _;
    use mcs_common::Peer;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::new(Ipv4Addr::new(10, 0, 0, last).into(), 53)
    }

    #[test]
    fn an_older_connection_to_the_backend_of_the_slot_does_not_count() {
        let (vip, other_vip, backend) = (peer(1), peer(2), peer(9));
        let slot = SlotConnection {
            vip: vip.addr,
            vip_port: vip.port,
            backend: backend.addr,
            backend_port: backend.port,
            listed: 1,
            cookie: 5,
            ..SlotConnection::zeroed()
        };
        let key = ReverseKey { cookie: 5, backend };
        let to = |vip| UdpConnection { key, value: ConnectedValue { vip, netns_cookie: 0 } };
        assert!(decides(Some(&slot), &key));
        assert!(lists(&slot, &to(vip)));
        assert!(!lists(&slot, &to(other_vip)));
        assert!(!lists(&SlotConnection { listed: 0, ..slot }, &to(vip)));
        // Its connection failed: the socket may still be connected as the map says.
        assert!(!decides(Some(&slot), &ReverseKey { cookie: 5, backend: peer(8) }));
        assert!(!decides(None, &key));
    }
}
