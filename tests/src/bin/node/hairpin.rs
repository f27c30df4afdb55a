//! Clients that are their own backend, and backends on the client's node.

use crate::prelude::*;

const BYTES: usize = 4_000_000;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "a pod reaches itself", reaches_itself);
    each(suite, &Layout::ALL, "a pod reaches pods of its node", reaches_neighbours);
    suite.case("a pod with two addresses does not reach itself from the other one", two_addresses);
    each(suite, &[Layout::Bridged], "the node redirects nobody to a backend", is_not_redirected);
}

fn reaches_itself(world: &World, layout: Layout, family: Family) -> Result {
    let pod = world.place.pod(layout)?;
    // A pod takes no packet from its own address.
    reaches(world, pod, pod, &world.own[&layout], family, Seen::Vip)
}

fn reaches_neighbours(world: &World, layout: Layout, family: Family) -> Result {
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
) -> Result {
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

/// The programs know a hairpin by equal addresses, so that this packet comes to the pod from an address of its own.
fn two_addresses(world: &mut World) -> Result {
    let place = world.new_place(&[(Layout::Routed, 2)])?;
    let (node, pod) = (&place.node.netns, place.pod(Layout::Routed)?);
    let other = Ipv4Addr::new(10, 79, 9, 9);
    pod.netns.output("ip", &["addr", "add", &format!("{other}/32"), "dev", "lo"])?;
    let via = pod.v4().to_string();
    node.output("ip", &["route", "add", &other.to_string(), "via", &via, "dev", &pod.device])?;
    let own = world.fresh("two-addresses").with_ips(pod.both());
    let neighbour = place.peer(Layout::Routed)?;
    let beside = world.fresh("beside-it").with_ips(neighbour.both());
    let services = [&own.service, &beside.service];
    let site = Site::start(&world.run, &place.name("two-addresses"), node, FLAGS, &services)?;
    // How many packets of three requests were translated, and how many replies.
    let exchanges = |from: Ipv4Addr, target: &Target| -> Result<[u64; 2]> {
        let figures = || -> Result<[u64; 2]> {
            let counters = site.agent.counters()?;
            let of = |name| counters.get(name).copied().unwrap_or_default();
            Ok(["packet_translated", "packet_reversed"].map(of))
        };
        let [sent, received] = figures()?;
        pod.netns.run(|| {
            let socket = UdpSocket::bind((from, 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(300)))?;
            for _ in 0..3 {
                socket.send_to(b"two addresses", target.udp(Family::V4))?;
                let _ = socket.recv_from(&mut [0; 64]);
            }
            anyhow::Ok(())
        })??;
        let [then, back] = figures()?;
        Ok([then - sent, back - received])
    };
    assert_eq!(exchanges(other, &beside)?, [3, 3], "the other address serves as a client's");
    assert_eq!(exchanges(other, &own)?, [3, 0], "the pod drops what has its own source");
    Ok(())
}

/// A packet to a neighbour leaves the node by the bridge that it came from, so that the node tells
/// the client of a shorter way. That way is to one backend, and what would go it is for all.
fn is_not_redirected(world: &World, layout: Layout, family: Family) -> Result {
    // The kernel limits redirects per destination; this pod has not been a client yet.
    let (client, backend) = (world.place.peer(layout)?, world.place.pod(layout)?);
    let target = &world.own[&layout];
    let redirects = || world.place.node.redirects();
    let before = redirects()?;
    let capture = Capture::start(&world.run, "redirected", &client.netns, "eth0", "icmp or icmp6")?;
    let asks = || {
        let reply = ask(&client::udp(family)?, target.udp(family))?;
        let expected = family.address(backend.v4(), backend.v6(), UDP.1);
        ensure!((reply.backend, reply.source) == (expected, target.udp(family)), "{reply:?}");
        Ok(())
    };
    client.netns.run(|| (0..30).try_for_each(|_| asks()))??;
    // For IPv6 one a second and backend is the kernel's limit, and other cases have used it up.
    wait::until("the node to send a redirect", || {
        client.netns.run(asks)??;
        ensure!(redirects()? > before, "it has sent none");
        Ok(())
    })?;
    let errors: Vec<_> = capture.finish()?.into_iter().filter_map(|packet| packet.error).collect();
    ensure!(errors.is_empty(), "the client received {errors:?}");
    Ok(())
}
