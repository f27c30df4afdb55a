//! Addresses of the cases, of either family.

use crate::prelude::*;

/// IP version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// What is of this family.
    pub(crate) fn of<T>(self, v4: T, v6: T) -> T {
        match self {
            Self::V4 => v4,
            Self::V6 => v6,
        }
    }

    /// The bytes of a header without options or extensions.
    pub(crate) fn header(self) -> usize {
        self.of(20, 40)
    }

    /// A host of a subnet. Bytes 12 and 13 of a packet with such a source are those of its ethertype;
    /// see [`Medium::Bare`].
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

    pub(crate) fn ethertype(self) -> EtherType {
        self.of(EtherType::IPV4, EtherType::IPV6)
    }

    /// The number of its ICMP.
    pub(crate) fn icmp(self) -> u8 {
        self.of(1, 58)
    }

    /// The type of an echo request, and of its reply.
    pub(crate) fn echo(self) -> (u8, u8) {
        self.of((8, 0), (128, 129))
    }

    /// The ICMP error that says that nobody listens at a port.
    pub(crate) fn port_unreachable(self) -> (u8, u8, [u8; 4]) {
        self.of((3, 3, [0; 4]), (1, 4, [0; 4]))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.of("IPv4", "IPv6"))
    }
}
