//! What the fields of objects may hold: addresses, names, ports and session affinity.

use std::{
    collections::BTreeSet,
    fmt::Display,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use mcs_kube::reasons::Coded as _;
use sha2::{Digest as _, Sha256};

use crate::core::model::{
    ImportPort, ObjectKey, ObjectRef, Protocol, Rejection, RejectionReason, ServiceImport,
};

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

/// Bytes of a name in the maps. This is the length limit of DNS labels (RFC 1123) and of Kubernetes
/// label values.
const MAX_NAME_BYTES: usize = 63;
/// Hexadecimal digits of the hash in a shortened name: 64 bits.
const HASH_DIGITS: usize = 16;

/// Rejects a namespace or name that is too long for the maps.
pub(super) fn check_names(key: &ObjectKey) -> Result<(), ObjectProblem> {
    check_length("namespace", &key.namespace)?;
    check_length("name", &key.name)
}

fn check_length(what: &str, name: &str) -> Result<(), ObjectProblem> {
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let what = format!("{what} {name:?} has {} bytes; use at most {MAX_NAME_BYTES}", name.len());
    Err(ObjectProblem::new(RejectionReason::NameTooLong, what))
}

/// The name of a source cluster as the maps hold it. A name that is too long becomes its end and a hash of all of
/// it: `locations/l/memberships/east~0123456789abcdef`. Two names do not become the same one.
pub(super) fn cluster_in_maps(name: &Arc<str>) -> Arc<str> {
    if name.len() <= MAX_NAME_BYTES {
        return Arc::clone(name);
    }
    let tail = tail(name, MAX_NAME_BYTES - HASH_DIGITS - 1);
    let hash = Sha256::digest(name.as_bytes());
    let hash = hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    format!("{tail}~{hash:0HASH_DIGITS$x}").into()
}

/// The end of a name, of at most this many bytes. It begins after a slash if there is one.
fn tail(name: &str, bytes: usize) -> &str {
    let fits = |start: usize| name.len() - start <= bytes;
    let after_slash = name.match_indices('/').map(|(at, _)| at + 1);
    let parts = after_slash.filter(|start| fits(*start) && *start < name.len());
    let characters = name.char_indices().map(|(at, _)| at);
    let start = parts.chain(characters.filter(|start| fits(*start))).next();
    start.map_or("", |start| &name[start..])
}

/// A port of an import that can be served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Port {
    /// Empty if unnamed.
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    /// Never 0.
    pub(super) number: u16,
}

/// The valid ports of `spec.ports`, in their order. Each invalid port is rejected alone. If two
/// ports have the same name or number, the later one is rejected.
///
/// The API requires unique names and allows one unnamed port, because slices refer to ports by name.
pub(super) fn ports(declared: &[ImportPort]) -> (Vec<Port>, Vec<ObjectProblem>) {
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let mut ports = Vec::with_capacity(declared.len());
    let mut problems = Vec::new();
    for declared in declared {
        let port = match check_port(declared) {
            Ok(port) => port,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        if names.contains(&port.name) {
            problems.push(invalid_port(
                declared,
                "has the name of an earlier port; name it differently",
            ));
        } else if !numbers.insert((port.number, port.protocol)) {
            problems.push(invalid_port(declared, "is listed twice; remove one"));
        } else {
            names.insert(port.name.clone());
            ports.push(port);
        }
    }
    (ports, problems)
}

/// Reads a protocol; TCP is the API's default. `None`: the programs do not translate it.
pub(super) fn protocol(written: Option<&str>) -> Option<Protocol> {
    match written {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some(_) => None,
    }
}

/// Reads a port number from 1 to 65535.
pub(super) fn port_number(written: i32) -> Option<u16> {
    u16::try_from(written).ok().filter(|number| *number != 0)
}

fn check_port(declared: &ImportPort) -> Result<Port, ObjectProblem> {
    let protocol = protocol(declared.protocol.as_deref()).ok_or_else(|| {
        let what = format!("{}: its protocol is not served", port_text(declared));
        ObjectProblem::advised(RejectionReason::ProtocolUnsupported, what)
    })?;
    let number = port_number(declared.port)
        .ok_or_else(|| invalid_port(declared, "is out of range; use 1 to 65535"))?;
    Ok(Port { name: declared.name.clone(), protocol, number })
}

fn invalid_port(declared: &ImportPort, why: &str) -> ObjectProblem {
    ObjectProblem::new(RejectionReason::PortInvalid, format!("{} {why}", port_text(declared)))
}

fn port_text(declared: &ImportPort) -> String {
    let protocol = declared.protocol.as_deref().unwrap_or("TCP").escape_debug();
    format!("port {:?} {}/{protocol}", declared.name, declared.port)
}

/// Seconds, if the import sets no timeout (`DefaultClientIPServiceAffinitySeconds` of the API).
const DEFAULT_SECONDS: i32 = 10_800;
/// One day (`MaxClientIPServiceAffinitySeconds` of the API).
const MAX_SECONDS: u32 = 86_400;

/// Seconds of ClientIP affinity, 1 to 86400. `None`: no affinity.
pub(super) fn affinity_seconds(import: &ServiceImport) -> Result<Option<u32>, ObjectProblem> {
    match import.session_affinity.as_deref() {
        None | Some("" | "None") => return Ok(None),
        Some("ClientIP") => {}
        Some(other) => {
            let what = format!("sessionAffinity {other:?} is unknown");
            return Err(ObjectProblem::advised(RejectionReason::AffinityInvalid, what));
        }
    }
    let written = import.affinity_timeout_seconds.unwrap_or(DEFAULT_SECONDS);
    match u32::try_from(written) {
        Ok(seconds @ 1..=MAX_SECONDS) => Ok(Some(seconds)),
        _ => Err(ObjectProblem::new(
            RejectionReason::AffinityInvalid,
            format!(
                "sessionAffinityConfig.clientIP.timeoutSeconds {written} is out of range; use 1 to \
                 {MAX_SECONDS}"
            ),
        )),
    }
}

/// A part of an object that cannot be used. The rule knows the value; its caller adds the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObjectProblem {
    pub(crate) reason: RejectionReason,
    /// One complete sentence: the value and what to do.
    pub(crate) message: String,
}

