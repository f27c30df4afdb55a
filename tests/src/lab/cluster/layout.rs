//! Names and addresses of clusters, nodes and pods.

use std::{
    ffi::OsStr,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::cgroup;

/// Where the state of every set lies: gone after a reboot, as all else of the clusters is.
const STATE: &str = "/run";

/// The gateway of every node, which leads nowhere, and this machine, among the hosts of the wide
/// area network.
const GATEWAY: u8 = 1;
const MACHINE: u8 = 254;

/// The port of every API server.
pub(super) const API_SERVER_PORT: u16 = 6443;

/// Clusters with flat routing between their pods.
///
/// With base 180 the wide area network is 10.180.0.0/24 and `fd00:180::/64`. Cluster C has its
/// pods in 10.(180+C).0.0/17 and `fd00:180:C::/48`, those of node N in 10.(180+C).N.0/24 and
/// `fd00:180:C:N::/64`, and its Services in 10.(180+C).128.0/17 and `fd00:180:10C::/112`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterSet {
    name: &'static str,
    command: &'static str,
    v4_base: u8,
    v6_base: u16,
}

impl ClusterSet {
    /// The one of `cargo xtask clusters`.
    pub const DEVELOPMENT: Self = Self {
        name: "mcs-clusters",
        command: "cargo xtask clusters",
        v4_base: 180,
        v6_base: 0x180,
    };

    /// The one of the end-to-end suite.
    pub const TESTS: Self = Self {
        name: "mcs-e2e",
        command: "cargo xtask clusters --set tests",
        v4_base: 190,
        v6_base: 0x190,
    };

    /// The one of the suite of CNIs.
    pub const CNIS: Self = Self {
        name: "mcs-cni",
        command: "cargo xtask clusters --set cnis",
        v4_base: 210,
        v6_base: 0x210,
    };

    /// Every set.
    pub(super) const ALL: [Self; 3] = [Self::DEVELOPMENT, Self::TESTS, Self::CNIS];

    /// One that nobody starts.
    #[cfg(test)]
    pub(super) const UNIT_TEST: Self =
        Self { name: "mcs-unit-test", command: "", v4_base: 200, v6_base: 0x200 };

    /// The most clusters of a set, and the most nodes of a cluster.
    pub const MOST: u8 = 9;

    /// What all names begin with. Names of interfaces, which have 15 bytes at most, begin with it too.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// What people run to look at it and to remove it.
    pub const fn command(self) -> &'static str {
        self.command
    }

    /// Where its state lies.
    pub fn directory(self) -> PathBuf {
        Path::new(STATE).join(self.name)
    }

    /// The first `count` clusters.
    pub fn clusters(self, count: u8) -> impl Iterator<Item = Cluster> {
        (1..=count).map(move |number| Cluster { set: self, number })
    }

    /// The network namespace that links all others.
    pub fn wan(self) -> String {
        format!("{}-wan", self.name)
    }

    pub(super) const fn gateway(self) -> [IpAddr; 2] {
        self.wan_host(GATEWAY)
    }

    /// The addresses of this machine's own network namespace.
    pub(super) const fn machine(self) -> [IpAddr; 2] {
        self.wan_host(MACHINE)
    }

    const fn wan_host(self, host: u8) -> [IpAddr; 2] {
        [
            IpAddr::V4(Ipv4Addr::new(10, self.v4_base, 0, host)),
            IpAddr::V6(Ipv6Addr::new(0xfd00, self.v6_base, 0, 0, 0, 0, 0, host as u16)),
        ]
    }
}

/// One cluster of a set, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// Where it belongs.
    pub set: ClusterSet,
    /// Its number there, at most [`ClusterSet::MOST`].
    pub number: u8,
}

/// Its id in the ClusterSet, and the name of its context in the kubeconfig.
impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.number)
    }
}

impl Cluster {
    /// The kubeconfig of its administrator.
    pub fn kubeconfig(self) -> PathBuf {
        self.directory().join("kubeconfig")
    }

    /// Where its state and its logs (`*.log`) lie.
    pub fn directory(self) -> PathBuf {
        self.set.directory().join(self.to_string())
    }

    /// The first `count` nodes.
    pub fn nodes(self, count: u8) -> impl Iterator<Item = Node> {
        (1..=count).map(move |number| Node { cluster: self, number })
    }

    /// The network namespace of the control plane.
    pub fn netns(self) -> String {
        format!("{}-{self}", self.set.name)
    }

    /// The addresses of the control plane.
    pub const fn addresses(self) -> [IpAddr; 2] {
        self.set.wan_host(10 * self.number)
    }

    /// Where its API server listens.
    pub const fn api_server(self) -> SocketAddr {
        let [v4, _] = self.addresses();
        SocketAddr::new(v4, API_SERVER_PORT)
    }

    /// The addresses of all its pods.
    pub fn pods(self) -> [IpNet; 2] {
        [self.v4(0, 0, 17), self.v6(self.number.into(), 0, 0, 48)]
    }

    /// The addresses of its Services.
    pub fn services(self) -> [IpNet; 2] {
        self.service(0)
    }

    /// The ClusterIPs of its DNS.
    pub fn dns(self) -> [IpAddr; 2] {
        self.service(10).map(|net| net.addr())
    }

