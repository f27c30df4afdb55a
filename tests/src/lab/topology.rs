//! Network namespaces of a node and of the hosts that are linked to it.

use std::{
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::Context as _;

use crate::{netns::Namespace, procfs, run::Run};

#[cfg(feature = "suites")]
pub mod backbone;
#[cfg(feature = "suites")]
pub mod network;
#[cfg(feature = "suites")]
pub mod place;
#[cfg(feature = "suites")]
pub mod pod;

/// Names a link's two subnets, 10.77.N.0/24 and `fd77:0:0:N::/64`. Host 1 is the node.
#[derive(Clone, Copy, Debug)]
pub struct Subnet(pub u8);

impl Subnet {
    /// An IPv4 address.
    pub const fn v4(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.0, host)
    }

    /// The IPv6 address of the same host.
    pub const fn v6(self, host: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0, 0, self.0 as u16, 0, 0, 0, host as u16)
    }

    /// Both addresses of the host.
    pub fn both(self, host: u8) -> [IpAddr; 2] {
        [self.v4(host).into(), self.v6(host).into()]
    }
}

/// The namespace of a node, which routes between the namespaces linked to it. Nothing in there leads
/// out of the machine.
#[derive(Debug)]
pub struct Node {
    /// Where the agent and the host's processes run.
    pub netns: Namespace,
}

impl Node {
    /// A node without links.
    pub fn create(run: &Run) -> anyhow::Result<Self> {
        Self::named(run, "node")
    }

    /// A node without links, when there are several.
    pub fn named(run: &Run, role: &str) -> anyhow::Result<Self> {
        Ok(Self { netns: Namespace::router(run, role)? })
    }

    /// How many redirects it has sent, ICMP and ICMPv6.
    pub fn redirects(&self) -> anyhow::Result<u64> {
        let v4 = || procfs::network_counter("snmp", "Icmp", "OutRedirects");
        let v6 = || fs::read_to_string("/proc/thread-self/net/snmp6");
        let (v4, v6) = self.netns.run(|| (v4(), v6()))?;
        let v6 = v6?;
        let mut v6 = v6.lines().filter_map(|line| line.split_once(char::is_whitespace));
        let v6 = v6.find(|(name, _)| *name == "Icmp6OutRedirects");
        let (_, v6) = v6.context("the kernel counts no redirects")?;
        Ok(v4? + v6.trim().parse::<u64>()?)
    }

    /// Makes a namespace that is linked to the node, with one interface and an address of each
    /// family for each host. It reaches all other subnets.
    pub fn link(
        &self,
        run: &Run,
        role: &str,
        subnet: Subnet,
        hosts: &[u8],
    ) -> anyhow::Result<Namespace> {
        self.link_by(run, role, role, subnet, hosts)
    }

    /// The same, by the node's interface `device`.
    pub fn link_by(
        &self,
        run: &Run,
        role: &str,
        device: &str,
        subnet: Subnet,
        hosts: &[u8],
    ) -> anyhow::Result<Namespace> {
        let leaf = Namespace::create(run, role)?;
        let peer = leaf.name();
        self.netns.ip(&format!(
            "link add {device} type veth peer name eth0 netns {peer}\n\
             address add {v4}/24 dev {device}\n\
             address add {v6}/64 dev {device} nodad\n\
             link set {device} up\n",
            v4 = subnet.v4(1),
            v6 = subnet.v6(1),
        ))?;
        let mut commands = String::new();
        for host in hosts {
            let (v4, v6) = (subnet.v4(*host), subnet.v6(*host));
            writeln!(commands, "address add {v4}/24 dev eth0")?;
            writeln!(commands, "address add {v6}/64 dev eth0 nodad")?;
        }
        writeln!(commands, "link set eth0 up")?;
        writeln!(commands, "route add 10.77.0.0/16 via {}", subnet.v4(1))?;
        writeln!(commands, "route add fd77::/32 via {}", subnet.v6(1))?;
        leaf.ip(&commands)?;
        Ok(leaf)
    }
}
