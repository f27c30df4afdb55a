//! The ports and endpoints of an import's slices that can be used.

use std::{
    collections::BTreeMap,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    address::{IpFamily, forbidden, ipv4_mapped},
    candidate::{Candidate, Recorder},
    port::{self, Port},
    problem::{self, ObjectProblem},
};
use crate::core::model::{
    Endpoint, EndpointAddress, EndpointSlice, Kind, NodeFacts, ObjectKey, ObjectRef, Protocol,
    Rejection, RejectionReason, SlicePort,
};

/// The usable part of an import's slices.
#[derive(Debug, Default)]
pub(super) struct UsableSlices<'a> {
    /// Whether the import has slices, usable or not.
    pub(super) has_slices: bool,
    slices: Vec<UsableSlice<'a>>,
}

/// The usable part of a slice.
#[derive(Debug)]
struct UsableSlice<'a> {
    family: IpFamily,
    /// Empty if the slice names none.
    cluster: &'a Arc<str>,
    ports: Vec<UsablePort<'a>>,
    /// With their valid addresses.
    endpoints: Vec<(IpAddr, &'a Endpoint)>,
}

/// A valid port of a slice.
#[derive(Clone, Copy, Debug)]
struct UsablePort<'a> {
    /// Empty if unnamed.
    name: &'a str,
    protocol: Protocol,
    /// Never 0.
    number: u16,
}

impl<'a> UsableSlices<'a> {
    /// Reads the slices of an import. No endpoint may be one of `vips`.
    pub(super) fn read(
        slices: impl Iterator<Item = &'a EndpointSlice>,
        vips: &BTreeMap<IpAddr, ObjectKey>,
        facts: &NodeFacts,
        recorder: &mut dyn Recorder,
    ) -> (Self, Vec<Rejection>) {
        let mut usable = Self::default();
        let mut rejections = Vec::new();
        for slice in slices {
            let (usable_slice, problems) = UsableSlice::read(slice, vips, facts, recorder);
            let object = ObjectRef { kind: Kind::EndpointSlice, key: slice.key.clone() };
            rejections.extend(problem::rejections(problems, &object));
            usable.slices.extend(usable_slice);
            usable.has_slices = true;
        }
        (usable, rejections)
    }

    /// The endpoints for a port of the import. A slice's port matches if its name and protocol are
    /// the same; an unnamed port matches only an unnamed one. The slice has the port number.
    pub(super) fn candidates(&self, port: &Port, family: IpFamily) -> Vec<Candidate<'a>> {
        let mut candidates = Vec::new();
        for slice in self.slices.iter().filter(|slice| slice.family == family) {
            for usable in &slice.ports {
                if usable.name == port.name && usable.protocol == port.protocol {
                    let candidate = |(ip, endpoint): &(IpAddr, &'a Endpoint)| Candidate {
                        address: SocketAddr::new(*ip, usable.number),
                        cluster: slice.cluster,
                        endpoint,
                    };
                    candidates.extend(slice.endpoints.iter().map(candidate));
                }
            }
        }
        candidates
    }
}

impl<'a> UsableSlice<'a> {
    /// A wrong address type rejects the slice. A port or endpoint is rejected alone.
    fn read(
        slice: &'a EndpointSlice,
        vips: &BTreeMap<IpAddr, ObjectKey>,
        facts: &NodeFacts,
        recorder: &mut dyn Recorder,
    ) -> (Option<Self>, Vec<ObjectProblem>) {
        let cluster = &slice.source_cluster;
        let family = match IpFamily::of_slice(&slice.address_type) {
            Ok(family) => family,
            Err(problem) => return (None, vec![problem]),
        };
        let mut ports = Vec::with_capacity(slice.ports.len());
        let mut endpoints = Vec::with_capacity(slice.endpoints.len());
        let mut problems = Vec::new();
        for port in &slice.ports {
            match usable_port(port) {
                Ok(port) => ports.extend(port),
                Err(problem) => problems.push(problem),
            }
        }
        for endpoint in &slice.endpoints {
            match endpoint_address(endpoint, family, vips, facts) {
                Ok(ip) => endpoints.push((ip, endpoint)),
                Err(problem) => {
                    recorder.rejected(endpoint, &problem);
                    problems.push(problem);
                }
            }
        }
        (Some(Self { family, cluster, ports, endpoints }), problems)
    }
}

