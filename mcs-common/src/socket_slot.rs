//! The table of sockets: the slots, and which slot a socket has.
//!
//! A slot is a tag in `socket_tags` and a connection in `socket_conns`. Tags are apart because most runs need
//! no more than a tag, and many tags share a cache line. A socket's cookie names a pair of slots, and the
//! socket takes either. The programs free the slot when the socket closes.

use bytemuck::{Pod, Zeroable};

use crate::{Address, BackendRef, Connection, Peer};

/// Value of the array `socket_tags`: the tags of two slots, that of the even slot first; 0 is a free slot. The first word
/// also counts the sockets that are about to take a slot of the pair, each as [`TAKER`]. The kernel rounds array values up
/// to 8 bytes.
pub type TagPair = [u32; 2];

/// A socket that is about to take a slot, in the first word of a [`TagPair`]. There is room for 63.
pub const TAKER: u32 = 1 << 25;
const TAKERS: u32 = 63 * TAKER;

/// The tags of a pair, without takers.
#[inline(always)]
#[must_use]
pub const fn tags([even, odd]: TagPair) -> TagPair {
    [even & !TAKERS, odd]
}

/// No way: no slot of the pair fits.
pub const NO_WAY: u32 = 2;

/// The place of a socket in a table of `2^bits` slots: a pair. Each of its two slots is a way, as in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketSlotPlace {
    pair: u32,
    tag: u32,
}

impl SocketSlotPlace {
    /// The place of the socket with this cookie.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "each takes some of the cookie's bits")]
    pub const fn of(cookie: u64, bits: u32) -> Self {
        let pair = cookie as u32 & ((1 << bits) - 1);
        // The lowest bit tells apart the two cookies that share a pair. The highest one makes no tag 0. The 24 bits above the
        // lowest one are unique as long as the kernel has not counted 2^(24 + bits) sockets.
        let tag = 1 << 31 | (((cookie >> bits) as u32) << 1 & (TAKER - 1)) | (cookie & 1) as u32;
        Self { pair: pair / 2, tag }
    }

    /// The index of the socket's pair in `socket_tags`.
    #[inline(always)]
    #[must_use]
    pub const fn pair(self) -> u32 {
        self.pair
    }

    /// The tag of the socket's slot in `socket_tags`.
    #[inline(always)]
    #[must_use]
    pub const fn tag(self) -> u32 {
        self.tag
    }

    /// The index in `socket_conns` of one of the pair's slots.
    #[inline(always)]
    #[must_use]
    pub const fn slot(self, way: u32) -> u32 {
        self.pair * 2 + way
    }

    /// The way that the socket has taken, or [`NO_WAY`].
    #[inline(always)]
    #[must_use]
    pub const fn own_way(self, pair: TagPair) -> u32 {
        way_of(tags(pair), self.tag)
    }

    /// A way that is free, or [`NO_WAY`]: the cookie's own one first.
    #[inline(always)]
    #[must_use]
    pub const fn free_way(self, pair: TagPair) -> u32 {
        let [even, odd] = tags(pair);
        if self.tag & 1 == 1 && odd == 0 {
            1
        } else if even == 0 {
            0
        } else if odd == 0 {
            1
        } else {
            NO_WAY
        }
    }
}

#[inline(always)]
const fn way_of(tags: TagPair, tag: u32) -> u32 {
    let [even, odd] = tags;
    if even == tag {
        0
    } else if odd == tag {
        1
    } else {
        NO_WAY
    }
}

/// Value of the array `socket_conns`: a socket's connection to a VIP. It fills a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct SocketSlot {
    /// The destination of the application.
    pub vip: Address,
    /// The destination that the kernel got instead.
    pub backend: Address,
    /// The port of `vip` in host order.
    pub vip_port: u16,
    /// The port of `backend` in host order.
    pub backend_port: u16,
    /// If the agent destroys the socket when its backend no longer serves, since it is one of UDP: the
    /// [`SocketSlot::number`] of the connection. Else 0. The agent replaces the number by 0 before a destruction, and no later
    /// one.
    pub listed: u32,
    /// The backend's id and generation.
    pub chosen: BackendRef,
    /// The cookie of the socket's network namespace.
    pub netns_cookie: u64,
    /// The socket's cookie, which is stored last, and 0 before.
    pub cookie: u64,
}

