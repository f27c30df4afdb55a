//! Connections: sockets whose slots lead to backends, and the addresses that sockets and flows have.

use std::{collections::HashSet, io, iter, net::SocketAddr, path::Path};

use mcs_common::{
    Address, ConnectedValue, ReverseKey, ReverseValue, SentPairs, SocketSlot, SocketState, maps,
};

use super::socket_slots::{SocketSlots, address};
use crate::core::{
    kernel::{
        bpf::{PinnedHash, SocketIterator},
        flows::{FlowEntry, FlowPins, FlowTable},
    },
    model::Protocol,
};

/// A connection of a socket to a VIP, as the programs made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The socket, and the backend that the connection was given.
    pub key: ReverseKey,
    /// The VIP, and the network namespace.
    pub value: ConnectedValue,
}

impl Connection {
    fn of_slot(connection: &SocketSlot) -> Self {
        let &SocketSlot { cookie, netns_cookie, .. } = connection;
        let is_tcp = may_be(connection, Protocol::Tcp);
        Self {
            key: ReverseKey { cookie, backend: connection.backend() },
            value: ConnectedValue::new(connection.vip(), is_tcp, netns_cookie),
        }
    }
}

/// A connected socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketInUse {
    /// The destination of the application.
    pub vip: SocketAddr,
    /// Of a UDP socket that the agent has destroyed, this is TCP until its owner closes it.
    pub protocol: Protocol,
    /// Where the socket is connected to.
    pub backend: SocketAddr,
    /// The backend's id and generation; absent for a socket without slot.
    pub chosen: Option<(u32, u32)>,
}

impl SocketInUse {
    fn of(Connection { key, value }: Connection, chosen: Option<(u32, u32)>) -> Self {
        Self {
            vip: address(&value.vip()),
            protocol: if value.is_tcp() { Protocol::Tcp } else { Protocol::Udp },
            backend: address(&key.backend),
            chosen,
        }
    }
}

/// The pinned lists of connected sockets. They can also list sockets that were closed since, or connected to another
/// backend of their VIP.
#[derive(Debug)]
pub struct Connections {
    slots: SocketSlots,
    others: PinnedHash<ReverseKey, ConnectedValue>,
}

impl Connections {
    /// Opens the lists that are pinned in the state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        Ok(Self {
            slots: SocketSlots::open(state)?,
            others: PinnedHash::open(&state.join(maps::UDP_CONNECTED))?,
        })
    }

    /// Every connection that may be one of this protocol.
    pub fn all(&self, protocol: Protocol) -> io::Result<Vec<Connection>> {
        let in_slots = self.slots.all().filter(|(_, slot)| may_be(slot, protocol));
        let mut all: Vec<_> = in_slots.map(|(_, slot)| Connection::of_slot(&slot)).collect();
        let mut others = self.without_slot()?;
        others.retain(|one| one.value.is_tcp() == (protocol == Protocol::Tcp));
        all.append(&mut others);
        Ok(all)
    }

    /// Every connection, with its backend's id.
    pub fn in_use(&self) -> io::Result<Vec<SocketInUse>> {
        let of_slot = |(_, slot): (u32, SocketSlot)| {
            let chosen = (slot.chosen.id, slot.chosen.generation);
            SocketInUse::of(Connection::of_slot(&slot), Some(chosen))
        };
        let others = self.without_slot()?;
        let others = others.into_iter().map(|one| SocketInUse::of(one, None));
        Ok(self.slots.all().map(of_slot).chain(others).collect())
    }

    fn without_slot(&self) -> io::Result<Vec<Connection>> {
        let mut found = Vec::new();
        self.others.for_each(|key, value| {
            if !decides(self.slot(&key).as_ref(), &key) {
                found.push(Connection { key, value });
            }
        })?;
        Ok(found)
    }

    /// Whether a connection is still listed, and to the same VIP.
    pub fn has(&self, protocol: Protocol, connection: &Connection) -> io::Result<bool> {
        match self.slot(&connection.key) {
            Some(slot) if decides(Some(&slot), &connection.key) => {
                Ok(may_be(&slot, protocol) && Connection::of_slot(&slot) == *connection)
            }
            _ => Ok(self.others.get(&connection.key)? == Some(connection.value)),
        }
    }

    /// Removes a connection of UDP from the lists. An absent one counts as success.
    pub fn remove(&mut self, key: &ReverseKey) -> io::Result<()> {
        if let Some((slot, connection)) = self.slots.of(key.cookie)
            && decides(Some(&connection), key)
        {
            self.slots.unlist(slot, &connection)?;
        }
        self.others.remove(key)
    }

    fn slot(&self, key: &ReverseKey) -> Option<SocketSlot> {
        self.slots.of(key.cookie).map(|(_, connection)| connection)
    }
}

