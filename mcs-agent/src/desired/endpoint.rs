//! The address of one endpoint.

use std::{collections::BTreeMap, fmt::Display, net::IpAddr};

use super::{
    address::{forbidden, ipv4_mapped},
    ip_family::IpFamily,
    problem::ObjectProblem,
};
use crate::model::{Endpoint, EndpointAddress, ObjectKey, RejectionReason};

/// The address of an endpoint, if a backend can have it.
///
/// An address of this node is allowed, because host-network pods have it. A VIP is not: the
/// programs would translate a connection to it again, without end.
pub(super) fn address(
    endpoint: &Endpoint,
    family: IpFamily,
    vips: &BTreeMap<IpAddr, ObjectKey>,
) -> Result<IpAddr, ObjectProblem> {
    let wrong_family = |text: &dyn Display| {
        let family = family.name();
        let message =
            format!("endpoint \"{text}\" is not an {family} address; correct or remove it");
        Err(ObjectProblem::new(RejectionReason::EndpointInvalid, message))
    };
    let ip = match &endpoint.address {
        EndpointAddress::Ip(ip) if IpFamily::of(*ip) == family && ipv4_mapped(*ip).is_none() => *ip,
        EndpointAddress::Ip(ip) => return wrong_family(ip),
        EndpointAddress::Other(text) => return wrong_family(&text.escape_debug()),
        EndpointAddress::Absent => {
            let message = "an endpoint has no address; correct or remove it";
            return Err(ObjectProblem::new(RejectionReason::EndpointInvalid, message));
        }
    };
    if let Some(class) = forbidden(ip) {
        return Err(ObjectProblem::new(
            RejectionReason::EndpointForbidden,
            format!("endpoint {ip} is {class}; publish a unicast address"),
        ));
    }
    if let Some(import) = vips.get(&ip) {
        return Err(ObjectProblem::new(
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
    fn an_endpoint_is_rejected_by_its_address() {
        let vips =
            ["10.9.0.1", "fd00:9::1"].map(|ip| (ip.parse().unwrap(), key("shop/api"))).into();
        for (text, family, reason) in [
            ("10.1.0.1", IpFamily::V4, None),
            ("fd00::1", IpFamily::V6, None),
            ("pod-1", IpFamily::V4, Some(RejectionReason::EndpointInvalid)),
            ("10.1.0.1 ", IpFamily::V4, Some(RejectionReason::EndpointInvalid)),
            ("fd00::1", IpFamily::V4, Some(RejectionReason::EndpointInvalid)),
            ("10.1.0.1", IpFamily::V6, Some(RejectionReason::EndpointInvalid)),
            ("::ffff:10.1.0.1", IpFamily::V6, Some(RejectionReason::EndpointInvalid)),
            ("0.0.0.0", IpFamily::V4, Some(RejectionReason::EndpointForbidden)),
            ("127.0.0.1", IpFamily::V4, Some(RejectionReason::EndpointForbidden)),
            ("169.254.169.254", IpFamily::V4, Some(RejectionReason::EndpointForbidden)),
            ("224.0.0.251", IpFamily::V4, Some(RejectionReason::EndpointForbidden)),
            ("255.255.255.255", IpFamily::V4, Some(RejectionReason::EndpointForbidden)),
            ("::", IpFamily::V6, Some(RejectionReason::EndpointForbidden)),
            ("::1", IpFamily::V6, Some(RejectionReason::EndpointForbidden)),
            ("::127.0.0.1", IpFamily::V6, Some(RejectionReason::EndpointForbidden)),
            ("fe80::1", IpFamily::V6, Some(RejectionReason::EndpointForbidden)),
            ("ff02::fb", IpFamily::V6, Some(RejectionReason::EndpointForbidden)),
            ("10.9.0.1", IpFamily::V4, Some(RejectionReason::EndpointIsVip)),
            ("fd00:9::1", IpFamily::V6, Some(RejectionReason::EndpointIsVip)),
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
        let result = address(&Endpoint::default(), IpFamily::V4, &BTreeMap::new());
        assert_eq!(result.map_err(|problem| problem.reason), Err(RejectionReason::EndpointInvalid));
    }
}
