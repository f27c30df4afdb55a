//! A node already serves a VIP when the agent takes it over: no conversation ends. Rules of nft stand in for
//! kube-proxy.

use std::fmt::Write as _;

use crate::{netfilter::Table, prelude::*};

/// The endpoint that the rules lead to, one of [`World::WEB`].
const BEFORE: u8 = 12;
/// Conversations of each kind and family. The hash leads most of them to other endpoints.
const CONVERSATIONS: usize = 6;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for layout in Layout::CNI {
        suite.case(format!("conversations go on when the agent starts, {layout}"), move |world| {
            starts(world, layout)
        });
        suite.case(format!("conversations go on when an import comes, {layout}"), move |world| {
            import_comes(world, layout)
        });
    }
}

fn starts(world: &World, layout: Layout) -> Result {
    let place = world.new_place(&[(layout, 1)])?;
    let target = world.fresh("taken-over").with_remote(Distance::Near, World::WEB);
    take_over(&place, layout, &target, || {
        let role = format!("taken-over-{layout}");
        Site::start(&world.run, &role, &place.node.netns, FLAGS, &[&target.service])
    })
}

fn import_comes(world: &World, layout: Layout) -> Result {
    let place = world.new_place(&[(layout, 1)])?;
    let target = world.fresh("imported").with_remote(Distance::Near, World::WEB);
    let other = world.fresh("other").with_remote(Distance::Near, World::WEB);
    let role = format!("imported-{layout}");
    let site = Site::start(&world.run, &role, &place.node.netns, FLAGS, &[&other.service])?;
    place.pod(layout)?.netns.run(|| greeted(Family::V4, other.tcp(Family::V4)).map(drop))??;
    take_over(&place, layout, &target, || site.apply(&target.service).map(|()| site))
}

/// Checks that all conversations with the target go on after `take`.
fn take_over(
    place: &Place,
    layout: Layout,
    target: &Target,
    take: impl FnOnce() -> Result<Site>,
) -> Result {
    let pod = place.pod(layout)?;
    let _rules = Table::create(&place.node.netns, &dnat(target))?;
    let mut conversations = Vec::new();
    for family in Family::ON_WIRE {
        for _ in 0..CONVERSATIONS {
            conversations.extend(begin(pod, target, family)?);
        }
    }
    let site = take()?;
    let mut failures = Vec::new();
    for round in 0..3 {
        for conversation in &conversations {
            if let Err(error) = conversation.exchange(target) {
                failures.push(format!("round {round}: {error:#}"));
            }
        }
    }
    let count = conversations.len();
    ensure!(
        failures.is_empty(),
        "{} failures of {count} conversations: {failures:#?}",
        failures.len()
    );
    let passed = site.agent.counters()?["packet_passed"];
    ensure!(passed > 0, "no packet passed");
    // What is new is the agent's.
    let created = site.agent.counters()?["flow_created"];
    for family in Family::ON_WIRE {
        pod.netns.run(|| greeted(family, target.tcp(family)).map(drop))??;
    }
    ensure!(site.agent.counters()?["flow_created"] > created, "a new connection has no flow");
    tell(format!("{count} conversations, 0 failed; {passed} packets passed"));
    Ok(())
}

/// As kube-proxy, in the mode nftables or iptables, translates what comes from pods.
fn dnat(target: &Target) -> String {
    let mut rules = String::new();
    for family in Family::ON_WIRE {
        let word = if family == Family::V4 { "ip" } else { "ip6" };
        let endpoint = Distance::Near
            .pod(BEFORE)
            .into_iter()
            .find(|ip| ip.is_ipv4() == (family == Family::V4));
        for (protocol, (port, to)) in [("tcp", TCP), ("udp", UDP)] {
            let (vip, to) = (target.at(family, port), endpoint.map(|ip| SocketAddr::new(ip, to)));
            let to = to.map(|to| to.to_string()).unwrap_or_default();
            let vip = vip.ip();
            let to = format!("dnat {word} to {to}");
            let _ = writeln!(rules, "{word} daddr {vip} {protocol} dport {port} {to}");
        }
    }
    format!("chain services {{\ntype nat hook prerouting priority dstnat;\n{rules}}}")
}

/// A conversation of a pod, as applications hold them.
enum Conversation {
    Tcp(TcpStream),
    Connected(UdpSocket),
    Unconnected(UdpSocket, Family),
}

fn begin(pod: &Pod, target: &Target, family: Family) -> Result<[Conversation; 3]> {
    let all = pod.netns.run(|| {
        let (stream, _) = greeted(family, target.tcp(family))?;
        anyhow::Ok([
            Conversation::Tcp(stream),
            Conversation::Connected(client::udp_connected(family, target.udp(family))?),
            Conversation::Unconnected(client::udp(family)?, family),
        ])
    })??;
    all.iter().try_for_each(|conversation| conversation.exchange(target))?;
    Ok(all)
}

impl Conversation {
    fn exchange(&self, target: &Target) -> Result {
        match self {
            Self::Tcp(stream) => {
                let (mut stream, mut echo) = (stream, [0; 5]);
                stream.write_all(b"hello").context("TCP")?;
                stream.read_exact(&mut echo).context("TCP")?;
                ensure!(&echo == b"hello", "TCP: other bytes came back");
            }
            Self::Connected(socket) => {
                socket.send(b"who are you?").context("connected UDP")?;
                receive_nameless(socket).context("connected UDP")?;
            }
            Self::Unconnected(socket, family) => {
                let vip = target.udp(*family);
                let reply = ask(socket, vip).context("unconnected UDP")?;
                ensure!(reply.source == vip, "unconnected UDP: {} is shown", reply.source);
            }
        }
        Ok(())
    }
}
