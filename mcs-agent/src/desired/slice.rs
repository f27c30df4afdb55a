use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    candidate::Candidate,
    endpoint::{self, Family},
    name,
    port::{self, Port},
    refusal::Refusal,
};
use crate::model::{
    Endpoint, EndpointSlice, Kind, ObjectKey, ObjectRef, Protocol, Rejection, RejectionReason,
    SlicePort,
};

/// What the slices of an import offer, as far as they may.
#[derive(Debug, Default)]
pub(super) struct Offers<'a> {
    /// Whether there are any, with something to offer or not.
    pub(super) has_slices: bool,
    offers: Vec<Offer<'a>>,
}

/// What a slice offers.
#[derive(Debug)]
struct Offer<'a> {
    family: Family,
    /// Empty if the slice does not say.
    cluster: &'a Arc<str>,
    ports: Vec<OfferedPort<'a>>,
    endpoints: Vec<(IpAddr, &'a Endpoint)>,
}

/// A port of a slice that a port of the import may be served with.
#[derive(Clone, Copy, Debug)]
struct OfferedPort<'a> {
    /// Empty if unnamed.
    name: &'a str,
    protocol: Protocol,
    /// Never 0.
    number: u16,
}

impl<'a> Offers<'a> {
    /// Reads the slices of an import.
    pub(super) fn read(
        slices: impl Iterator<Item = &'a EndpointSlice>,
        vips: &BTreeMap<IpAddr, ObjectKey>,
    ) -> (Self, Vec<Rejection>) {
        let mut offers = Self::default();
        let mut rejections = Vec::new();
        for slice in slices {
            let (offer, refusals) = Offer::read(slice, vips);
            let object = ObjectRef { kind: Kind::EndpointSlice, key: slice.key.clone() };
            rejections.extend(refusals.into_iter().map(|refusal| refusal.of(&object)));
            offers.offers.extend(offer);
            offers.has_slices = true;
        }
        (offers, rejections)
    }

    /// The endpoints for a port of the import. Ports match by name and protocol, and unnamed
    /// matches unnamed alone; the number is the slice's.
    pub(super) fn candidates(&self, port: &Port, family: Family) -> Vec<Candidate<'a>> {
        let mut candidates = Vec::new();
        for offer in self.offers.iter().filter(|offer| offer.family == family) {
            for offered in &offer.ports {
                if offered.name == port.name && offered.protocol == port.protocol {
                    candidates.extend(offer.endpoints.iter().map(|(ip, endpoint)| Candidate {
                        address: SocketAddr::new(*ip, offered.number),
                        cluster: offer.cluster,
                        endpoint,
                    }));
                }
            }
        }
        candidates
    }
}

impl<'a> Offer<'a> {
    /// A slice of other addresses, or whose cluster's name does not fit, offers nothing; a port or
    /// an endpoint is refused alone.
    fn read(
        slice: &'a EndpointSlice,
        vips: &BTreeMap<IpAddr, ObjectKey>,
    ) -> (Option<Self>, Vec<Refusal>) {
        let cluster = &slice.source_cluster;
        let checks = Family::of_slice(&slice.address_type)
            .and_then(|family| name::check_cluster(cluster).map(|()| family));
        let family = match checks {
            Ok(family) => family,
            Err(refusal) => return (None, vec![refusal]),
        };
        let mut ports = Vec::with_capacity(slice.ports.len());
        let mut endpoints = Vec::with_capacity(slice.endpoints.len());
        let mut refusals = Vec::new();
        for port in &slice.ports {
            match offered(port) {
                Ok(port) => ports.extend(port),
                Err(refusal) => refusals.push(refusal),
            }
        }
        for endpoint in &slice.endpoints {
            match endpoint::address(endpoint, family, vips) {
                Ok(ip) => endpoints.push((ip, endpoint)),
                Err(refusal) => refusals.push(refusal),
            }
        }
        (Some(Self { family, cluster, ports, endpoints }), refusals)
    }
}

