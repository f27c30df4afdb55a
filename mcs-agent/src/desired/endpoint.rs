use std::{collections::BTreeMap, fmt::Display, net::IpAddr};

use super::{
    address::{forbidden, ipv4_mapped},
    refusal::Refusal,
};
use crate::model::{Endpoint, EndpointAddress, ObjectKey, RejectionReason};

/// The families that `addressType` names and that are served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// The family of an address.
    pub(super) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// What `addressType` says.
    pub(super) fn of_slice(address_type: &str) -> Result<Self, Refusal> {
        match address_type {
            "IPv4" => Ok(Self::V4),
            "IPv6" => Ok(Self::V6),
            other => Err(Refusal::new(
                RejectionReason::AddressTypeUnsupported,
                format!("addressType {other:?} is not served; use IPv4 or IPv6"),
            )),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// The address of an endpoint: its first, as for kube-proxy.
///
/// An address of this node is one (a host-network pod). One of `vips` is not: a connection to it
/// would be translated again, and could go round in circles.
pub(super) fn address(
    endpoint: &Endpoint,
    family: Family,
    vips: &BTreeMap<IpAddr, ObjectKey>,
) -> Result<IpAddr, Refusal> {
    let is_other = |text: &dyn Display| {
        let family = family.name();
        let message =
            format!("endpoint \"{text}\" is not an {family} address; correct or remove it");
        Err(Refusal::new(RejectionReason::EndpointInvalid, message))
    };
    let ip = match &endpoint.address {
        EndpointAddress::Ip(ip) if Family::of(*ip) == family && ipv4_mapped(*ip).is_none() => *ip,
        EndpointAddress::Ip(ip) => return is_other(ip),
        EndpointAddress::Other(text) => return is_other(&text.escape_debug()),
        EndpointAddress::Absent => {
            let message = "an endpoint has no address; correct or remove it";
            return Err(Refusal::new(RejectionReason::EndpointInvalid, message));
        }
    };
    if let Some(class) = forbidden(ip) {
        return Err(Refusal::new(
            RejectionReason::EndpointForbidden,
            format!("endpoint {ip} is {class}; publish a unicast address"),
        ));
    }
    if let Some(import) = vips.get(&ip) {
        return Err(Refusal::new(
            RejectionReason::EndpointIsVip,
            format!(
                "endpoint {ip} is itself the ClusterSetIP of {import}; publish a pod's address"
            ),
        ));
    }
    Ok(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{endpoint, key};

    #[test]
    fn the_address_type_decides_the_family() {
        for (address_type, family) in [
            ("IPv4", Some(Family::V4)),
            ("IPv6", Some(Family::V6)),
            ("FQDN", None),
            ("ipv4", None),
            ("", None),
        ] {
            let result = Family::of_slice(address_type);
            assert_eq!(result.as_ref().ok().copied(), family, "{address_type}");
            if let Err(refusal) = result {
                assert_eq!(refusal.reason, RejectionReason::AddressTypeUnsupported);
            }
        }
    }

    #[test]
    fn an_endpoint_stands_or_falls_by_its_address() {
        let vips =
            ["10.9.0.1", "fd00:9::1"].map(|ip| (ip.parse().unwrap(), key("shop/api"))).into();
        for (text, family, reason) in [
            ("10.1.0.1", Family::V4, None),
            ("fd00::1", Family::V6, None),
            ("pod-1", Family::V4, Some(RejectionReason::EndpointInvalid)),
            ("10.1.0.1 ", Family::V4, Some(RejectionReason::EndpointInvalid)),
            ("fd00::1", Family::V4, Some(RejectionReason::EndpointInvalid)),
            ("10.1.0.1", Family::V6, Some(RejectionReason::EndpointInvalid)),
            ("::ffff:10.1.0.1", Family::V6, Some(RejectionReason::EndpointInvalid)),
            ("0.0.0.0", Family::V4, Some(RejectionReason::EndpointForbidden)),
            ("127.0.0.1", Family::V4, Some(RejectionReason::EndpointForbidden)),
            ("169.254.169.254", Family::V4, Some(RejectionReason::EndpointForbidden)),
            ("224.0.0.251", Family::V4, Some(RejectionReason::EndpointForbidden)),
            ("255.255.255.255", Family::V4, Some(RejectionReason::EndpointForbidden)),
            ("::", Family::V6, Some(RejectionReason::EndpointForbidden)),
            ("::1", Family::V6, Some(RejectionReason::EndpointForbidden)),
            ("::127.0.0.1", Family::V6, Some(RejectionReason::EndpointForbidden)),
            ("fe80::1", Family::V6, Some(RejectionReason::EndpointForbidden)),
            ("ff02::fb", Family::V6, Some(RejectionReason::EndpointForbidden)),
            ("10.9.0.1", Family::V4, Some(RejectionReason::EndpointIsVip)),
            ("fd00:9::1", Family::V6, Some(RejectionReason::EndpointIsVip)),
        ] {
            let result = address(&endpoint(text), family, &vips);
            assert_eq!(result.as_ref().err().map(|r| r.reason), reason, "{text} {family:?}");
            if let Ok(ip) = result {
                assert_eq!(ip.to_string(), text);
            }
        }
    }

    #[test]
    fn an_endpoint_without_address_is_none() {
        let result = address(&Endpoint::default(), Family::V4, &BTreeMap::new());
        assert_eq!(result.map_err(|refusal| refusal.reason), Err(RejectionReason::EndpointInvalid));
    }
}
