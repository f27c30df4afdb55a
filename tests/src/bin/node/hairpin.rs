//! Clients that are backends of the service they use, and backends on the client's node.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use mcs_tests::{
    client::{self, Family},
    manifests::Protocol,
    suite::Suite,
    topology::pod::{Layout, Pod},
};

use crate::{
    each,
    exchange::{ask_until_known, bulk, greeted},
    world::{TCP, Target, UDP, World},
};

const BYTES: usize = 8_000_000;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "a pod reaches itself", reaches_itself);
    each(suite, &Layout::ALL, "a pod reaches pods of its node", reaches_neighbours);
}

fn reaches_itself(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let pod = world.place.pod(layout)?;
    // A pod takes no packet from its own address.
    reaches(world, pod, pod, &world.own[&layout], family, Seen::Vip)
}

fn reaches_neighbours(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let pod = world.place.pod(layout)?;
    for other in Layout::ALL {
        let peer = world.place.peer(other)?;
        reaches(world, pod, peer, &world.neighbour[&other], family, Seen::Client)
            .with_context(|| format!("the neighbour is {other}"))?;
    }
    Ok(())
}

/// Whose address the backend sees.
#[derive(Clone, Copy)]
enum Seen {
    Client,
    Vip,
}

/// Bulk TCP and datagrams of every size reach `backend`.
fn reaches(
    world: &World,
    pod: &Pod,
    backend: &Pod,
    target: &Target,
    family: Family,
    seen: Seen,
) -> anyhow::Result<()> {
    let (tcp, udp) = (target.tcp(family), target.udp(family));
    let [tcp_backend, udp_backend] =
        [TCP.1, UDP.1].map(|port| family.address(backend.v4(), backend.v6(), port));
    let ports = pod.netns.run(|| {
        let (stream, identity) = greeted(family, tcp)?;
        ensure!(identity == tcp_backend, "{identity} answered instead of {tcp_backend}");
        let tcp_port = stream.local_addr()?.port();
        bulk(&stream, BYTES).context("bulk")?;
        let socket = client::udp(family)?;
        for length in [10, 1_472, 1_473, 30_000] {
            let reply = ask_until_known(&socket, udp, length)?;
            ensure!((reply.backend, reply.source) == (udp_backend, udp), "{length} bytes");
        }
        let udp_port = socket.local_addr()?.port();
        anyhow::Ok([tcp_port, udp_port])
    })??;
    let client = match seen {
        Seen::Client => family.address(pod.v4(), pod.v6(), 0).ip(),
        Seen::Vip => tcp.ip(),
    };
    let servers = [(Protocol::Tcp, tcp_backend), (Protocol::Udp, udp_backend)];
    for ((protocol, backend), port) in servers.into_iter().zip(ports) {
        let came = world.server(protocol, backend)?.seen();
        let expected = SocketAddr::new(client, port);
        ensure!(came.contains(&expected), "{backend} saw {came:?} instead of {expected}");
    }
    Ok(())
}
