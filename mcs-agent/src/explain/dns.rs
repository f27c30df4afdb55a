//! The addresses of an import's name, by the DNS server of a client.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use mcs_kube::dns_name;
use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;
use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE, rdata::RData,
};

use super::{
    code::{Code, Finding},
    list,
};
use crate::model::ObjectKey;

/// How long the server has for an answer; it is asked twice.
const PATIENCE: Duration = Duration::from_secs(2);
const PORT: u16 = 53;

/// The answer of a DNS server.
#[derive(Debug, Serialize)]
pub(super) struct DnsView {
    pub(super) name: String,
    pub(super) server: IpAddr,
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl DnsView {
    /// Asks for the addresses of the import, and compares them with its own, `ips`.
    pub(super) fn ask(
        server: IpAddr,
        import: &ObjectKey,
        ips: &[String],
        findings: &mut Vec<Finding>,
    ) -> Self {
        let name = dns_name::of(&import.namespace, &import.name);
        let mut addresses = BTreeSet::new();
        let mut refusal = None;
        for kind in [TYPE::A, TYPE::AAAA] {
            match resolve(server, &name, kind) {
                Ok(Ok(found)) => addresses.extend(found),
                Ok(Err(code)) => refusal = Some(format!("{code:?}")),
                Err(error) => {
                    let what = format!("the DNS server {server} does not answer {name}: {error}");
                    findings.push(Finding::new(Code::DnsSilent, what));
                    return Self { name, server, addresses };
                }
            }
        }
        let own: BTreeSet<IpAddr> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        if addresses.is_empty() {
            let why = refusal.unwrap_or_else(|| "it has no address".to_owned());
            let what = format!("the DNS server {server} resolves {name} to nothing: {why}");
            findings.push(Finding::new(Code::DnsNoName, what));
        } else if !own.is_empty() && !addresses.is_subset(&own) {
            let what = format!(
                "the DNS server {server} resolves {name} to {}; the import has {}",
                list(&addresses),
                list(&own)
            );
            findings.push(Finding::new(Code::DnsOtherAddress, what));
        }
        Self { name, server, addresses }
    }
}

/// The server that the client asks, or else `stand_in`; none if the question has no DNS name and there is no `stand_in`.
pub(super) fn server_to_ask(
    own: impl FnOnce() -> Option<IpAddr>,
    stand_in: Option<IpAddr>,
    is_name: bool,
) -> Option<IpAddr> {
    if is_name || stand_in.is_some() { own().or(stand_in) } else { None }
}

/// The first DNS server that a process asks. The process controls this file, which can be a link or a FIFO.
pub(super) fn server_of(pid: u32) -> Option<IpAddr> {
    const MOST: u64 = 64 << 10;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/{pid}/root/etc/resolv.conf");
    let mut text = String::new();
    let file = File::from(open(path, flags, Mode::empty()).ok()?);
    file.take(MOST).read_to_string(&mut text).ok()?;
    first_server(&text)
}

fn first_server(resolv_conf: &str) -> Option<IpAddr> {
    let servers = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.map(str::trim).find_map(|server| server.parse().ok())
}

/// The addresses of a name, or why the server has none.
fn resolve(server: IpAddr, name: &str, kind: TYPE) -> io::Result<Result<Vec<IpAddr>, RCODE>> {
    let mut query = Packet::new_query(fastrand::u16(..));
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let (qtype, qclass) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    let name = Name::new(name).map_err(io::Error::other)?;
    query.questions.push(Question::new(name, qtype, qclass, false));
    let query = query.build_bytes_vec().map_err(io::Error::other)?;
    let answer = exchange(server, &query).or_else(|_| exchange(server, &query))?;
    let answer = Packet::parse(&answer).map_err(io::Error::other)?;
    if answer.rcode() != RCODE::NoError {
        return Ok(Err(answer.rcode()));
    }
    let addresses = answer.answers.iter().filter_map(|record| match &record.rdata {
        RData::A(found) => Some(Ipv4Addr::from(found.address).into()),
        RData::AAAA(found) => Some(Ipv6Addr::from(found.address).into()),
        _ => None,
    });
    Ok(Ok(addresses.collect()))
}

fn exchange(server: IpAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(SocketAddr::new(server, PORT))?;
    socket.send(query)?;
    let mut answer = vec![0; 4096];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    // The id comes first.
    if answer.get(..2) != query.get(..2) {
        return Err(io::Error::other("an answer to another query"));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_server_that_is_an_address_counts() {
        let text = "search shop.svc.cluster.local\n# nameserver 1.1.1.1\nnameserver 10.96.0.10\nnameserver fd00::a\n";
        assert_eq!(first_server(text), Some(Ipv4Addr::new(10, 96, 0, 10).into()));
        assert_eq!(first_server("options ndots:5\n"), None);
    }

    #[test]
    fn a_server_that_is_given_stands_in_for_the_clients() {
        let (own, other) = (IpAddr::from([10, 0, 0, 53]), IpAddr::from([10, 96, 0, 10]));
        assert_eq!(server_to_ask(|| Some(own), Some(other), false), Some(own));
        assert_eq!(server_to_ask(|| None, Some(other), false), Some(other));
        assert_eq!(server_to_ask(|| Some(own), None, true), Some(own));
        assert_eq!(server_to_ask(|| Some(own), None, false), None, "nobody asks for a name");
    }
}
