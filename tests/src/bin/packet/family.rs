//! Addresses of the cases, of either family.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use etherparse::EtherType;

/// IP version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// A host of a subnet. Bytes 12 and 13 of a packet with such a source are those of its ethertype;
    /// see [`Medium::Bare`](crate::medium::Medium::Bare).
    const fn host(self, subnet: u8, host: u8) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(8, 0, subnet, host)),
            Self::V6 => {
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0x86dd, subnet as u16, 0, 0, 0, host as u16))
            }
        }
    }

    /// A client, with a port.
    pub(crate) const fn client(self, host: u8) -> SocketAddr {
        SocketAddr::new(self.host(1, host), 40_000 + host as u16)
    }

    /// A backend that listens at 8080.
    pub(crate) const fn pod(self, host: u8) -> SocketAddr {
        SocketAddr::new(self.host(2, host), 8080)
    }

    /// A router on the way.
    pub(crate) const fn router(self) -> IpAddr {
        self.host(3, 1)
    }

    /// An address that is neither a VIP nor a backend.
    pub(crate) const fn stranger(self) -> SocketAddr {
        SocketAddr::new(self.host(4, 1), 443)
    }

    /// A VIP, port 80.
    pub(crate) const fn vip(self, host: u8) -> SocketAddr {
        SocketAddr::new(self.host(99, host), 80)
    }

    pub(crate) const fn ethertype(self) -> EtherType {
        match self {
            Self::V4 => EtherType::IPV4,
            Self::V6 => EtherType::IPV6,
        }
    }

    /// The number of its ICMP.
    pub(crate) const fn icmp(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 58,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
