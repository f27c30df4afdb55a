//! The forms in which a device passes a packet to the programs: link headers, tags, known checksums.

use etherparse::{Ethernet2Header, SingleVlanHeader};

use crate::prelude::*;

const STATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
const NODE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];

/// What `BPF_PROG_TEST_RUN` wants at least: an IPv6 header behind an Ethernet header.
const SHORTEST: usize = 54;

/// The link header in front of the IP header, and whether the kernel knows the packet's sum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Medium {
    Ethernet,
    /// As [`Medium::Ethernet`], from a device that has summed the packet up (`CHECKSUM_COMPLETE`).
    Summed,
    /// With a VLAN tag.
    Vlan,
    /// With a tag of a provider and one of a customer (802.1ad).
    DoubleVlan,
    /// Without a link header, and with something behind the packet where that is short.
    /// `BPF_PROG_TEST_RUN` knows only Ethernet and reads the ethertype at its usual place. That is why the addresses of
    /// the suite begin as they do.
    Bare,
}

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// As it was.
    On,
    /// To the station it came from.
    Back,
}

impl Medium {
    pub(crate) const ALL: [Self; 5] =
        [Self::Ethernet, Self::Summed, Self::Vlan, Self::DoubleVlan, Self::Bare];

    /// Those with an Ethernet header.
    pub(crate) const WITH_LINK: &[Self] =
        &[Self::Ethernet, Self::Summed, Self::Vlan, Self::DoubleVlan];
    /// Those where the kernel knows nothing of the packet.
    pub(crate) const UNSUMMED: &[Self] =
        &[Self::Ethernet, Self::Vlan, Self::DoubleVlan, Self::Bare];

    /// The IP packet as a frame.
    pub(crate) fn frame(self, ip: &[u8], way: Way) -> Vec<u8> {
        let ethertype = match ip.first() {
            Some(first) if first >> 4 == 6 => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        self.frame_of(ethertype, ip, way)
    }

    /// The IP packet in a frame, with the bytes behind it.
    pub(crate) fn packet(self, frame: &[u8]) -> &[u8] {
        let header = match self {
            Self::Bare => 0,
            Self::Ethernet | Self::Summed => Ethernet2Header::LEN,
            Self::Vlan => Ethernet2Header::LEN + SingleVlanHeader::LEN,
            Self::DoubleVlan => Ethernet2Header::LEN + 2 * SingleVlanHeader::LEN,
        };
        frame.get(header..).unwrap_or_default()
    }

    /// Any payload as a frame.
    pub(crate) fn frame_of(self, ethertype: EtherType, payload: &[u8], way: Way) -> Vec<u8> {
        let tags: &[EtherType] = match self {
            Self::Bare => {
                let mut packet = payload.to_vec();
                packet.resize(packet.len().max(SHORTEST), 0);
                return packet;
            }
            Self::Ethernet | Self::Summed => &[],
            Self::Vlan => &[EtherType::VLAN_TAGGED_FRAME],
            Self::DoubleVlan => &[EtherType::PROVIDER_BRIDGING, EtherType::VLAN_TAGGED_FRAME],
        };
        tagged(tags, ethertype, payload, way)
    }
}

/// A frame with these tags, outermost first.
pub(crate) fn tagged(
    tags: &[EtherType],
    ethertype: EtherType,
    payload: &[u8],
    way: Way,
) -> Vec<u8> {
    let (source, destination) = match way {
        Way::On => (STATION, NODE),
        Way::Back => (NODE, STATION),
    };
    let types: Vec<_> = tags.iter().copied().chain([ethertype]).collect();
    let header = Ethernet2Header { source, destination, ether_type: types[0] };
    let mut frame = header.to_bytes().to_vec();
    for (id, ether_type) in (100..).zip(&types[1..]) {
        let tag = SingleVlanHeader {
            vlan_id: built(u16::try_into(id)),
            ether_type: *ether_type,
            ..SingleVlanHeader::default()
        };
        frame.extend(tag.to_bytes());
    }
    frame.extend(payload);
    frame
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ethernet => "Ethernet",
            Self::Summed => "Ethernet, summed",
            Self::Vlan => "one VLAN tag",
            Self::DoubleVlan => "two VLAN tags",
            Self::Bare => "no link header",
        })
    }
}