/// Whether the socket's slot decides: it has the same backend, and is newer than the entry of the map, which may name
/// another VIP.
fn decides(slot: Option<&SocketSlot>, key: &ReverseKey) -> bool {
    slot.is_some_and(|slot| slot.backend() == key.backend)
}

/// Whether a slot can belong to a socket of this protocol. The programs number UDP connections alone, and the agent clears
/// the number before it destroys the socket. So a slot without a number belongs to a TCP socket, or to a UDP socket that
/// the agent no longer destroys.
const fn may_be(slot: &SocketSlot, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Tcp => slot.listed == 0,
        Protocol::Udp => slot.listed != 0,
    }
}

/// Every address for which the programs may look in what sockets and flows have, of all network namespaces: of the maps
/// that are pinned in the state directory, and of these flow tables. One that becomes a backend meanwhile may be missed.
pub fn addresses_in_use(state: &Path, flows: &FlowPins) -> io::Result<Vec<Address>> {
    let (storage, mut found) = (SocketIterator::find()?, HashSet::new());
    // Twice, with reads that end elsewhere: a walk misses the value at the end of a read if another one is removed at that instant.
    // And before `udp_reverse`, where the programs put the pairs that leave the storage.
    for room in [8 << 16, 5 << 10] {
        storage.for_each(
            &state.join(maps::SOCKETS),
            room,
            |SocketState { current, previous, .. }| {
                found.extend([current.backend.addr, previous.backend.addr]);
            },
        )?;
        storage.for_each(
            &state.join(maps::SENT_PAIRS),
            room,
            |SentPairs { latest, previous }| {
                found.extend([latest.backend.addr, previous.backend.addr]);
            },
        )?;
    }
    let connected = Connections::open(state)?.in_use()?;
    found.extend(connected.iter().map(|socket| Address::from(socket.backend.ip())));
    let reverse = PinnedHash::<ReverseKey, ReverseValue>::open(&state.join(maps::UDP_REVERSE))?;
    reverse.for_each(|key, _| found.extend([key.backend.addr]))?;
    for table in iter::once(&flows.table).chain(&flows.former) {
        FlowTable::open(table)?.for_each(|FlowEntry { key, flow }| {
            found.extend([key.src, key.dst, flow.to.src, flow.to.dst]);
        })?;
    }
    Ok(found.into_iter().collect())
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
        let slot = SocketSlot {
            vip: vip.addr,
            vip_port: vip.port,
            backend: backend.addr,
            backend_port: backend.port,
            listed: 1,
            cookie: 5,
            ..SocketSlot::zeroed()
        };
        let key = ReverseKey { cookie: 5, backend };
        let to = |vip| Connection { key, value: ConnectedValue::new(vip, false, 0) };
        assert!(decides(Some(&slot), &key));
        assert_eq!(Connection::of_slot(&slot), to(vip));
        assert_ne!(Connection::of_slot(&slot), to(other_vip));
        // Its connection failed: the socket may still be connected as the map says.
        assert!(!decides(Some(&slot), &ReverseKey { cookie: 5, backend: peer(8) }));
        assert!(!decides(None, &key));
    }

    #[test]
    fn a_slot_without_a_number_is_no_udp_connection() {
        for (listed, of_udp) in [(0, false), (7, true)] {
            let slot = SocketSlot { listed, ..SocketSlot::zeroed() };
            assert_eq!(may_be(&slot, Protocol::Udp), of_udp);
            assert_eq!(may_be(&slot, Protocol::Tcp), !of_udp);
        }
    }
}
