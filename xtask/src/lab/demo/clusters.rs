//! Two clusters of network namespaces with flat routing between their pods.

use std::{fmt::Write as _, net::SocketAddr};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::{netns::Namespace, run::Run, wait};

use super::{
    client,
    example::{self, BACKENDS, CLIENT, Cluster, Family, GUEST, Host, PROTOCOLS},
    pod::Pod,
};

/// A node for each cluster, its pods behind it, and a link between the nodes. There is a route to
/// each range of pods and no other, so that nothing leads to a ClusterSetIP. The guest alone has a
/// default route, to its node: its packets have to get there to be translated.
pub(super) struct Clusters {
    pods: Vec<Pod>,
    pub(super) client: Namespace,
    pub(super) guest: Namespace,
    /// The node of [`Cluster::East`], which the agent serves.
    pub(super) node: Namespace,
    _remote_node: Namespace,
}

impl Clusters {
    /// Makes the namespaces and starts the pods.
    pub(super) fn create(run: &Run) -> Result<Self> {
        let node = create_node(run, Cluster::East)?;
        let remote_node = create_node(run, Cluster::West)?;
        link(
            &End { netns: &node, host: Cluster::East.node(), reaches: &[Cluster::West] },
            &End { netns: &remote_node, host: Cluster::West.node(), reaches: &[Cluster::East] },
        )?;
        let link_pod = |netns: &Namespace, host: Host| {
            let node = if host.cluster == Cluster::East { &node } else { &remote_node };
            link(
                &End { netns: node, host: host.cluster.node(), reaches: &[] },
                &End { netns, host, reaches: &Cluster::ALL },
            )
        };
        let client = Namespace::create(run, &CLIENT.role())?;
        link_pod(&client, CLIENT)?;
        let guest = Namespace::create(run, &GUEST.role())?;
        link_pod(&guest, GUEST)?;
        for family in Family::ALL {
            let via = Cluster::East.node();
            let (gateway, device) = (via.address(family), via.role());
            guest
                .ip(&format!("route add {} via {gateway} dev {device} onlink", family.default()))?;
        }
        let mut pods = Vec::new();
        for host in BACKENDS {
            let pod = Pod::create(run, host)?;
            link_pod(&pod.netns, host)?;
            pod.start(run)?;
            pods.push(pod);
        }
        Ok(Self { pods, client, guest, node, _remote_node: remote_node })
    }

    /// The pod that is this host.
    pub(super) fn pod(&self, host: Host) -> Result<&Pod> {
        let pod = self.pods.iter().find(|pod| pod.host == host);
        pod.with_context(|| format!("there is no {host}"))
    }

    /// Waits until every pod answers at its own addresses, also across clusters.
    pub(super) fn wait_for_pods(&self) -> Result<()> {
        for host in BACKENDS {
            for family in Family::ALL {
                self.wait_for_pod(host, family)?;
            }
        }
        Ok(())
    }

    fn wait_for_pod(&self, host: Host, family: Family) -> Result<()> {
        wait::until(&format!("{host} to answer the client"), || {
            for protocol in PROTOCOLS {
                let port = example::target_port(protocol);
                let address = SocketAddr::new(host.address(family), port);
                let answer = self.client.run(|| client::ask(protocol, address))??;
                ensure!(answer == host, "{address} is {answer}");
            }
            Ok(())
        })
    }
}

fn create_node(run: &Run, cluster: Cluster) -> Result<Namespace> {
    let netns = Namespace::create(run, &cluster.node().role())?;
    netns.sysctl("ipv4/ip_forward", "1")?;
    netns.sysctl("ipv6/conf/all/forwarding", "1")?;
    Ok(netns)
}

/// One end of a link.
struct End<'a> {
    netns: &'a Namespace,
    host: Host,
    /// The clusters whose pods are reached through the link.
    reaches: &'a [Cluster],
}

/// Links two namespaces by one interface each, named after the other end.
fn link(a: &End<'_>, b: &End<'_>) -> Result<()> {
    a.netns.ip(&format!(
        "link add {} type veth peer name {} netns {}",
        b.host.role(),
        a.host.role(),
        b.netns.name()
    ))?;
    a.netns.ip(&a.configuration(b.host)?)?;
    b.netns.ip(&b.configuration(a.host)?)
}

impl End<'_> {
    /// What makes the interface towards `peer`, as ip-batch reads it. No address has a subnet:
    /// everything is routed.
    fn configuration(&self, peer: Host) -> Result<String> {
        let device = peer.role();
        let mut commands = format!("link set {device} up\n");
        for family in Family::ALL {
            let (own, peer) = (self.host.address(family), peer.address(family));
            writeln!(commands, "address add {own} dev {device}")?;
            writeln!(commands, "route add {peer} dev {device}")?;
            for cluster in self.reaches {
                let range = cluster.range(family);
                writeln!(commands, "route add {range} via {peer} dev {device} onlink")?;
            }
        }
        Ok(commands)
    }
}
