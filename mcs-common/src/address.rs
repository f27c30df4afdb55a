//! IP addresses of both families in one type.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::{Pod, Zeroable};

/// An IP address of either family: 16 bytes in network order, IPv4 as `::ffff:a.b.c.d`.
///
/// One type for both families needs one set of maps and one code path. The kernel itself shows IPv4
/// addresses of IPv6 sockets in this form (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Address {
    /// The 16 bytes in network order.
    pub addr: [u8; 16],
}

const _: () = assert!(size_of::<Address>() == 16 && align_of::<Address>() == 8);
crate::pod!(Address);
crate::eq_by_words!(Address, 2);

impl Address {
    /// An address from the kernel's four 32-bit words, each in network order.
    #[inline(always)]
    #[must_use]
    pub fn from_words(words: [u32; 4]) -> Self {
        Self { addr: bytemuck::cast(words) }
    }

    /// An IPv4 address from the kernel's 32-bit word, which is in network order.
    #[inline(always)]
    #[must_use]
    pub fn from_v4_word(word: u32) -> Self {
        Self::from_words([0, 0, 0xffff_u32.to_be(), word])
    }

    /// The address as four 32-bit words, each in network order.
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

    /// The address as the standard library's type. An IPv4-mapped address becomes an IPv4 address.
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