    /// The ClusterIPs that its API server takes by itself.
    pub fn kubernetes(self) -> [IpAddr; 2] {
        self.service(1).map(|net| net.addr())
    }

    fn service(self, host: u8) -> [IpNet; 2] {
        [self.v4(128, host, 17), self.v6(0x100 + u16::from(self.number), 0, host, 112)]
    }

    const fn v4(self, third: u8, host: u8, length: u8) -> IpNet {
        let address = Ipv4Addr::new(10, self.set.v4_base + self.number, third, host);
        IpNet::V4(Ipv4Net::new_assert(address, length))
    }

    const fn v6(self, third: u16, fourth: u16, host: u8, length: u8) -> IpNet {
        let base = self.set.v6_base;
        let address = Ipv6Addr::new(0xfd00, base, third, fourth, 0, 0, 0, host as u16);
        IpNet::V6(Ipv6Net::new_assert(address, length))
    }
}

/// One node of a cluster, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Where it belongs.
    pub cluster: Cluster,
    /// Its number there, at most [`ClusterSet::MOST`].
    pub number: u8,
}

/// Its name in the cluster.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-node{}", self.cluster, self.number)
    }
}

impl Node {
    /// Where its state and its logs (`*.log`) lie.
    pub fn directory(self) -> PathBuf {
        self.cluster.set.directory().join(self.to_string())
    }

    /// Its network namespace.
    pub fn netns(self) -> String {
        format!("{}-{self}", self.cluster.set.name)
    }

    /// Its cgroup of version 2, which all its processes are in or below.
    pub fn cgroup(self) -> anyhow::Result<PathBuf> {
        Ok(cgroup::mount_point()?.join(self.cluster.set.name).join(self.to_string()))
    }

    /// A command that will run as a process of the node.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.entrance());
        command.arg(program);
        command
    }

    /// The script that this takes.
    pub(super) fn entrance(self) -> PathBuf {
        self.directory().join("enter")
    }

    /// The zone that its label says it is in: nodes with an odd number are in one, the others in
    /// another, in every cluster.
    pub const fn zone(self) -> &'static str {
        if self.number % 2 == 1 { "a" } else { "b" }
    }

    /// Its addresses.
    pub const fn addresses(self) -> [IpAddr; 2] {
        self.cluster.set.wan_host(10 * self.cluster.number + self.number)
    }

    /// The addresses of its pods.
    pub fn pods(self) -> [IpNet; 2] {
        self.among_pods(0)
    }

    /// The gateway of its pods, with the length of the range.
    pub(super) fn gateway(self) -> [IpNet; 2] {
        self.among_pods(1)
    }

    fn among_pods(self, host: u8) -> [IpNet; 2] {
        let cluster = self.cluster;
        let fourth = self.number.into();
        [cluster.v4(self.number, host, 24), cluster.v6(cluster.number.into(), fourth, host, 64)]
    }
}

/// `v4,v6`, as the flags of Kubernetes take them.
pub(super) fn list(both: impl IntoIterator<Item = impl ToString>) -> String {
    both.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_apart_and_contain_what_belongs_there() {
        let wans = ["10.180.0.0/24", "10.190.0.0/24", "10.210.0.0/24"].into_iter();
        let wans = wans.chain(["fd00:180::/64", "fd00:190::/64", "fd00:210::/64"]);
        let wans: Vec<IpNet> = wans.map(|range| range.parse().unwrap()).collect();
        let mut ranges = wans.clone();
        for cluster in ClusterSet::ALL.into_iter().flat_map(|set| set.clusters(ClusterSet::MOST)) {
            for family in [0, 1] {
                let wan = |address: &IpAddr| wans.iter().any(|range| range.contains(address));
                assert!(wan(&cluster.addresses()[family]));
                assert!(cluster.services()[family].contains(&cluster.dns()[family]));
                for node in cluster.nodes(ClusterSet::MOST) {
                    assert!(wan(&node.addresses()[family]));
                    assert!(cluster.pods()[family].contains(&node.pods()[family]));
                }
            }
            ranges.extend(cluster.pods().into_iter().chain(cluster.services()));
        }
        for (index, range) in ranges.iter().enumerate() {
            assert_eq!(*range, range.trunc());
            let overlaps = |other: &&IpNet| other.contains(range) || range.contains(*other);
            assert_eq!(ranges[..index].iter().find(overlaps), None, "{range}");
        }
    }

    #[test]
    fn names_and_addresses_are_as_documented() {
        let cluster = Cluster { set: ClusterSet::DEVELOPMENT, number: 2 };
        let node = Node { cluster, number: 3 };
        assert_eq!(list(cluster.pods()), "10.182.0.0/17,fd00:180:2::/48");
        assert_eq!(list(cluster.services()), "10.182.128.0/17,fd00:180:102::/112");
        assert_eq!(list(cluster.dns()), "10.182.128.10,fd00:180:102::a");
        assert_eq!(list(node.addresses()), "10.180.0.23,fd00:180::17");
        assert_eq!(list(node.pods()), "10.182.3.0/24,fd00:180:2:3::/64");
        assert_eq!(node.netns(), "mcs-clusters-c2-node3");
        assert_eq!(node.directory(), Path::new("/run/mcs-clusters/c2-node3"));
    }
}
