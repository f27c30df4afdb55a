//! The IP family of a slice or a frontend.

use std::net::IpAddr;

use super::problem::ObjectProblem;
use crate::model::RejectionReason;

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
    pub(super) fn of_slice(address_type: &str) -> Result<Self, ObjectProblem> {
        match address_type {
            "IPv4" => Ok(Self::V4),
            "IPv6" => Ok(Self::V6),
            other => Err(ObjectProblem::new(
                RejectionReason::AddressTypeUnsupported,
                format!("addressType {other:?} is not served; use IPv4 or IPv6"),
            )),
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
