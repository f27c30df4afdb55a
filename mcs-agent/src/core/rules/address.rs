//! IP families, and classes of addresses that can be neither a VIP nor an endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::problem::ObjectProblem;
use crate::core::model::RejectionReason;

/// The forbidden class of an address, if it is in one.
///
/// An IPv6 address can embed an IPv4 address (mapped or compatible, RFC 4291 2.5.5). The kernel can
/// treat it as that address, so the class of the IPv4 address counts too.
pub(crate) fn forbidden(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(v4) => forbidden_v4(v4),
        IpAddr::V6(v6) => forbidden_v6(v6).or_else(|| v6.to_ipv4().and_then(forbidden_v4)),
    }
}

fn forbidden_v4(ip: Ipv4Addr) -> Option<&'static str> {
    class([
        (ip.is_unspecified(), "unspecified"),
        (ip.is_loopback(), "loopback"),
        (ip.is_link_local(), "link-local"),
        (ip.is_multicast(), "multicast"),
        (ip.is_broadcast(), "broadcast"),
    ])
}

fn forbidden_v6(ip: Ipv6Addr) -> Option<&'static str> {
    class([
        (ip.is_unspecified(), "unspecified"),
        (ip.is_loopback(), "loopback"),
        (ip.is_unicast_link_local(), "link-local"),
        (ip.is_multicast(), "multicast"),
    ])
}

fn class<const N: usize>(classes: [(bool, &'static str); N]) -> Option<&'static str> {
    classes.into_iter().find_map(|(applies, name)| applies.then_some(name))
}

/// The IPv4 address of an IPv4-mapped IPv6 address (`::ffff:a.b.c.d`). The maps hold IPv4 addresses
/// in this form, so a mapped address would be read from the maps as IPv4.
pub(super) fn ipv4_mapped(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => v6.to_ipv4_mapped(),
    }
}

/// The values of `addressType` that are served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    pub(crate) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Reads `addressType`.
    pub(crate) fn of_slice(address_type: &str) -> Result<Self, ObjectProblem> {
        match address_type {
            "IPv4" => Ok(Self::V4),
            "IPv6" => Ok(Self::V6),
            other => {
                let what = format!("addressType {other:?} is not served");
                Err(ObjectProblem::advised(RejectionReason::AddressTypeUnsupported, what))
            }
        }
    }

    /// As in `addressType`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_class_of_what_is_forbidden() {
        for (ip, class) in [
            ("0.0.0.0", Some("unspecified")),
            ("127.0.0.1", Some("loopback")),
            ("127.255.0.9", Some("loopback")),
            ("169.254.169.254", Some("link-local")),
            ("224.0.0.1", Some("multicast")),
            ("239.255.255.255", Some("multicast")),
            ("255.255.255.255", Some("broadcast")),
            ("::", Some("unspecified")),
            ("::1", Some("loopback")),
            ("fe80::1", Some("link-local")),
            ("febf::1", Some("link-local")),
            ("ff02::1", Some("multicast")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::ffff:255.255.255.255", Some("broadcast")),
            ("::169.254.1.1", Some("link-local")),
            ("::224.0.0.1", Some("multicast")),
            ("10.0.0.1", None),
            ("192.0.2.255", None),
            ("fec0::1", None),
            ("fd00::1", None),
            ("2001:db8::1", None),
            ("::ffff:10.0.0.1", None),
        ] {
            assert_eq!(forbidden(ip.parse().unwrap()), class, "{ip}");
        }
    }

    #[test]
    fn knows_ipv4_written_as_ipv6() {
        for (ip, inner) in [
            ("::ffff:10.0.0.1", Some(Ipv4Addr::new(10, 0, 0, 1))),
            ("::10.0.0.1", None),
            ("10.0.0.1", None),
            ("fd00::1", None),
        ] {
            assert_eq!(ipv4_mapped(ip.parse().unwrap()), inner, "{ip}");
        }
    }

    #[test]
    fn the_address_type_decides_the_family() {
        for (address_type, family) in [
            ("IPv4", Some(IpFamily::V4)),
            ("IPv6", Some(IpFamily::V6)),
            ("FQDN", None),
            ("ipv4", None),
            ("", None),
        ] {
            let result = IpFamily::of_slice(address_type);
            assert_eq!(result.as_ref().ok().copied(), family, "{address_type}");
            if let Err(problem) = result {
                assert_eq!(problem.reason, RejectionReason::AddressTypeUnsupported);
            }
        }
    }
}
