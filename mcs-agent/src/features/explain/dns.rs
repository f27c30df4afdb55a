//! The addresses of an import's name, by the DNS server of a client.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read as _,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use mcs_kube::{
    names,
    program::finding::Finding,
    reach::dns::{self, Answer, RCODE},
    reasons::Code,
};
use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;

use super::{client::run_in, list};
use crate::core::model::ObjectKey;

/// How long the server has for an answer.
const PATIENCE: Duration = Duration::from_secs(4);

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
        let name = names::of(&import.namespace, &import.name);
        let asked = dns::ask(SocketAddr::new(server, dns::PORT), &name, PATIENCE);
        let asked = run_in(None, async { Ok(asked.await?) });
        let Answer { addresses, code } = match asked {
            Ok(answer) => answer,
            Err(error) => {
                let what = format!("the DNS server {server} does not answer {name}: {error}");
                findings.push(Finding::new(Code::DnsSilent, what));
                return Self { name, server, addresses: BTreeSet::new() };
            }
        };
        let own: BTreeSet<IpAddr> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        if addresses.is_empty() {
            let why = match code {
                RCODE::NoError => "it has no address".to_owned(),
                code => format!("{code:?}"),
            };
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
    dns::servers(&text).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_given_stands_in_for_the_clients() {
        let (own, other) = (IpAddr::from([10, 0, 0, 53]), IpAddr::from([10, 96, 0, 10]));
        assert_eq!(server_to_ask(|| Some(own), Some(other), false), Some(own));
        assert_eq!(server_to_ask(|| None, Some(other), false), Some(other));
        assert_eq!(server_to_ask(|| Some(own), None, true), Some(own));
        assert_eq!(server_to_ask(|| Some(own), None, false), None, "nobody asks for a name");
    }
}
