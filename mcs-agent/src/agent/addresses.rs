//! The addresses of this node.

use std::{collections::BTreeSet, io, net::IpAddr, time::Duration};

use nix::ifaddrs::getifaddrs;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::Instant,
};

/// Reads the addresses of this node again and again. Each time on a thread of its own, since the
/// kernel lets netlink wait for whoever else is changing devices.
pub(super) struct AddressReader {
    interval: Duration,
    at: Instant,
    reading: Option<JoinHandle<io::Result<BTreeSet<IpAddr>>>>,
}

impl AddressReader {
    /// Reads them after the first interval, and then at each.
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, at: Instant::now() + interval, reading: None }
    }

    /// Waits for the next time and its result. When this is dropped before, the next call goes on.
    pub(super) async fn next(&mut self) -> io::Result<BTreeSet<IpAddr>> {
        if self.reading.is_none() {
            tokio::time::sleep_until(self.at).await;
        }
        let reading = self.reading.get_or_insert_with(|| spawn_blocking(of_this_node));
        let result = reading.await;
        self.reading = None;
        self.at = Instant::now() + self.interval;
        result.map_err(io::Error::other)?
    }
}

/// The addresses of this network namespace's interfaces, less those that kube-proxy in IPVS mode
/// keeps for Services: a derived Service may have the very ClusterSetIP.
pub(super) fn of_this_node() -> io::Result<BTreeSet<IpAddr>> {
    Ok(getifaddrs()?
        .filter(|interface| interface.interface_name != "kube-ipvs0")
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        })
        .collect())
}
