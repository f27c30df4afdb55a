//! UDP sockets that connected to a VIP before the agent served it. Rules of nft stand in for kube-proxy.

use crate::prelude::*;

/// A port that the import lacks.
const OTHER_PORT: u16 = 9;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("UDP sockets that connected before the import came", go_on);
}

fn go_on(world: &mut World) -> Result {
    let world = &*world;
    // The agent leads to other endpoints than the rules.
    let target = world.fresh("earlier").with(&PODS[1..3]);
    let rules = Rules::create(world, &target)?;
    let vips = Family::ALL.map(|family| target.udp(family));
    let others = vips.map(|vip| SocketAddr::new(vip.ip(), OTHER_PORT));
    let sockets = world.at(Place::Pod, || {
        let families = Family::ALL.into_iter().cycle();
        families
            .zip(vips.into_iter().chain(others))
            .map(|(family, vip)| begin(family, vip))
            .collect()
    });
    let sockets: Vec<(UdpSocket, SocketAddr)> = sockets?;
    world.site.apply(&target.service)?;
    let before = world.site.agent.counters()?;
    for (socket, vip) in &sockets {
        exchange(socket, *vip).with_context(|| vip.to_string())?;
    }
    assert_eq!(world.site.agent.counters()?, before, "their datagrams are not the agent's");
    drop(rules);
    // A connect is the agent's.
    world.at(Place::Pod, || {
        for family in Family::ALL {
            let vip = target.udp(family);
            exchange(&udp_connected(family, vip)?, vip)?;
        }
        Ok(())
    })?;
    world.site.remove(&target.service)
}

fn begin(family: Family, vip: SocketAddr) -> Result<(UdpSocket, SocketAddr)> {
    let socket = udp_connected(family, vip)?;
    exchange(&socket, vip).with_context(|| format!("{family}, {vip}, before"))?;
    Ok((socket, vip))
}

/// By send(2), for which an IPv6 socket with an IPv4 peer runs a hook, and by sendto(2).
fn exchange(socket: &UdpSocket, vip: SocketAddr) -> Result {
    for _ in 0..3 {
        socket.send(b"who are you")?;
        assert_eq!(receive(socket)?.source, vip);
        assert_eq!(ask(socket, vip)?.source, vip);
    }
    assert_eq!(socket.peer_addr()?, vip);
    Ok(())
}

/// Rules of the node, and a route of the pod to them. The rules are removed when this is dropped.
struct Rules<'a>(&'a Namespace);

impl<'a> Rules<'a> {
    fn create(world: &'a World, target: &Target) -> Result<Self> {
        let mut rules = String::new();
        let (node, pod) = (world.netns(Place::Node), world.netns(Place::Pod));
        for (family, word, ip, via) in [
            (Family::V4, "ip", "-4", SocketAddr::new(POD.v4(1).into(), 0)),
            (Family::V6, "ip6", "-6", SocketAddr::new(POD.v6(1).into(), 0)),
        ] {
            let (vip, to) = (target.udp(family), backend(PODS[0], family, UDP.1));
            let (address, port) = (vip.ip(), vip.port());
            let ports = format!("{{ {port}, {OTHER_PORT} }}");
            let rule = format!("{word} daddr {address} udp dport {ports} dnat {word} to {to}\n");
            rules.push_str(&rule);
            let (address, via) = (address.to_string(), via.ip().to_string());
            pod.output("ip", &[ip, "route", "add", &address, "via", &via])?;
        }
        let chain =
            format!("chain services {{\ntype nat hook prerouting priority dstnat;\n{rules}}}");
        node.output("nft", &[&format!("table inet mcs-earlier {{\n{chain}\n}}")])?;
        Ok(Self(node))
    }
}

impl Drop for Rules<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.output("nft", &["delete", "table", "inet", "mcs-earlier"]) {
            eprintln!("cannot delete a table: {error:#}");
        }
    }
}
