//! Endpoints that can become backends of one port, one per address: what a slice offers, their conditions, and what a
//! recorder learns of each from the rules.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use mcs_kube::reasons::Fate;

use super::fields::{self, IpFamily, ObjectProblem, Port, forbidden, ipv4_mapped};
use crate::core::model::{
    Backend, Endpoint, EndpointAddress, EndpointSlice, Kind, NodeFacts, ObjectKey, ObjectRef,
    Protocol, Rejection, RejectionReason, SlicePort,
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
            rejections.extend(fields::rejections(problems, &object));
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
    let (Some(protocol), Some(written)) = (fields::protocol(port.protocol.as_deref()), port.port)
    else {
        return Ok(None);
    };
    let number = fields::port_number(written).ok_or_else(|| {
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

/// An endpoint that can become a backend, with its port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) address: SocketAddr,
    /// The full name. Empty if the slice names none.
    pub(crate) cluster: &'a Arc<str>,
    pub(crate) endpoint: &'a Endpoint,
}

impl Candidate<'_> {
    pub(crate) fn conditions(&self) -> Conditions {
        Conditions::of(self.endpoint)
    }

    pub(super) fn backend(&self) -> Backend {
        Backend { address: self.address, cluster: fields::cluster_in_maps(self.cluster) }
    }
}

/// An endpoint's conditions with kube-proxy's defaults (`endpointslicecache.go`): ready, serving and
/// not terminating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conditions {
    pub(crate) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
}

impl Conditions {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        Self {
            ready: endpoint.ready.unwrap_or(true),
            serving: endpoint.serving.unwrap_or(true),
            terminating: endpoint.terminating.unwrap_or(false),
        }
    }

    /// Whether it answers its present clients, whether or not new ones get it.
    pub(super) fn answers(self) -> bool {
        self.ready || self.serving
    }

    /// Whether it terminates and still answers. Such endpoints serve if none is ready (KEP-1669).
    pub(crate) fn draining(self) -> bool {
        self.serving && self.terminating
    }
}

/// Sorts by address and keeps one candidate per address.
///
/// A pod that moves between slices is in both for a while, and a terminating pod's address can
/// already belong to another pod. The endpoint that is not terminating answers
/// (kube-proxy `endpointslicecache.go`). Next, ready comes before serving, and serving before the
/// others. Among equals, the slice whose name sorts first wins.
pub(super) fn keep_one_per_address(candidates: &mut Vec<Candidate<'_>>) {
    candidates.sort_by_key(|candidate| {
        let Conditions { ready, serving, terminating } = candidate.conditions();
        (candidate.address, terminating, !ready, !serving)
    });
    candidates.dedup_by_key(|candidate| candidate.address);
}

/// Test endpoints with the names of their clusters.
#[cfg(test)]
pub(crate) fn of_clusters(endpoints: &[(&str, Endpoint)]) -> Vec<(Arc<str>, Endpoint)> {
    endpoints.iter().map(|(cluster, endpoint)| ((*cluster).into(), endpoint.clone())).collect()
}

/// Test candidates with the ports 1, 2 and so on. They do not use the endpoints' addresses.
#[cfg(test)]
pub(crate) fn numbered<'a>(endpoints: &'a [(Arc<str>, Endpoint)]) -> Vec<Candidate<'a>> {
    let candidate = |((cluster, endpoint), port): (&'a (Arc<str>, Endpoint), u16)| Candidate {
        address: ([10, 1, 0, 1], port).into(),
        cluster,
        endpoint,
    };
    endpoints.iter().zip(1..).map(candidate).collect()
}

/// The fates of candidates that do not stay.
#[cfg(test)]
pub(crate) struct Fates(pub(crate) Vec<Fate>);

#[cfg(test)]
impl Recorder for Fates {
    fn step<'a>(
        &mut self,
        candidates: &mut Vec<Candidate<'a>>,
        step: &mut dyn FnMut(&mut Vec<Candidate<'a>>) -> Fate,
    ) {
        let before = candidates.len();
        let fate = step(candidates);
        self.0.extend((candidates.len()..before).map(|_| fate));
    }
}

