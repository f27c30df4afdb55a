//! TCP and UDP through a VIP.

use nix::sys::socket::{setsockopt, sockopt};

use crate::{exchange::echoed, prelude::*};

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "TCP", connects);
    each(suite, &Layout::ALL, "UDP", sends);
    each(suite, &Layout::ALL, "connections spread over all backends", spreads);
    each(suite, &Layout::ALL, "datagrams near the MTU and above", sends_large);
    each(suite, &Layout::ALL, "datagrams across a narrow hop", crosses);
    each(suite, &Layout::ALL, "datagrams cut into segments by the device", sends_segments);
    each(suite, &Layout::ALL, "two VIPs with one backend, one source port", stay_separate);
    each(suite, &Layout::CNI, "session affinity", keeps_backend);
}

fn connects(world: &World, layout: Layout, family: Family) -> Result {
    let vip = world.web.tcp(family);
    let (client, backend) = world.place.pod(layout)?.netns.run(|| {
        let (stream, backend) = greeted(family, vip)?;
        let client = stream.local_addr()?;
        bulk(&stream, 100_000)?;
        anyhow::Ok((client, backend))
    })??;
    check(world, family, Protocol::Tcp, client, backend)
}

fn sends(world: &World, layout: Layout, family: Family) -> Result {
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
    client: SocketAddr,
    backend: SocketAddr,
) -> Result {
    let port = if protocol == Protocol::Tcp { TCP.1 } else { UDP.1 };
    let expected = backends(Distance::Near, World::WEB, family, port);
    ensure!(expected.contains(&backend), "{backend} is not of web");
    let seen = world.server(protocol, backend)?.seen();
    ensure!(seen.contains(&client), "{backend} saw {seen:?} instead of {client}");
    Ok(())
}

fn spreads(world: &World, layout: Layout, family: Family) -> Result {
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
fn sends_large(world: &World, layout: Layout, family: Family) -> Result {
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

/// Sizes up to the MTU of the hop, larger sizes that the hop answers with an error, and fragments.
fn crosses(world: &World, layout: Layout, family: Family) -> Result {
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

/// `UDP_SEGMENT`: what a socket sends at once is cut later than we see it.
fn sends_segments(world: &World, layout: Layout, family: Family) -> Result {
    const SEGMENT: usize = 1_000;
    const SEGMENTS: usize = 10;

    let vip = world.web.udp(family);
    world.place.pod(layout)?.netns.run(|| {
        let socket = client::udp_connected(family, vip)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(SEGMENT)?)?;
        let payload = pattern(SEGMENT * SEGMENTS);
        ensure!(socket.send(&payload)? == payload.len(), "only a part was sent");
        let mut wanted: BTreeSet<&[u8]> = payload.chunks(SEGMENT).collect();
        ensure!(wanted.len() == SEGMENTS);
        while !wanted.is_empty() {
            let (reply, received) = echoed(&socket)?;
            ensure!(reply.source == vip, "{} is shown", reply.source);
            ensure!(wanted.remove(received.as_slice()), "a datagram that was not sent came back");
        }
        anyhow::Ok(())
    })?
}

/// The replies of both have the same addresses and ports, unless the client's port is translated.
fn stay_separate(world: &World, layout: Layout, family: Family) -> Result {
    const ROUNDS: usize = 3;

    let vips = world.twins.each_ref().map(|target| target.udp(family));
    let changed = || anyhow::Ok(world.site.agent.counters()?["flow_port_changed"]);
    let before = changed()?;
    let pod = world.place.pod(layout)?;
    pod.netns.run(|| {
        let socket = client::udp(family)?;
        for _ in 0..ROUNDS {
            for vip in vips {
                let reply = ask(&socket, vip)?;
                ensure!(reply.source == vip, "{} is shown instead of {vip}", reply.source);
            }
        }
        anyhow::Ok(())
    })??;
    ensure!(changed()? > before, "the source port was not translated once");
    let streams = pod.netns.run(|| {
        let [first, second] = [client::tcp(family)?, client::tcp(family)?];
        let mut own = SocketAddr::new(family.address(pod.v4(), pod.v6(), 0).ip(), 0);
        for (stream, target) in [&first, &second].into_iter().zip(&world.twins) {
            setsockopt(stream, sockopt::ReuseAddr, &true)?;
            rustix::net::bind(stream, &own)?;
            own = stream.local_addr()?;
            client::connect(stream, target.tcp(family))?;
        }
        anyhow::Ok([first, second])
    })??;
    ensure!(streams[0].local_addr()? == streams[1].local_addr()?, "two source ports");
    for (stream, target) in streams.iter().zip(&world.twins) {
        ensure!(stream.peer_addr()? == target.tcp(family));
        client::identity(stream)?;
    }
    ensure!(changed()? > before + 1, "the source port was not translated again");
    Ok(())
}

/// By the client's address: all sockets of the pod.
fn keeps_backend(world: &World, layout: Layout, family: Family) -> Result {
    let backends = world.place.pod(layout)?.netns.run(|| {
        let mut backends = [BTreeSet::new(), BTreeSet::new()];
        for _ in 0..20 {
            backends[0].insert(greeted(family, world.sticky.tcp(family))?.1);
            backends[1].insert(ask(&client::udp(family)?, world.sticky.udp(family))?.backend);
        }
        anyhow::Ok(backends)
    })??;
    ensure!(backends.iter().all(|backends| backends.len() == 1), "several backends: {backends:?}");
    Ok(())
}