const _: () = assert!(size_of::<SocketSlot>() == 64);
crate::pod!(SocketSlot);

impl SocketSlot {
    /// A number of the connection of this socket to this backend, which is not 0. The slot's next connection has another
    /// one in all likelihood.
    #[inline(always)]
    #[must_use]
    pub const fn number(cookie: u64, chosen: BackendRef) -> u32 {
        let BackendRef { id, generation } = chosen;
        let backend = (generation as u64) << 32 | id as u64;
        let hash = (cookie ^ backend.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as u32 | 1
    }

    /// The destination of the application.
    #[inline(always)]
    #[must_use]
    pub const fn vip(&self) -> Peer {
        Peer::new(self.vip, self.vip_port)
    }

    /// The destination that the kernel got instead.
    #[inline(always)]
    #[must_use]
    pub const fn backend(&self) -> Peer {
        Peer::new(self.backend, self.backend_port)
    }

    /// The same as a connection.
    #[inline(always)]
    #[must_use]
    pub const fn connection(&self) -> Connection {
        Connection { vip: self.vip(), backend: self.backend(), chosen: self.chosen }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tag_names_one_socket_of_a_pair(cookie: u64, steps in 1..(1_u64 << 24), bits in 1..=17_u32) {
            let place = SocketSlotPlace::of(cookie, bits);
            prop_assert!(place.tag() != 0);
            prop_assert_eq!(tags([place.tag(), place.tag()]), [place.tag(), place.tag()]);
            prop_assert!(place.slot(1) < 1 << bits);
            // Other cookies of the pair.
            let neighbour = SocketSlotPlace::of(cookie ^ 1, bits);
            let later = SocketSlotPlace::of(cookie.wrapping_add(steps << bits), bits);
            prop_assert_eq!(neighbour.pair(), place.pair());
            prop_assert_eq!(later.pair(), place.pair());
            prop_assert_ne!(neighbour.tag(), place.tag());
            prop_assert_ne!(later.tag(), place.tag());
        }

        #[test]
        fn connections_of_a_slot_have_numbers_of_their_own(
            cookie in 0..1_u64 << 48,
            steps in 1..1_u64 << 20,
            id in 1..1_u32 << 22,
            generation in 0..1_u32 << 10,
        ) {
            let chosen = BackendRef { id, generation };
            let number = SocketSlot::number(cookie, chosen);
            prop_assert_ne!(number, 0);
            prop_assert_ne!(number, SocketSlot::number(cookie ^ 1, chosen));
            prop_assert_ne!(number, SocketSlot::number(cookie + (steps << 17), chosen));
            let reused = BackendRef { generation: generation + 1, ..chosen };
            prop_assert_ne!(number, SocketSlot::number(cookie, reused));
        }

        #[test]
        fn a_socket_takes_a_free_slot_only(
            cookie: u64,
            others in any::<[Option<u64>; 2]>(),
            takers in 0..64_u32,
        ) {
            let place = SocketSlotPlace::of(cookie, 6);
            let tags = others.map(|other| other.map_or(0, |other| SocketSlotPlace::of(other, 6).tag()));
            let taken = |[even, odd]: TagPair| [even + takers * TAKER, odd];
            let way = place.free_way(taken(tags));
            prop_assert_eq!(way == NO_WAY, tags.iter().all(|tag| *tag != 0));
            if let Some(tag) = tags.get(way as usize) {
                prop_assert_eq!(*tag, 0);
                let mut tags = tags;
                tags[way as usize] = place.tag();
                prop_assert_eq!(place.own_way(taken(tags)), way_of(tags, place.tag()));
            }
        }
    }
}
