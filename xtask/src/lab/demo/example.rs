//! The service, pods and clusters that the manifests in deploy/examples describe.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use mcs_tests::manifests::{Frontends, Protocol};

/// The ServiceImport's namespace and name.
pub(super) const SERVICE: &str = "shop/cart";
/// Its name alone.
pub(super) const NAME: &str = "cart";
/// A port that it does not have.
pub(super) const UNKNOWN_PORT: u16 = 81;

pub(super) const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// The pods behind the service, as its slices list them.
pub(super) const BACKENDS: [Host; 4] = [
    Host { cluster: Cluster::East, name: "cart-1", number: 2 },
    Host { cluster: Cluster::East, name: "cart-2", number: 3 },
    Host { cluster: Cluster::West, name: "cart-1", number: 2 },
    Host { cluster: Cluster::West, name: "cart-2", number: 3 },
];

/// A pod without a server, on the node that has the agent.
pub(super) const CLIENT: Host = Host { cluster: Cluster::East, name: "client", number: 9 };

/// A pod that makes no socket on the node's kernel, as a virtual machine's: here one whose process is
/// in no cgroup that the agent serves.
pub(super) const GUEST: Host = Host { cluster: Cluster::East, name: "guest", number: 10 };

/// The port that clients use.
pub(super) const fn port(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Tcp => 80,
        Protocol::Udp => 9000,
    }
}

/// The port that pods listen on.
pub(super) const fn target_port(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Tcp => 8080,
        Protocol::Udp => 9090,
    }
}

/// Every frontend, with the pods in `backends` behind it.
pub(super) fn frontends(backends: &BTreeSet<Host>) -> Frontends {
    let mut frontends = Frontends::new();
    for protocol in PROTOCOLS {
        for family in Family::ALL {
            let addresses = backends
                .iter()
                .map(|pod| SocketAddr::new(pod.address(family), target_port(protocol)))
                .collect();
            frontends.insert((family.vip(), port(protocol), protocol), addresses);
        }
    }
    frontends
}

/// Everybody's addresses, as lines of text.
pub(super) fn directory() -> String {
    let [east, west] = Cluster::ALL.map(Cluster::node);
    let [east_1, east_2, west_1, west_2] = BACKENDS.map(|pod| (pod, "backend"));
    let hosts = [
        (east, "has the agent"),
        (CLIENT, "a pod"),
        (GUEST, "a pod whose sockets the agent does not see"),
        east_1,
        east_2,
        (west, ""),
        west_1,
        west_2,
    ];
    let line = |name: &str, [v4, v6]: [IpAddr; 2], remark| {
        let line = format!("{name:<14}{:<14}{:<16}{remark}", v4.to_string(), v6.to_string());
        line.trim_end().to_owned() + "\n"
    };
    let hosts = hosts.into_iter().map(|(host, remark)| {
        line(&host.to_string(), Family::ALL.map(|family| host.address(family)), remark)
    });
    let vips = Family::ALL.map(Family::vip);
    hosts.chain([line(SERVICE, vips, "the ClusterSetIP; no node has a route there")]).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The ClusterSetIP.
    pub(super) const fn vip(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(10, 99, 0, 10)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 0x10)),
        }
    }

    /// Every destination, as ip-route(8) takes it.
    pub(super) const fn default(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0/0",
            Self::V6 => "::/0",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Cluster {
    East,
    West,
}

impl Cluster {
    pub(super) const ALL: [Self; 2] = [Self::East, Self::West];

    /// Its id, and the end of its manifest's name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::East => "east",
            Self::West => "west",
        }
    }

    /// The node that all its pods are on.
    pub(super) const fn node(self) -> Host {
        Host { cluster: self, name: "node", number: 1 }
    }

    /// The range of its pods, as ip-route(8) takes it.
    pub(super) fn range(self, family: Family) -> String {
        let (network, length) =
            (self.address(family, 0), if family == Family::V4 { 24 } else { 64 });
        format!("{network}/{length}")
    }

    const fn address(self, family: Family, host: u8) -> IpAddr {
        let number = match self {
            Self::East => 1,
            Self::West => 2,
        };
        match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::new(10, number, 0, host)),
            Family::V6 => {
                IpAddr::V6(Ipv6Addr::new(0xfd00, number as u16, 0, 0, 0, 0, 0, host as u16))
            }
        }
    }
}

/// A node or a pod.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Host {
    pub(super) cluster: Cluster,
    pub(super) name: &'static str,
    number: u8,
}

impl Host {
    pub(super) const fn address(self, family: Family) -> IpAddr {
        self.cluster.address(family, self.number)
    }

    /// What it is called among the things of a run.
    pub(super) fn role(self) -> String {
        format!("{}-{}", self.cluster.name(), self.name)
    }

    /// The backend that says to be `identity`.
    pub(super) fn identified(identity: &str) -> Option<Self> {
        BACKENDS.into_iter().find(|pod| pod.to_string() == identity)
    }
}

/// Also what a backend answers.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster.name(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMPORT: &str = include_str!("../../../../deploy/examples/cart.yaml");
    const EAST: &str = include_str!("../../../../deploy/examples/cart-east.yaml");
    const WEST: &str = include_str!("../../../../deploy/examples/cart-west.yaml");

    #[test]
    fn the_manifests_have_these_addresses_and_ports() {
        for family in Family::ALL {
            assert!(IMPORT.contains(&format!("\"{}\"", family.vip())));
            for pod in BACKENDS {
                let slices = if pod.cluster == Cluster::East { EAST } else { WEST };
                let address = format!("\"{}\"", pod.address(family));
                let mut lines = slices.lines().filter(|line| line.contains(&address));
                let line = lines.next().unwrap_or_else(|| panic!("no {address}"));
                assert!(line.contains(pod.name) && lines.next().is_none(), "{line}");
            }
        }
        for protocol in PROTOCOLS {
            let name = protocol.name();
            assert!(IMPORT.contains(&format!("protocol: {name}, port: {}", port(protocol))));
            let target = format!("protocol: {name}, port: {}", target_port(protocol));
            assert!(EAST.contains(&target) && WEST.contains(&target));
        }
    }
}
