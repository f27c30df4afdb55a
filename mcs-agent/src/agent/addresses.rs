//! The addresses of this node.

use std::{collections::BTreeSet, io, net::IpAddr};

use nix::ifaddrs::getifaddrs;

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
