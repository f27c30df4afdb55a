//! A node with a pod for clients, and remote pods that answer.

use super::{Node, Subnet};
use crate::{
    prelude::*,
    server::{Serve, Servers},
    target::REMOTE,
};

/// A node, a pod and remote pods, each in a namespace.
// They have to be removed in this order.
pub struct Network {
    /// The servers of the remote pods.
    pub servers: Servers,
    /// A pod for clients: host 2 of [`Network::POD`].
    pub pod: Namespace,
    /// All remote pods.
    pub remote: Namespace,
    /// The node. Its interface `pod` leads to the pod.
    pub node: Node,
}

impl Network {
    /// Where the pod is.
    pub const POD: Subnet = Subnet(1);

    /// Makes the network of a run that has one.
    pub fn create(run: &Run, remote: &[u8], serve: &[Serve]) -> Result<Self> {
        Self::named(run, "", remote, serve)
    }

    /// Makes one of several networks. `remote`: the remote pods, as hosts of [`REMOTE`], each of which has the servers `serve`.
    pub fn named(run: &Run, prefix: &str, remote: &[u8], serve: &[Serve]) -> Result<Self> {
        let name = |role: &str| format!("{prefix}{role}");
        let node = Node::named(run, &name("node"))?;
        let pod = node.link_by(run, &name("pod"), "pod", Self::POD, &[2])?;
        let ips = remote.iter().flat_map(|pod| REMOTE.both(*pod));
        let remote = node.link_by(run, &name("remote"), "remote", REMOTE, remote)?;
        Ok(Self { servers: Servers::start(&remote, ips, serve)?, pod, remote, node })
    }

    /// All its namespaces.
    pub fn namespaces(&self) -> [&Namespace; 3] {
        [&self.node.netns, &self.pod, &self.remote]
    }

    /// The node, as the pod sees it.
    pub fn gateway(family: Family) -> IpAddr {
        family.address(Self::POD.v4(1), Self::POD.v6(1), 0).ip()
    }
}
