//! The addresses of this node, as far as they can be VIPs.

use std::{collections::BTreeSet, io, net::IpAddr};

use nix::ifaddrs::getifaddrs;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::Instant,
};

use super::config::POLL_INTERVAL;
use crate::core::rules::forbidden;

/// Reads the addresses of this node again and again. Each time on a thread of its own, since the
/// kernel lets netlink wait for whoever else is changing devices.
pub(super) struct AddressReader {
    at: Instant,
    reading: Option<JoinHandle<io::Result<BTreeSet<IpAddr>>>>,
}

impl AddressReader {
    /// Reads them after the first [`POLL_INTERVAL`], and then at each.
    pub(super) fn new() -> Self {
        Self { at: Instant::now() + POLL_INTERVAL, reading: None }
    }

    /// Waits for the next time and its result. When this is dropped before, the next call goes on.
    pub(super) async fn next(&mut self) -> io::Result<BTreeSet<IpAddr>> {
        if self.reading.is_none() {
            tokio::time::sleep_until(self.at).await;
        }
        let reading = self.reading.get_or_insert_with(|| spawn_blocking(of_this_node));
        let result = reading.await;
        self.reading = None;
        self.at = Instant::now() + POLL_INTERVAL;
        result.map_err(io::Error::other)?
    }
}

/// The addresses of this network namespace's interfaces that no import may have as a VIP.
pub(crate) fn of_this_node() -> io::Result<BTreeSet<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let v6 = || address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
        Some((interface.interface_name, v4.or_else(v6)?))
    });
    Ok(reserved(addresses))
}

/// The devices on which kube-proxy in IPVS mode and kube-router (`KubeDummyIf`, pkg/controllers/proxy) keep the addresses
/// of Services.
const OF_SERVICES: [&str; 2] = ["kube-ipvs0", "kube-dummy-if"];

/// Omits addresses of Services: a derived Service may have the very ClusterSetIP. Omits addresses that the rules reject on every node too: each pod's interface
/// has a link-local one, and every change of the result is followed by a full round.
fn reserved(addresses: impl Iterator<Item = (String, IpAddr)>) -> BTreeSet<IpAddr> {
    addresses
        .filter(|(interface, ip)| {
            !OF_SERVICES.contains(&interface.as_str()) && forbidden(*ip).is_none()
        })
        .map(|(_, ip)| ip)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: [(&str, &str); 3] =
        [("lo", "127.0.0.1"), ("eth0", "10.0.0.7"), ("eth0", "fe80::7")];

    fn with(added: &[(&str, &str)]) -> BTreeSet<IpAddr> {
        let parse = |(interface, ip): &(&str, &str)| ((*interface).to_owned(), ip.parse().unwrap());
        reserved(NODE.iter().chain(added).map(parse))
    }

    #[test]
    fn only_an_address_that_can_be_a_vip_is_a_change() {
        for (interface, ip, is_change) in [
            ("veth1", "fe80::1", false),
            ("veth1", "169.254.0.1", false),
            ("lo", "::1", false),
            ("kube-ipvs0", "10.96.0.9", false),
            ("kube-dummy-if", "10.96.0.9", false),
            ("eth1", "10.0.0.8", true),
            ("eth0", "2001:db8::8", true),
            ("eth0", "fd00::8", true),
        ] {
            assert_eq!(with(&[(interface, ip)]) != with(&[]), is_change, "{interface} {ip}");
        }
    }

    #[test]
    fn this_nodes_addresses_can_be_vips() {
        assert!(!of_this_node().unwrap().iter().any(|ip| forbidden(*ip).is_some()));
    }
}