/// Reads a port of a slice. `None`: it has no number, or the programs do not translate its protocol.
fn usable_port(port: &SlicePort) -> Result<Option<UsablePort<'_>>, ObjectProblem> {
    let (Some(protocol), Some(written)) = (port::protocol(port.protocol.as_deref()), port.port)
    else {
        return Ok(None);
    };
    let number = port::number(written).ok_or_else(|| {
        let what = format!("port {:?} {written}/{protocol} is out of range", port.name);
        ObjectProblem::advised(RejectionReason::EndpointPortInvalid, what)
    })?;
    Ok(Some(UsablePort { name: &port.name, protocol, number }))
}

/// The address of an endpoint, if a backend can have it.
///
/// An address of this node is allowed, because host-network pods have it. A VIP is not: the
/// programs would translate a connection to it again, without end.
fn endpoint_address(
    endpoint: &Endpoint,
    family: IpFamily,
    vips: &BTreeMap<IpAddr, ObjectKey>,
    facts: &NodeFacts,
) -> Result<IpAddr, ObjectProblem> {
    let rejected = |reason, what: String| Err(ObjectProblem::advised(reason, what));
    let wrong_family = |text: &dyn Display| {
        let what = format!("endpoint \"{text}\" is not an {} address", family.name());
        rejected(RejectionReason::EndpointInvalid, what)
    };
    let ip = match &endpoint.address {
        EndpointAddress::Ip(ip) if IpFamily::of(*ip) == family && ipv4_mapped(*ip).is_none() => *ip,
        EndpointAddress::Ip(ip) => return wrong_family(ip),
        EndpointAddress::Other(text) => return wrong_family(&text.escape_debug()),
        EndpointAddress::Absent => {
            let what = "an endpoint has no address".to_owned();
            return rejected(RejectionReason::EndpointInvalid, what);
        }
    };
    if let Some(class) = forbidden(ip) {
        return rejected(RejectionReason::EndpointForbidden, format!("endpoint {ip} is {class}"));
    }
    if let Some(import) = vips.get(&ip) {
        let what = format!("endpoint {ip} is itself the ClusterSetIP of {import}");
        return rejected(RejectionReason::EndpointIsVip, what);
    }
    if let Some(first) = facts.leaves_untranslated(ip) {
        let what = format!("endpoint {ip} is a Service, and {first} runs before our programs");
        return rejected(RejectionReason::EndpointUntranslated, what);
    }
    Ok(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::fixture::{endpoint, key, slice};

    fn read(slices: &[EndpointSlice]) -> (UsableSlices<'_>, Vec<RejectionReason>) {
        let (usable, rejections) =
            UsableSlices::read(slices.iter(), &BTreeMap::new(), &NodeFacts::default(), &mut ());
        (usable, rejections.iter().map(|rejection| rejection.reason).collect())
    }

    fn addresses(usable: &UsableSlices<'_>, port: &Port, family: IpFamily) -> Vec<String> {
        usable.candidates(port, family).iter().map(|c| c.address.to_string()).collect()
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
        let (usable, reasons) = read(&slices);
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
            let found = addresses(&usable, &port(name, protocol), IpFamily::V4);
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
        let candidates = read(&slices).0.candidates(&port("http", Protocol::Tcp), IpFamily::V4);
        let found: Vec<_> = candidates.iter().map(|c| (c.address.port(), &**c.cluster)).collect();
        assert_eq!(found, [(8080, "east"), (8081, "west"), (8082, "")]);
    }

    #[test]
    fn a_slice_serves_its_family() {
        let slices = [
            slice("shop/a", "web").address("10.1.0.1").port("", 1),
            slice("shop/b", "web").v6().address("fd00::1").port("", 1),
        ];
        let (usable, _) = read(&slices);
        assert_eq!(addresses(&usable, &port("", Protocol::Tcp), IpFamily::V4), ["10.1.0.1:1"]);
        assert_eq!(addresses(&usable, &port("", Protocol::Tcp), IpFamily::V6), ["[fd00::1]:1"]);
    }

    #[test]
    fn an_unusable_slice_is_rejected() {
        let slice = EndpointSlice { address_type: "FQDN".to_owned(), ..slice("shop/a", "web") };
        let slices = [slice.address("10.1.0.1").address("nonsense").port("", 0)];
        let (usable, reasons) = read(&slices);
        assert_eq!(reasons, [RejectionReason::AddressTypeUnsupported]);
        assert!(usable.has_slices);
        assert_eq!(addresses(&usable, &port("", Protocol::Tcp), IpFamily::V4), [""; 0]);
    }

    #[test]
    fn a_port_is_rejected_alone() {
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
            let (usable, reasons) = read(&slices);
            assert_eq!(reasons, reason.into_iter().collect::<Vec<_>>(), "{number:?} {protocol:?}");
            for (name, count) in [("x", 0), ("http", 1)] {
                let found = addresses(&usable, &port(name, Protocol::Tcp), IpFamily::V4);
                assert_eq!(found.len(), count, "{name} of {number:?} {protocol:?}");
            }
        }
    }

    #[test]
    fn an_endpoint_is_rejected_alone() {
        let slices = [slice("shop/a", "web")
            .address("10.1.0.1")
            .address("127.0.0.1")
            .address("pod-2")
            .address("10.1.0.2")
            .port("", 80)
            .port("http", 8080)];
        let (usable, reasons) = read(&slices);
        assert_eq!(reasons, [RejectionReason::EndpointForbidden, RejectionReason::EndpointInvalid]);
        assert_eq!(
            addresses(&usable, &port("http", Protocol::Tcp), IpFamily::V4),
            ["10.1.0.1:8080", "10.1.0.2:8080"]
        );
    }

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
            let result = endpoint_address(&endpoint(text), family, &vips, &NodeFacts::default());
            assert_eq!(result.as_ref().err().map(|r| r.reason), reason, "{text} {family:?}");
            if let Ok(ip) = result {
                assert_eq!(ip.to_string(), text);
            }
        }
    }

    #[test]
    fn an_endpoint_without_address_is_none() {
        let nobody = BTreeMap::new();
        let facts = NodeFacts::default();
        let result = endpoint_address(&Endpoint::default(), IpFamily::V4, &nobody, &facts);
        assert_eq!(result.map_err(|problem| problem.reason), Err(RejectionReason::EndpointInvalid));
    }

    #[test]
    fn a_service_is_no_endpoint_where_a_program_of_others_runs_first() {
        let nobody = BTreeMap::new();
        let mut facts = NodeFacts {
            service_ranges: Some(["10.96.0.0/16".parse().unwrap()].into()),
            ..NodeFacts::default()
        };
        let service = endpoint("10.96.0.9");
        let pod = endpoint("10.1.0.1");
        assert!(endpoint_address(&service, IpFamily::V4, &nobody, &facts).is_ok());
        facts.translates_first = Some("program 7 (connect4, /)".to_owned());
        let rejected = endpoint_address(&service, IpFamily::V4, &nobody, &facts).unwrap_err();
        assert_eq!(rejected.reason, RejectionReason::EndpointUntranslated);
        assert!(rejected.message.contains("program 7"), "{}", rejected.message);
        assert!(endpoint_address(&pod, IpFamily::V4, &nobody, &facts).is_ok());
        facts.service_ranges = None;
        assert!(endpoint_address(&service, IpFamily::V4, &nobody, &facts).is_ok());
    }
}
