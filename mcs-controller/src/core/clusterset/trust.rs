//! Which endpoints of a cluster are rejected: a peer must not draw clients to addresses that are not its pods'.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use mcs_kube::reasons::Rejection;

/// The addresses that endpoints of one cluster can have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndpointRules {
    /// The pod ranges of a peer. Absent for this cluster itself.
    pub pod_ranges: Option<Vec<IpNet>>,
    /// The ranges of this cluster's pods that overlap with `pod_ranges`.
    pub own_pods: Vec<IpNet>,
    /// The ranges of other peers within `pod_ranges`.
    pub other_peers: Vec<IpNet>,
    /// Addresses that no endpoint of a peer can have.
    pub reserved: Reserved,
}

/// Addresses of this cluster that are not of pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reserved {
    /// The VIP ranges, and the ranges of Services.
    pub ranges: Vec<IpNet>,
    /// The API servers.
    pub addresses: BTreeSet<IpAddr>,
    /// The addresses that nodes report, each with the name of a node. There can be thousands.
    pub nodes: Arc<BTreeMap<IpAddr, Arc<str>>>,
}

impl EndpointRules {
    /// Why the address is rejected; none if it is accepted.
    pub fn rejection(&self, address: IpAddr) -> Option<Rejection> {
        // The narrowest range with the address decides whose it is.
        let narrowest = |nets: &[IpNet]| {
            nets.iter().filter(|net| net.contains(&address)).map(IpNet::prefix_len).max()
        };
        if !can_be_a_pod(address) {
            return Some(Rejection::NoPodAddress);
        }
        if narrowest(&self.reserved.ranges).is_some() || self.reserved.addresses.contains(&address)
        {
            return Some(Rejection::Reserved);
        }
        let theirs = self.pod_ranges.as_deref().map(narrowest);
        match theirs {
            Some(None) => return Some(Rejection::OutsidePodRanges),
            // A node reports its own addresses, so they must not override the ranges of a peer.
            None if self.reserved.nodes.contains_key(&address) => return Some(Rejection::Reserved),
            _ => {}
        }
        let theirs = theirs.flatten();
        if narrowest(&self.own_pods).is_some_and(|own| Some(own) >= theirs) {
            return Some(Rejection::OwnPods);
        }
        // A range of two peers belongs to neither.
        (narrowest(&self.other_peers) > theirs).then_some(Rejection::OtherPeer)
    }
}

/// The metadata service of AWS over IPv6. Over IPv4, and elsewhere, it is link-local.
const METADATA: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254));

fn can_be_a_pod(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
        // An IPv4-mapped address would pass the checks of IPv6 and reach an IPv4 address.
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(is_local
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address == METADATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_a_peer_are_its_pods() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a net")).collect();
        let peer = EndpointRules {
            pod_ranges: Some(nets(&["10.2.0.0/16", "fd00::/8", "127.0.0.0/8", "169.254.0.0/16"])),
            own_pods: vec![],
            other_peers: vec![],
            reserved: Reserved {
                ranges: nets(&["10.2.255.0/24"]),
                addresses: ["10.2.0.1".parse().expect("an address")].into(),
                nodes: Arc::new(
                    ["10.2.3.4", "192.0.2.1"]
                        .map(|ip| (ip.parse().expect("an address"), "node-1".into()))
                        .into(),
                ),
            },
        };
        let open = EndpointRules { pod_ranges: None, ..peer.clone() };
        let own = EndpointRules::default();
        for (address, of_peer, of_own) in [
            ("10.2.3.4", None, None),
            ("fd00:2::1", None, None),
            ("10.1.3.4", Some(Rejection::OutsidePodRanges), None),
            ("2001:db8::1", Some(Rejection::OutsidePodRanges), None),
            ("10.2.255.1", Some(Rejection::Reserved), None),
            ("10.2.0.1", Some(Rejection::Reserved), None),
            ("127.0.0.1", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
            ("169.254.169.254", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
            ("fd00:ec2::254", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
            ("fe80::1", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
            ("::ffff:10.2.3.4", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
            ("::1", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
            ("0.0.0.0", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
            ("224.0.0.1", Some(Rejection::NoPodAddress), Some(Rejection::NoPodAddress)),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(peer.rejection(address), of_peer, "{address}");
            assert_eq!(own.rejection(address), of_own, "{address}");
        }
        let of_open = |address: &str| open.rejection(address.parse().expect("an address"));
        assert_eq!(of_open("10.2.3.4"), Some(Rejection::Reserved), "nobody gives the ranges");
        assert_eq!(of_open("10.2.3.5"), None);
    }

    #[test]
    fn an_address_belongs_to_the_narrowest_range() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a net")).collect();
        let rules = |ranges: Option<&[&str]>| EndpointRules {
            pod_ranges: ranges.map(nets),
            own_pods: nets(&["10.2.0.0/16", "10.0.0.0/7"]),
            other_peers: nets(&["10.2.9.0/24", "10.3.0.0/16", "10.9.0.0/16"]),
            ..EndpointRules::default()
        };
        for (ranges, address, rejection) in [
            (&["10.2.0.0/16"][..], "10.2.0.1", Some(Rejection::OwnPods)),
            (&["10.0.0.0/8"], "10.2.0.1", Some(Rejection::OwnPods)),
            (&["10.0.0.0/8"], "10.4.0.1", None),
            (&["10.2.1.0/24"], "10.2.1.1", None),
            (&["10.2.9.0/24"], "10.2.9.1", None),
            (&["10.3.0.0/17", "10.0.0.0/8"], "10.3.0.1", None),
            (&["10.3.0.0/17", "10.0.0.0/8"], "10.3.128.1", Some(Rejection::OtherPeer)),
            (&["10.3.0.0/17"], "10.9.0.1", Some(Rejection::OutsidePodRanges)),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(rules(Some(ranges)).rejection(address), rejection, "{ranges:?} {address}");
        }
        let any = |address: &str| rules(None).rejection(address.parse().expect("an address"));
        assert_eq!(any("10.4.0.1"), Some(Rejection::OwnPods), "a range is narrower than none");
        assert_eq!((any("10.9.0.1"), any("12.0.0.1")), (Some(Rejection::OwnPods), None));
    }
}
