//! What the programs remember of sockets: the table of sockets that are connected to a VIP, and senders to a VIP without
//! connect(2).

use std::{collections::HashSet, io, mem::offset_of, net::SocketAddr, path::Path};

use mcs_common::{BackendRef, Peer, PinKey, SocketSlot, SocketSlotPlace, TagPair, maps, tags};

use crate::core::kernel::bpf::{MappedArray, PinnedHash, ReadWrite};

pub(crate) fn address(peer: &Peer) -> SocketAddr {
    SocketAddr::new(peer.addr.to_ip(), peer.port)
}

/// The pinned table of connected sockets.
#[derive(Debug)]
pub(crate) struct SocketSlots {
    tags: MappedArray<TagPair, ReadWrite>,
    connections: MappedArray<SocketSlot, ReadWrite>,
}

impl SocketSlots {
    /// Opens the table that is pinned in the state directory.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        Ok(Self {
            tags: MappedArray::open(&state.join(maps::SOCKET_TAGS))?,
            connections: MappedArray::open(&state.join(maps::SOCKET_CONNS))?,
        })
    }

    /// How many slots there are.
    pub(crate) const fn slots(&self) -> u32 {
        self.connections.entries()
    }

    /// How many of them are taken.
    pub(crate) fn taken(&self) -> usize {
        self.tagged().count()
    }

    /// Every taken slot, by its index.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, SocketSlot)> {
        self.tagged().filter_map(|(slot, tag)| {
            let connection = self.connections.read(slot)?;
            // Otherwise the slot has changed hands since the tag was read.
            (self.place(connection.cookie).tag() == tag).then_some((slot, connection))
        })
    }

    /// The slot of the socket with this cookie.
    pub(crate) fn of(&self, cookie: u64) -> Option<(u32, SocketSlot)> {
        let place = self.place(cookie);
        let pair = self.tags.read(place.pair())?;
        let slot = place.slot(place.own_way(pair));
        let connection = self.connections.read(slot)?;
        (tags(pair).contains(&place.tag()) && connection.cookie == cookie)
            .then_some((slot, connection))
    }

    /// Marks the UDP socket of this slot as one that the agent need not destroy, if the slot is still the same.
    pub(crate) fn unlist(&mut self, slot: u32, connection: &SocketSlot) -> io::Result<()> {
        let offset = offset_of!(SocketSlot, listed);
        self.connections.replace_half(slot, offset, connection.listed, 0).map(drop)
    }

    /// Frees the slot of the socket with this cookie, which was closed, unless another socket takes one of the pair at this
    /// instant.
    pub(crate) fn free(&mut self, cookie: u64) -> io::Result<()> {
        let place = self.place(cookie);
        for way in 0..2 {
            self.tags.replace_half(place.pair(), way * 4, place.tag(), 0)?;
        }
        Ok(())
    }

    fn tagged(&self) -> impl Iterator<Item = (u32, u32)> {
        let tags = |pair| Some((pair, tags(self.tags.read(pair)?)));
        let pairs = (0..self.tags.entries()).filter_map(tags);
        pairs
            .flat_map(|(pair, [even, odd])| [(pair * 2, even), (pair * 2 + 1, odd)])
            .filter(|(_, tag)| *tag != 0)
    }

    const fn place(&self, cookie: u64) -> SocketSlotPlace {
        SocketSlotPlace::of(cookie, self.slots().ilog2())
    }
}

/// A socket that has sent to a frontend, and that may do so again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// The frontend's index.
    pub frontend: u32,
    /// The backend that its datagrams go to as long as that serves.
    pub chosen: BackendRef,
}

/// Every sender in the map that is pinned in the state directory, once for each frontend. The programs remove it at close(2);
/// a socket that was closed while no program was attached is listed until the kernel evicts it.
pub fn senders(state: &Path) -> io::Result<Vec<Sender>> {
    let mut entries = Vec::new();
    PinnedHash::open(&state.join(maps::UDP_PINS))?
        .for_each(|key, chosen| entries.push((key, chosen)))?;
    Ok(open(&entries))
}

/// Those whose socket is not closed.
fn open(entries: &[(PinKey, BackendRef)]) -> Vec<Sender> {
    let is_end = |key: &PinKey| key.frontend == PinKey::CLOSED;
    let closed: HashSet<u64> =
        entries.iter().filter(|(key, _)| is_end(key)).map(|(key, _)| key.cookie).collect();
    let open = entries.iter().filter(|(key, _)| !is_end(key) && !closed.contains(&key.cookie));
    open.map(|&(PinKey { frontend, .. }, chosen)| Sender { frontend, chosen }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_socket_is_no_sender() {
        let pin = |cookie, frontend| {
            let chosen = BackendRef { id: frontend, generation: 0 };
            (PinKey { cookie, frontend, pad: 0 }, chosen)
        };
        let entries = [pin(1, 7), pin(1, 8), pin(2, 7), pin(2, 8), pin(1, PinKey::CLOSED)];
        let left: Vec<_> = open(&entries).iter().map(|one| (one.frontend, one.chosen.id)).collect();
        assert_eq!(left, [(7, 7), (8, 8)]);
    }
}
