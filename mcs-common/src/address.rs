use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::{Pod, Zeroable};

/// An IP address of either family: 16 bytes in network order, IPv4 as `::ffff:a.b.c.d`.
///
/// One shape for both families keeps one code path, and it is what the kernel itself shows for IPv4
/// through an IPv6 socket (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Address {
    /// Network order.
    pub addr: [u8; 16],
}

const _: () = assert!(size_of::<Address>() == 16 && align_of::<Address>() == 8);
crate::pod!(Address);
crate::eq_by_words!(Address, 2);

impl Address {
    /// The address whose 32-bit words are as the kernel holds them, each in network order.
    #[inline(always)]
    #[must_use]
    pub fn from_words(words: [u32; 4]) -> Self {
        Self { addr: bytemuck::cast(words) }
    }

    /// The IPv4 address whose word is in network order, as the kernel holds it.
    #[inline(always)]
    #[must_use]
    pub fn from_v4_word(word: u32) -> Self {
        Self::from_words([0, 0, 0xffff_u32.to_be(), word])
    }

    /// The four words, each in network order.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> [u32; 4] {
        bytemuck::cast(self.addr)
    }

    /// Whether this is an IPv4 address.
    #[inline(always)]
    #[must_use]
    pub fn is_v4(&self) -> bool {
        let [a, b, c, _] = self.words();
        a == 0 && b == 0 && c == 0xffff_u32.to_be()
    }

    /// The standard library's form; an IPv4-mapped address is IPv4.
    #[must_use]
    pub fn to_ip(&self) -> IpAddr {
        Ipv6Addr::from(self.addr).to_canonical()
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Ipv4Addr> for Address {
    fn from(ip: Ipv4Addr) -> Self {
        Self { addr: ip.to_ipv6_mapped().octets() }
    }
}

impl From<Ipv6Addr> for Address {
    fn from(ip: Ipv6Addr) -> Self {
        Self { addr: ip.octets() }
    }
}