impl ObjectProblem {
    pub(crate) fn new(reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The table of reasons says what to do.
    pub(super) fn advised(reason: RejectionReason, fact: impl Display) -> Self {
        Self::new(reason, format!("{fact}; {}", reason.advice()))
    }

    /// The rejection of this part of `object`.
    pub(super) fn of(self, object: &ObjectRef) -> Rejection {
        Rejection { object: object.clone(), reason: self.reason, message: self.message }
    }
}

/// The rejections of these parts of `object`.
pub(super) fn rejections(
    problems: Vec<ObjectProblem>,
    object: &ObjectRef,
) -> impl Iterator<Item = Rejection> {
    problems.into_iter().map(|problem| problem.of(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{ServiceImport, fixture::import};

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

    #[test]
    fn allows_as_much_as_a_label_has() {
        let fits = "n".repeat(63);
        let long = "n".repeat(64);
        for (namespace, name, part) in [
            (&fits, &fits, None),
            (&long, &fits, Some("namespace \"nnn")),
            (&fits, &long, Some("name \"nnn")),
        ] {
            let result = check_names(&ObjectKey::new(&**namespace, &**name));
            assert_eq!(
                result.as_ref().err().map(|r| r.reason),
                part.map(|_| RejectionReason::NameTooLong)
            );
            if let (Err(problem), Some(part)) = (result, part) {
                assert!(problem.message.starts_with(part), "{}", problem.message);
                assert!(problem.message.contains("64 bytes"), "{}", problem.message);
            }
        }
    }

    #[test]
    fn a_long_cluster_name_becomes_its_end_and_a_hash() {
        let short = |name: &str| cluster_in_maps(&name.into()).to_string();
        let fits = "c".repeat(63);
        assert_eq!(short(&fits), fits);
        let east = "projects/680206487583/locations/us-central1/memberships/east1";
        assert_eq!(short(east), east, "61 bytes");
        for (name, expected) in [
            (format!("{east}-blue"), "locations/us-central1/memberships/east1-blue~"),
            (
                format!("projects/p/{}", "c".repeat(60)),
                "cccccccccccccccccccccccccccccccccccccccccccccc~",
            ),
            (format!("{}/", "c".repeat(70)), "ccccccccccccccccccccccccccccccccccccccccccccc/~"),
            ("é".repeat(32), "ééééééééééééééééééééééé~"),
        ] {
            let found = short(&name);
            let hash = found.strip_prefix(expected).unwrap_or_else(|| panic!("{found}"));
            assert_eq!(hash.len(), HASH_DIGITS);
            assert!(hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{found}");
            assert!(found.len() <= MAX_NAME_BYTES);
            assert_eq!(short(&name), found, "stable");
        }
        let of_project = |project: &str| short(&east.replace("680206487583", project));
        assert_ne!(of_project("680206487583999"), of_project("680206487584999"), "equal ends");
        assert_eq!(
            short(&format!("{east}-blue")),
            "locations/us-central1/memberships/east1-blue~30728bad44edb85a",
            "the name in maps of other versions"
        );
    }

    fn port(name: &str, number: u16, protocol: Protocol) -> Port {
        Port { name: name.to_owned(), protocol, number }
    }

    #[test]
    fn each_port_is_rejected_alone() {
        let web = || import("shop/web").port("http", 80);
        let http = || port("http", 80, Protocol::Tcp);
        let cases: [(ServiceImport, Vec<Port>, Vec<RejectionReason>); 11] = [
            (web(), vec![http()], vec![]),
            (
                web().port_of("dns", 53, Some("UDP")).port_of("dns-tcp", 53, Some("TCP")),
                vec![http(), port("dns", 53, Protocol::Udp), port("dns-tcp", 53, Protocol::Tcp)],
                vec![],
            ),
            (web().port("", 65535), vec![http(), port("", 65535, Protocol::Tcp)], vec![]),
            (
                web().port_of("x", 1, Some("SCTP")),
                vec![http()],
                vec![RejectionReason::ProtocolUnsupported],
            ),
            (
                web().port_of("x", 1, Some("tcp")),
                vec![http()],
                vec![RejectionReason::ProtocolUnsupported],
            ),
            (web().port("zero", 0), vec![http()], vec![RejectionReason::PortInvalid]),
            (web().port("big", 65536), vec![http()], vec![RejectionReason::PortInvalid]),
            (web().port("negative", -80), vec![http()], vec![RejectionReason::PortInvalid]),
            (web().port("again", 80), vec![http()], vec![RejectionReason::PortInvalid]),
            (
                web().port_of("http", 80, Some("UDP")),
                vec![http()],
                vec![RejectionReason::PortInvalid],
            ),
            (
                import("shop/web").port("", 80).port("", 81),
                vec![port("", 80, Protocol::Tcp)],
                vec![RejectionReason::PortInvalid],
            ),
        ];
        for (import, expected, reasons) in cases {
            let (ports, problems) = ports(&import.ports);
            assert_eq!(ports, expected, "{:?}", import.ports);
            assert_eq!(problems.iter().map(|r| r.reason).collect::<Vec<_>>(), reasons);
        }
    }

    #[test]
    fn a_rejected_port_takes_neither_name_nor_number() {
        let import = import("shop/web")
            .port_of("http", 80, Some("SCTP"))
            .port("http", 80)
            .port("http", 81)
            .port("alt", 81);
        let (ports, problems) = ports(&import.ports);
        assert_eq!(ports, [port("http", 80, Protocol::Tcp), port("alt", 81, Protocol::Tcp)]);
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn a_problem_names_port_and_remedy() {
        for (import, message) in [
            (
                import("shop/web").port_of("s", 42, Some("SCTP")),
                "port \"s\" 42/SCTP: its protocol is not served; use TCP or UDP",
            ),
            (import("shop/web").port("", 0), "port \"\" 0/TCP is out of range; use 1 to 65535"),
            (
                import("shop/web").port("a", 1).port("b", 1),
                "port \"b\" 1/TCP is listed twice; remove one",
            ),
        ] {
            assert_eq!(ports(&import.ports).1[0].message, message);
        }
    }

    #[test]
    fn reads_affinity_and_timeout() {
        for (affinity, timeout, expected) in [
            (None, None, Ok(None)),
            (Some(""), None, Ok(None)),
            (Some("None"), Some(10), Ok(None)),
            (Some("None"), Some(-1), Ok(None)),
            (Some("ClientIP"), None, Ok(Some(10_800))),
            (Some("ClientIP"), Some(1), Ok(Some(1))),
            (Some("ClientIP"), Some(86_400), Ok(Some(86_400))),
            (Some("ClientIP"), Some(0), Err("timeoutSeconds 0 ")),
            (Some("ClientIP"), Some(-5), Err("timeoutSeconds -5 ")),
            (Some("ClientIP"), Some(86_401), Err("timeoutSeconds 86401 ")),
            (Some("clientip"), None, Err("sessionAffinity \"clientip\"")),
        ] {
            let import = ServiceImport {
                session_affinity: affinity.map(str::to_owned),
                affinity_timeout_seconds: timeout,
                ..import("shop/web")
            };
            match (affinity_seconds(&import), expected) {
                (Ok(seconds), Ok(expected)) => assert_eq!(seconds, expected, "{affinity:?}"),
                (Err(problem), Err(part)) => {
                    assert_eq!(problem.reason, RejectionReason::AffinityInvalid);
                    assert!(problem.message.contains(part), "{}", problem.message);
                }
                (got, _) => panic!("{affinity:?} {timeout:?}: {got:?}"),
            }
        }
    }
}
