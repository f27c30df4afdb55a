//! The ports of an import.

use std::collections::BTreeSet;

use super::problem::ObjectProblem;
use crate::core::model::{ImportPort, Protocol, RejectionReason};

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
        let port = match check(declared) {
            Ok(port) => port,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        if names.contains(&port.name) {
            problems
                .push(invalid(declared, "has the name of an earlier port; name it differently"));
        } else if !numbers.insert((port.number, port.protocol)) {
            problems.push(invalid(declared, "is listed twice; remove one"));
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
pub(super) fn number(written: i32) -> Option<u16> {
    u16::try_from(written).ok().filter(|number| *number != 0)
}

fn check(declared: &ImportPort) -> Result<Port, ObjectProblem> {
    let protocol = protocol(declared.protocol.as_deref()).ok_or_else(|| {
        let what = format!("{}: its protocol is not served", describe(declared));
        ObjectProblem::advised(RejectionReason::ProtocolUnsupported, what)
    })?;
    let number = number(declared.port)
        .ok_or_else(|| invalid(declared, "is out of range; use 1 to 65535"))?;
    Ok(Port { name: declared.name.clone(), protocol, number })
}

fn invalid(declared: &ImportPort, why: &str) -> ObjectProblem {
    ObjectProblem::new(RejectionReason::PortInvalid, format!("{} {why}", describe(declared)))
}

fn describe(declared: &ImportPort) -> String {
    let protocol = declared.protocol.as_deref().unwrap_or("TCP").escape_debug();
    format!("port {:?} {}/{protocol}", declared.name, declared.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{ServiceImport, fixture::import};

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
}
