//! No packet to a VIP leaves the node by its uplink.

use crate::prelude::*;

/// An address that is no VIP, and that leads nowhere.
const OTHER: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 79, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, 1)),
];
const DATAGRAMS: u64 = 10;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a VIP does not leave by the uplink", does_not_leak);
    suite.case("a tunnel of the kernel to a VIP does not leave by the uplink", tunnels);
}

/// Processes of the node itself have no socket hooks here, and no device of a pod.
fn does_not_leak(world: &mut World) -> Result {
    let router = &world.backbone.router;
    let device = world.place.name("node");
    let capture = Capture::start(&world.run, "router", router, &device, "ip or ip6")?;
    let before = world.site.agent.counters()?["leak_prevented"];
    world.place.node.netns.run(|| {
        for (family, other) in Family::ON_WIRE.into_iter().zip(OTHER) {
            let vips = [world.web.udp(family), world.empty.udp(family)];
            for to in vips.into_iter().chain([SocketAddr::new(other, UDP.0)]) {
                let socket = client::udp(family)?;
                for _ in 0..DATAGRAMS {
                    // The kernel may report the drop as an error.
                    let _ = socket.send_to(b"anybody there", to);
                }
            }
            let stream = client::tcp(family)?;
            stream.set_nonblocking(true)?;
            ensure!(client::connect(&stream, world.web.tcp(family)).is_err(), "connected");
        }
        anyhow::Ok(())
    })??;
    let left: Vec<_> = capture.finish()?.into_iter().map(|packet| packet.dst).collect();
    let prevented = world.site.agent.counters()?["leak_prevented"] - before;
    // Of each family: datagrams to two VIPs, and a SYN.
    ensure!(prevented >= 2 * (2 * DATAGRAMS + 1), "{prevented} packets were counted");
    for (family, other) in Family::ON_WIRE.into_iter().zip(OTHER) {
        let count = |ip| left.iter().filter(|left| **left == ip).count() as u64;
        ensure!(count(other) == DATAGRAMS, "{} packets to {other} left", count(other));
        for vip in [&world.web, &world.empty].map(|target| target.udp(family).ip()) {
            ensure!(count(vip) == 0, "{} packets to {vip} left the node", count(vip));
        }
    }
    tell(format!("{prevented} packets to VIPs were dropped at the uplink, and none left"));
    Ok(())
}

/// A VXLAN device sends without a socket hook.
fn tunnels(world: &mut World) -> Result {
    let node = &world.place.node.netns;
    let router = &world.backbone.router;
    let device = world.place.name("node");
    let far_ends = [world.web.udp(Family::V4).ip(), OTHER[0]];
    for (number, far_end) in (1..).zip(far_ends) {
        node.ip(&format!(
            "link add tunnel{number} type vxlan id {number} dstport 4789 remote {far_end}
             address add 192.0.{number}.1/24 dev tunnel{number}
             link set tunnel{number} up
             neighbour add 192.0.{number}.2 lladdr 02:00:00:00:00:02 dev tunnel{number}"
        ))?;
    }
    let capture = Capture::start(&world.run, "router", router, &device, "udp port 4789")?;
    let before = world.site.agent.counters()?["leak_prevented"];
    node.run(|| {
        let socket = client::udp(Family::V4)?;
        for number in [1, 2] {
            for _ in 0..DATAGRAMS {
                // The kernel may report the drop as an error.
                let _ =
                    socket.send_to(b"anybody there", SocketAddr::from(([192, 0, number, 2], 9)));
            }
        }
        anyhow::Ok(())
    })??;
    let left = capture.finish()?;
    let prevented = world.site.agent.counters()?["leak_prevented"] - before;
    node.ip("link delete tunnel1\nlink delete tunnel2")?;
    let [to_vip, to_other] =
        far_ends.map(|ip| left.iter().filter(|packet| packet.dst == ip).count() as u64);
    ensure!(to_vip == 0 && prevented >= DATAGRAMS, "{to_vip} left, {prevented} were dropped");
    ensure!(to_other >= DATAGRAMS, "{to_other} packets of the other tunnel left");
    tell(format!("{prevented} packets of a tunnel to a VIP were dropped at the uplink"));
    Ok(())
}