/// A preference would have kept nothing, so the rules use the next choice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fallback {
    /// Clusters that are out of use serve.
    DrainedServe,
    /// Another tier than the first serves. The text says which tiers are empty, and which tier serves.
    TierEmpty(String),
    /// Endpoints that terminate serve.
    TerminatingServe,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DrainedServe => {
                "no other cluster has a ready endpoint, so clusters that are out of use serve it"
            }
            Self::TierEmpty(what) => what,
            Self::TerminatingServe => "all endpoints that serve it terminate",
        })
    }
}

/// Learns what the rules decide about endpoints, while they do. `()` learns nothing: the agent's own rounds use it.
pub(crate) trait Recorder {
    /// An endpoint cannot be used for any port.
    fn rejected(&mut self, _endpoint: &Endpoint, _problem: &ObjectProblem) {}

    /// The steps that follow are about the candidates for this port.
    fn port(&mut self, _port: &Port) {}

    /// Does a step, which may remove candidates. The step returns the fate of the candidates that it removes.
    fn step<'a>(
        &mut self,
        candidates: &mut Vec<Candidate<'a>>,
        step: &mut dyn FnMut(&mut Vec<Candidate<'a>>) -> Fate,
    ) {
        step(candidates);
    }

    /// A preference would have kept nothing for this port.
    fn falls_back(&mut self, _fallback: &dyn Fn() -> Fallback) {}

    /// These candidates remain after the last step.
    fn used(&mut self, _candidates: &[Candidate<'_>]) {}
}

impl Recorder for () {}

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

    #[test]
    fn of_one_address_the_one_that_answers_stays() {
        let ready = || endpoint("10.1.0.1");
        let unready = || ready().conditions(false, true, false);
        let stopped = || ready().conditions(false, false, false);
        let draining = || ready().draining();
        let gone = || ready().conditions(false, false, true);
        let cluster = "".into();
        for (winner, losers) in [
            (ready(), vec![unready(), stopped(), draining(), gone()]),
            (unready(), vec![stopped(), draining(), gone()]),
            (stopped(), vec![draining(), gone()]),
            (draining(), vec![gone()]),
        ] {
            for loser in losers {
                for pair in [[&winner, &loser], [&loser, &winner]] {
                    let mut candidates = pair
                        .map(|endpoint| Candidate {
                            address: "10.1.0.1:80".parse().unwrap(),
                            cluster: &cluster,
                            endpoint,
                        })
                        .to_vec();
                    keep_one_per_address(&mut candidates);
                    assert_eq!(candidates.len(), 1);
                    assert_eq!(candidates[0].endpoint, &winner, "against {loser:?}");
                }
            }
        }
    }

    #[test]
    fn among_equals_the_first_stays() {
        let endpoint = endpoint("10.1.0.1");
        let [a, b, c] = ["a", "b", "c"].map(Arc::from);
        let of = |address: &str, cluster| Candidate {
            address: address.parse().unwrap(),
            cluster,
            endpoint: &endpoint,
        };
        let mut candidates =
            vec![of("10.1.0.1:81", &a), of("10.1.0.1:80", &b), of("10.1.0.1:80", &c)];
        keep_one_per_address(&mut candidates);
        let kept: Vec<_> = candidates.iter().map(|c| (c.address.port(), &**c.cluster)).collect();
        assert_eq!(kept, [(80, "b"), (81, "a")]);
    }

    #[test]
    fn fills_in_what_is_unset() {
        let yes = Some(true);
        let no = Some(false);
        for (ready, serving, terminating, expected_ready, expected_draining) in [
            (None, None, None, true, false),
            (yes, yes, no, true, false),
            (no, None, None, false, false),
            (no, yes, no, false, false),
            (None, None, yes, true, true),
            (no, None, yes, false, true),
            (no, yes, yes, false, true),
            (no, no, yes, false, false),
            (no, no, None, false, false),
        ] {
            let endpoint = endpoint("10.1.0.1").conditions(ready, serving, terminating);
            let conditions = Conditions::of(&endpoint);
            assert_eq!(
                (conditions.ready, conditions.draining()),
                (expected_ready, expected_draining),
                "{ready:?} {serving:?} {terminating:?}"
            );
            assert_eq!(conditions.answers(), ready != no || serving != no);
        }
    }
}