/// A port of a slice. `None`: it has no number, or a protocol that is not served.
fn offered(port: &SlicePort) -> Result<Option<OfferedPort<'_>>, Refusal> {
    let (Some(protocol), Some(written)) = (port::protocol(port.protocol.as_deref()), port.port)
    else {
        return Ok(None);
    };
    let number = port::number(written).ok_or_else(|| {
        Refusal::new(
            RejectionReason::EndpointPortInvalid,
            format!("port {:?} {written}/{protocol} is out of range; use 1 to 65535", port.name),
        )
    })?;
    Ok(Some(OfferedPort { name: &port.name, protocol, number }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::slice;

    fn read(slices: &[EndpointSlice]) -> (Offers<'_>, Vec<RejectionReason>) {
        let (offers, rejections) = Offers::read(slices.iter(), &BTreeMap::new());
        (offers, rejections.iter().map(|rejection| rejection.reason).collect())
    }

    fn addresses(offers: &Offers<'_>, port: &Port, family: Family) -> Vec<String> {
        offers.candidates(port, family).iter().map(|c| c.address.to_string()).collect()
    }

    fn port(name: &str, protocol: Protocol) -> Port {
        Port { name: name.to_owned(), protocol, number: 80 }
    }

    #[test]
    fn ports_match_by_name_and_protocol() {
        let slices = [slice("shop/a", "web")
            .address("10.1.0.1")
            .port("http", 8080)
            .port_of("dns", Some(5353), Some("UDP"))
            .port("", 9000)];
        let (offers, reasons) = read(&slices);
        assert_eq!(reasons, []);
        for (name, protocol, expected) in [
            ("http", Protocol::Tcp, Some("10.1.0.1:8080")),
            ("http", Protocol::Udp, None),
            ("dns", Protocol::Udp, Some("10.1.0.1:5353")),
            ("dns", Protocol::Tcp, None),
            ("", Protocol::Tcp, Some("10.1.0.1:9000")),
            ("", Protocol::Udp, None),
            ("HTTP", Protocol::Tcp, None),
        ] {
            let found = addresses(&offers, &port(name, protocol), Family::V4);
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{name:?} {protocol}");
        }
    }

    #[test]
    fn each_slice_has_its_own_port_number_and_cluster() {
        let slices = [
            slice("shop/a", "web").cluster("east").address("10.1.0.1").port("http", 8080),
            slice("shop/b", "web").cluster("west").address("10.2.0.1").port("http", 8081),
            slice("shop/c", "web").cluster("").address("10.3.0.1").port("http", 8082),
        ];
        let candidates = read(&slices).0.candidates(&port("http", Protocol::Tcp), Family::V4);
        let found: Vec<_> = candidates.iter().map(|c| (c.address.port(), &**c.cluster)).collect();
        assert_eq!(found, [(8080, "east"), (8081, "west"), (8082, "")]);
    }

    #[test]
    fn a_slice_serves_its_family() {
        let slices = [
            slice("shop/a", "web").address("10.1.0.1").port("", 1),
            slice("shop/b", "web").v6().address("fd00::1").port("", 1),
        ];
        let (offers, _) = read(&slices);
        assert_eq!(addresses(&offers, &port("", Protocol::Tcp), Family::V4), ["10.1.0.1:1"]);
        assert_eq!(addresses(&offers, &port("", Protocol::Tcp), Family::V6), ["[fd00::1]:1"]);
    }

    #[test]
    fn a_slice_that_cannot_be_used_is_refused_whole() {
        let long = "c".repeat(64);
        for (slice, reason) in [
            (
                EndpointSlice { address_type: "FQDN".to_owned(), ..slice("shop/a", "web") },
                RejectionReason::AddressTypeUnsupported,
            ),
            (slice("shop/a", "web").cluster(&long), RejectionReason::NameTooLong),
        ] {
            let slices = [slice.address("10.1.0.1").address("nonsense").port("", 0)];
            let (offers, reasons) = read(&slices);
            assert_eq!(reasons, [reason]);
            assert!(offers.has_slices);
            assert_eq!(addresses(&offers, &port("", Protocol::Tcp), Family::V4), [""; 0]);
        }
    }

    #[test]
    fn a_port_stands_or_falls_alone() {
        for (number, protocol, reason) in [
            (Some(0), None, Some(RejectionReason::EndpointPortInvalid)),
            (Some(65536), None, Some(RejectionReason::EndpointPortInvalid)),
            (Some(-1), Some("UDP"), Some(RejectionReason::EndpointPortInvalid)),
            (None, None, None),
            (Some(80), Some("SCTP"), None),
        ] {
            let slices = [slice("shop/a", "web")
                .address("10.1.0.1")
                .port_of("x", number, protocol)
                .port("http", 8080)];
            let (offers, reasons) = read(&slices);
            assert_eq!(reasons, reason.into_iter().collect::<Vec<_>>(), "{number:?} {protocol:?}");
            for (name, count) in [("x", 0), ("http", 1)] {
                let found = addresses(&offers, &port(name, Protocol::Tcp), Family::V4);
                assert_eq!(found.len(), count, "{name} of {number:?} {protocol:?}");
            }
        }
    }

    #[test]
    fn an_endpoint_stands_or_falls_alone() {
        let slices = [slice("shop/a", "web")
            .address("10.1.0.1")
            .address("127.0.0.1")
            .address("pod-2")
            .address("10.1.0.2")
            .port("", 80)
            .port("http", 8080)];
        let (offers, reasons) = read(&slices);
        assert_eq!(reasons, [RejectionReason::EndpointForbidden, RejectionReason::EndpointInvalid]);
        assert_eq!(
            addresses(&offers, &port("http", Protocol::Tcp), Family::V4),
            ["10.1.0.1:8080", "10.1.0.2:8080"]
        );
    }
}
