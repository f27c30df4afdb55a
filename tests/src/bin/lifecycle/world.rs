//! What the cases share: a node with a pod, and remote pods behind it.

use mcs_tests::target::REMOTE;

use crate::prelude::*;

pub(crate) use mcs_tests::world::World;

/// The remote pods, as host numbers, by two.
pub(crate) const SETS: [&[u8]; 2] = [&[11, 12], &[13, 14]];

/// The pod.
pub(crate) const POD_ADDRESS: IpAddr = IpAddr::V4(Network::POD.v4(2));
/// One of the remote pods.
pub(crate) const REMOTE_ADDRESS: IpAddr = IpAddr::V4(REMOTE.v4(11));

/// Creates what the cases share.
pub(crate) fn begin(run: Run) -> Result<World> {
    World::of(run)
        .pods(&SETS.concat())
        .endpoints(SETS[0])
        .serving(&[(Server::tcp_echo, TCP.1), (Server::udp, UDP.1)])
        .build()
}

/// Whether a client is in the cgroup of the agent, and so uses the socket path, and its family.
pub(crate) const CLIENTS: [(bool, Family); 4] =
    [(true, Family::V4), (true, Family::V6), (false, Family::V4), (false, Family::V6)];

/// Does it in the pod, for one of the paths.
pub(crate) fn by<T: Send>(
    site: &Site,
    network: &Network,
    sockets: bool,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let _in_cgroup = if sockets { Some(site.cgroup.visit()?) } else { None };
    network.pod.run(work)?
}

/// Lets the pod send packets to the addresses of a service to the node.
pub(crate) fn lead(network: &Network, target: &Target) -> Result {
    Family::ON_WIRE.into_iter().try_for_each(|family| {
        let (vip, via) = (target.tcp(family).ip(), Network::gateway(family));
        network.pod.ip(&format!("route replace {vip} via {via}"))
    })
}

/// Who answers a new client, by TCP and by UDP.
pub(crate) fn answers(target: &Target, family: Family) -> Result<[SocketAddr; 2]> {
    let tcp = identity(&connected(family, target.tcp(family))?)?;
    Ok([tcp, ask(&udp(family)?, target.udp(family))?.backend])
}
