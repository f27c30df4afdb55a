//! The inputs of the programs: sockets and packets to no VIP.

use mcs_common::AddressKinds;

use crate::prelude::*;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A socket that never used a VIP, or a TCP packet between others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// A stream socket.
    Tcp(Family),
    /// A datagram socket.
    Udp(Family),
    /// A stream socket, with an address that may be a backend.
    TcpToBackend(Family),
    /// A datagram socket, with an address that may be a backend.
    UdpToBackend(Family),
    /// A stream socket that a server accepted, which is closed.
    Closed(Family),
    /// A packet with an Ethernet header, on a node without flows.
    Frame(Family),
    /// A packet with an Ethernet header, on a node that has flows.
    FrameAmongFlows(Family),
    /// A packet without an Ethernet header, on a node without flows.
    Bare(Family),
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(family) => write!(f, "{family} TCP socket"),
            Self::Udp(family) => write!(f, "{family} UDP socket"),
            Self::Closed(family) => write!(f, "{family} TCP socket that is closed"),
            Self::TcpToBackend(family) => write!(f, "{family} TCP socket, to a backend"),
            Self::UdpToBackend(family) => write!(f, "{family} UDP socket, to a backend"),
            Self::Frame(family) | Self::Bare(family) => write!(f, "{family} TCP packet"),
            Self::FrameAmongFlows(family) => {
                write!(f, "{family} TCP packet, flows exist")
            }
        }
    }
}

const ETHERTYPES: [u16; 2] = [0x0800, 0x86dd];
const TCP: u8 = 6;
/// TEST-NET-1 and the prefix for documentation.
const ADDRESS_V4: [u8; 4] = [192, 0, 2, 1];
const ADDRESS_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const PORT: u16 = 80;

impl Input {
    const fn family(self) -> Family {
        match self {
            Self::Tcp(family)
            | Self::Udp(family)
            | Self::TcpToBackend(family)
            | Self::UdpToBackend(family)
            | Self::Closed(family)
            | Self::Frame(family)
            | Self::FrameAmongFlows(family)
            | Self::Bare(family) => family,
        }
    }

    const fn is_socket(self) -> bool {
        matches!(
            self,
            Self::Tcp(_)
                | Self::Udp(_)
                | Self::TcpToBackend(_)
                | Self::UdpToBackend(_)
                | Self::Closed(_)
        )
    }

    /// What is hinted of every address.
    pub(crate) const fn hint(self) -> AddressKinds {
        match self {
            Self::TcpToBackend(_) | Self::UdpToBackend(_) => AddressKinds::BACKEND,
            _ => AddressKinds::NONE,
        }
    }

    /// Whether the node has flows.
    pub(crate) const fn has_flows(self) -> bool {
        matches!(self, Self::FrameAmongFlows(_))
    }

    /// What a program returns that lets it pass: 1 on a cgroup, `TCX_NEXT` on a device.
    pub(crate) const fn passes(self) -> u64 {
        if self.is_socket() { 1 } else { 0xffff_ffff }
    }

    fn ethertype(self) -> u16 {
        ETHERTYPES[usize::from(self.family() == Family::V6)]
    }

    /// The packet, as its device shows it.
    pub(crate) fn packet(self) -> Vec<u8> {
        let mut packet = Vec::new();
        if !matches!(self, Self::Bare(_)) {
            packet.extend([0x02; 12]);
            packet.extend(self.ethertype().to_be_bytes());
        }
        match self.family() {
            Family::V4 => {
                packet.extend([0x45, 0, 0, 40, 0, 1, 0, 0, 64, TCP, 0, 0]);
                packet.extend(ADDRESS_V4);
                packet.extend(ADDRESS_V4);
            }
            Family::V6 => {
                packet.extend([0x60, 0, 0, 0, 0, 20, TCP, 64]);
                packet.extend(ADDRESS_V6);
                packet.extend(ADDRESS_V6);
            }
        }
        packet.extend(40_000_u16.to_be_bytes());
        packet.extend(PORT.to_be_bytes());
        // Sequence numbers, a header of 20 bytes, ACK, a window, and no checksum.
        packet.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0]);
        packet
    }

    /// `struct bpf_sock_addr`, `struct bpf_sock` or `struct __sk_buff` of `include/uapi/linux/bpf.h`. The socket and
    /// the packet lie at these addresses.
    pub(crate) fn context(self, socket: u64, packet: u64) -> Vec<u8> {
        if matches!(self, Self::Closed(_)) {
            return self.socket();
        }
        if self.is_socket() { self.socket_address(socket) } else { self.buffer(packet) }
    }

    fn socket_address(self, socket: u64) -> Vec<u8> {
        const SIZE: usize = 72;
        let family: u32 = if self.family() == Family::V4 { 2 } else { 10 };
        // SOCK_STREAM and SOCK_DGRAM, with their protocols.
        let (kind, protocol) =
            if matches!(self, Self::Tcp(_) | Self::TcpToBackend(_)) { (1, 6) } else { (2, 17_u32) };
        let mut context = vec![0; SIZE];
        let mut put = |offset: usize, bytes: &[u8]| {
            context[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &family.to_le_bytes());
        match self.family() {
            Family::V4 => put(4, &ADDRESS_V4),
            Family::V6 => put(8, &ADDRESS_V6),
        }
        put(24, &PORT.to_be_bytes());
        put(28, &family.to_le_bytes());
        put(32, &u32::to_le_bytes(kind));
        put(36, &protocol.to_le_bytes());
        put(64, &socket.to_le_bytes());
        context
    }

    fn socket(self) -> Vec<u8> {
        const SIZE: usize = 80;
        let mut context = vec![0; SIZE];
        let (family, at, peer): (u32, _, &[u8]) = match self.family() {
            Family::V4 => (2, 52, &ADDRESS_V4),
            Family::V6 => (10, 56, &ADDRESS_V6),
        };
        context[4..8].copy_from_slice(&family.to_le_bytes());
        context[12..16].copy_from_slice(&u32::from(TCP).to_le_bytes());
        context[at..at + peer.len()].copy_from_slice(peer);
        context
    }

    fn buffer(self, packet: u64) -> Vec<u8> {
        const SIZE: usize = 192;
        let length = u32::try_from(self.packet().len()).unwrap_or(u32::MAX);
        let data = u32::try_from(packet).unwrap_or(u32::MAX);
        let mut context = vec![0; SIZE];
        let mut put = |offset: usize, bytes: &[u8]| {
            context[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &length.to_le_bytes());
        put(16, &self.ethertype().to_be_bytes());
        // The device.
        put(40, &[1]);
        put(76, &data.to_le_bytes());
        put(80, &(data + length).to_le_bytes());
        context
    }
}
