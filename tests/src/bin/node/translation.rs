//! TCP and UDP through a VIP.

use std::collections::BTreeSet;

use anyhow::ensure;
use mcs_tests::{
    client::{self, Family, ask},
    manifests::Protocol,
    suite::Suite,
    topology::{backbone::Distance, pod::Layout},
};

use crate::{
    each,
    exchange::{ask_until_known, bulk, greeted},
    world::{TCP, UDP, World, backends},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "TCP", connects);
    each(suite, &Layout::ALL, "UDP", sends);
    each(suite, &Layout::ALL, "connections spread over all backends", spreads);
    each(suite, &Layout::ALL, "datagrams near the MTU and above", sends_large);
    each(suite, &Layout::ALL, "datagrams across a narrow hop", crosses);
}

fn connects(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let vip = world.web.tcp(family);
    let (client, backend) = world.place.pod(layout)?.netns.run(|| {
        let (stream, backend) = greeted(family, vip)?;
        let client = stream.local_addr()?;
        bulk(&stream, 100_000)?;
        anyhow::Ok((client, backend))
    })??;
    check(world, family, Protocol::Tcp, client, backend)
}

fn sends(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let vip = world.web.udp(family);
    let (client, backend) = world.place.pod(layout)?.netns.run(|| {
        let socket = client::udp_connected(family, vip)?;
        let reply = ask_until_known(&socket, vip, 10)?;
        ensure!(reply.source == vip, "{} is shown", reply.source);
        let client = socket.local_addr()?;
        let unconnected = client::udp(family)?;
        for _ in 0..3 {
            let first = ask(&unconnected, vip)?;
            ensure!(first.source == vip, "{} is shown", first.source);
        }
        anyhow::Ok((client, reply.backend))
    })??;
    check(world, family, Protocol::Udp, client, backend)
}

/// The backend is one of `web`, and it saw the client's own address.
fn check(
    world: &World,
    family: Family,
    protocol: Protocol,
    client: std::net::SocketAddr,
    backend: std::net::SocketAddr,
) -> anyhow::Result<()> {
    let port = if protocol == Protocol::Tcp { TCP.1 } else { UDP.1 };
    let expected = backends(Distance::Near, World::WEB, family, port);
    ensure!(expected.contains(&backend), "{backend} is not of web");
    let seen = world.server(protocol, backend)?.seen();
    ensure!(seen.contains(&client), "{backend} saw {seen:?} instead of {client}");
    Ok(())
}

fn spreads(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let seen = world.place.pod(layout)?.netns.run(|| {
        let mut seen = BTreeSet::new();
        for _ in 0..60 {
            seen.insert(greeted(family, world.web.tcp(family))?.1);
            seen.insert(ask(&client::udp(family)?, world.web.udp(family))?.backend);
        }
        anyhow::Ok(seen)
    })??;
    let mut expected = backends(Distance::Near, World::WEB, family, TCP.1);
    expected.extend(backends(Distance::Near, World::WEB, family, UDP.1));
    ensure!(seen == expected, "only {seen:?}");
    Ok(())
}

/// Fragments both ways.
fn sends_large(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let vip = world.web.udp(family);
    world.place.pod(layout)?.netns.run(|| {
        let socket = client::udp(family)?;
        for length in [1_400, 1_451, 1_452, 1_453, 1_471, 1_472, 1_473, 2_900, 9_000, 65_000] {
            let reply = ask_until_known(&socket, vip, length)?;
            ensure!(reply.source == vip, "{} is shown", reply.source);
        }
        anyhow::Ok(())
    })?
}

/// The sizes that the hop takes, those that it has to say it does not take, and fragments.
fn crosses(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let pod = world.place.pod(layout)?;
    world.backbone.forget_mtus()?;
    pod.netns.forget_mtus()?;
    let vip = world.far.udp(family);
    pod.netns.run(|| {
        let socket = client::udp(family)?;
        for length in [1_200, 1_232, 1_252, 1_253, 1_400, 1_472, 1_473, 4_000, 60_000] {
            let reply = ask_until_known(&socket, vip, length)?;
            ensure!(reply.source == vip, "{} is shown", reply.source);
        }
        anyhow::Ok(())
    })?
}
