//! A border that closes: clients of endpoints outside of it end by both paths, unless the owner says `drain`.

use std::sync::atomic::AtomicUsize;

use mcs_tests::{
    capture::Capture,
    server::{Serve, Servers},
    target::REMOTE,
    traffic::with_clients,
};
use rustix::net::sockopt::set_socket_linger;

use super::{
    ENTERS,
    bounded::{Sender, arrived, send_all, sinks},
    count, tcp,
};
use crate::{bound::refuses, prelude::*};

/// The pod whose clients end, and the pod whose clients stay.
const PODS: [u8; 2] = [11, 12];
/// Clients of the first pod end within this time.
const LIMIT: Duration = Duration::from_secs(5);

/// The pods of a region inside of the border come and go so often, by each path.
const ROUNDS: u16 = 6;
/// Clients inside hear within this time that nobody serves.
const REFUSED_WITHIN: Duration = Duration::from_millis(10);
/// No client waits longer for a reply.
const PATIENCE: Duration = Duration::from_millis(200);

/// Services with one pod, in a cluster inside of the border.
fn open(world: &World) -> [Target; 2] {
    let names = [("closed", "none"), ("drained", "drain")];
    let mut pods = PODS.into_iter();
    names.map(|(name, fallback)| {
        let mut target = world.target(name).with(pods.next().as_slice());
        target.service = target.service.bordered(&["remote"], fallback);
        target
    })
}

/// The same with the pod's cluster outside.
fn shut(target: &Target, fallback: &str) -> Service {
    target.service.clone().bordered(&["east"], fallback)
}

/// A connection by each path and family.
fn streams(site: &Site, network: &Network, target: &Target) -> Result<Vec<(bool, TcpStream)>> {
    let connect = |(sockets, family)| {
        let stream = by(site, network, sockets, || Ok(connected(family, target.tcp(family))?))
            .with_context(|| format!("TCP, {family}, sockets: {sockets}"))?;
        identity(&stream)?;
        Ok((sockets, stream))
    };
    CLIENTS.into_iter().map(connect).collect()
}

pub(super) fn closes(world: &mut World) -> Result {
    let network = Network::named(&world.run, "border-", &PODS, &[(Server::tcp_echo, TCP.1)])?;
    // A packet that nobody translates leaves by the uplink, whose program answers.
    let (node, beyond) = (&network.node, Subnet(20));
    let _beyond = node.link_by(&world.run, "border-beyond", "uplink", beyond, &[2])?;
    let [closed, drained] = open(world);
    for family in Family::ON_WIRE {
        let via = family.address(beyond.v4(2), beyond.v6(2), 0).ip();
        let vip = closed.tcp(family).ip();
        node.netns.ip(&format!("route add {vip} via {via}"))?;
    }
    let both = [&closed.service, &drained.service];
    let launch = Launch::new(&world.run, "border", &network.node.netns)
        .flags(&["--tc=on", "--uplinks=uplink"]);
    let site = launch.capabilities(&[ENTERS]).knows(&both)?;
    let serve = |pod| Servers::start(&network.remote, REMOTE.both(pod), &[(Server::udp, UDP.1)]);
    let (pod, _stays) = (serve(PODS[0])?, serve(PODS[1])?);
    for target in [&closed, &drained] {
        lead(&network, target)?;
    }
    let udp_client = |target: &Target, sockets, family, is_connected| {
        let begin = || Sender::begin(family, target, sockets, is_connected);
        by(&site, &network, sockets, begin)
            .with_context(|| format!("{}, {family}, sockets: {sockets}", target.service.name()))
    };
    let (mut senders, mut untold) = (Vec::new(), Vec::new());
    for (sockets, family) in CLIENTS {
        senders.push(udp_client(&closed, sockets, family, true)?);
        // Linux tells an unconnected socket of no ICMP error.
        let list = if sockets { &mut senders } else { &mut untold };
        list.push(udp_client(&closed, sockets, family, false)?);
    }
    let kept = CLIENTS.map(|(sockets, family)| udp_client(&drained, sockets, family, true));
    let kept = kept.into_iter().collect::<Result<Vec<_>>>()?;
    let (ending, staying) =
        (streams(&site, &network, &closed)?, streams(&site, &network, &drained)?);

    // What arrives at the pod from now on is counted.
    drop(pod);
    let sinks = sinks(&network.remote, PODS[0])?;
    let began = Instant::now();
    site.apply(&shut(&closed, "none"))?;
    site.apply(&shut(&drained, "drain"))?;
    for target in [&closed, &drained] {
        for (sockets, family) in CLIENTS {
            by(&site, &network, sockets, || refuses(target, family))
                .with_context(|| format!("a new client, {family}, sockets: {sockets}"))?;
        }
    }
    send_all(&mut senders, began, wait::scaled(LIMIT))?;
    arrived(&sinks);
    send_all(&mut senders, Instant::now(), Duration::from_secs(1))?;
    send_all(&mut untold, Instant::now(), Duration::from_secs(1))?;
    let more = arrived(&sinks);
    ensure!(more == 0, "{more} datagrams crossed the border");
    for sender in &senders {
        let ended = sender.ended();
        ended.with_context(|| format!("{} goes on sending to the pod", sender.what()))?;
        sender.last_words()?;
    }
    for (sockets, mut stream) in ending {
        let expected = if sockets {
            io::ErrorKind::ConnectionAborted
        } else {
            // Its next packet is answered by a reset.
            stream.write_all(b"still there?")?;
            io::ErrorKind::ConnectionReset
        };
        let how = tcp::end(&stream)?;
        ensure!(how == expected, "{how:?} instead of {expected:?}, sockets: {sockets}");
    }
    let slowest = senders.iter().filter_map(Sender::ended).max().unwrap_or_default();
    tell(format!("{} senders ended within {slowest:.1?}", senders.len()));
    kept.iter().try_for_each(Sender::is_answered).context("a client that may stay")?;
    for (_, stream) in &staying {
        still_goes(stream, stream.peer_addr()?).context("a connection that may stay")?;
    }
    count(&site.agent, Protocol::Udp, 2)?;
    count(&site.agent, Protocol::Tcp, 2)
}

/// What clients saw at a VIP whose pods come and go.
#[derive(Default)]
struct Seen {
    answered: AtomicUsize,
    refused: AtomicUsize,
    /// Connections that ended, and datagrams without a reply.
    ended: AtomicUsize,
}

impl Seen {
    /// Dials until it has to stop.
    fn dial(&self, target: &Target, stop: &AtomicBool) -> Result {
        while !stop.load(Ordering::Relaxed) {
            for family in Family::ON_WIRE {
                self.note(by_tcp(target, family)).context("TCP")?;
                self.note(by_udp(target, family, true)).context("connected UDP")?;
                self.note(by_udp(target, family, false)).context("UDP")?;
            }
        }
        Ok(())
    }

    fn note(&self, answer: Result<SocketAddr>) -> Result {
        let count = match answer {
            Ok(who) => {
                ensure!(backends(&PODS[..1]).contains(&who), "{who} answered from outside");
                &self.answered
            }
            Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::ConnectionRefused) => &self.refused,
                // The agent ends clients of a pod that leaves.
                Some(
                    io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::WouldBlock,
                ) => &self.ended,
                _ => return Err(error),
            },
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn by_tcp(target: &Target, family: Family) -> Result<SocketAddr> {
    let stream = connected(family, target.tcp(family))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Closes by a reset, so that no port is used up by TIME_WAIT.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    identity(&stream)
}

fn by_udp(target: &Target, family: Family, is_connected: bool) -> Result<SocketAddr> {
    let (socket, vip) = (udp(family)?, target.udp(family));
    socket.set_read_timeout(Some(PATIENCE))?;
    if !is_connected {
        return Ok(ask(&socket, vip)?.backend);
    }
    connect(&socket, vip)?;
    socket.send(b"who are you")?;
    receive_nameless(&socket)
}

/// How long the slowest of some clients waits for its refusal.
fn slowest_refusal(target: &Target, family: Family) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for is_tcp in [true, false].repeat(10) {
        let began = Instant::now();
        let answer = if is_tcp { by_tcp(target, family) } else { by_udp(target, family, true) };
        let error = answer.err().context("somebody answered")?;
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        ensure!(kind == Some(io::ErrorKind::ConnectionRefused), "{error:#}");
        slowest = slowest.max(began.elapsed());
    }
    Ok(slowest)
}

/// Packets to the pod outside that passed the node meanwhile.
fn crossing(
    world: &World,
    network: &Network,
    role: &str,
    work: impl FnOnce() -> Result,
) -> Result<usize> {
    let [v4, v6] = REMOTE.both(PODS[1]);
    let filter = format!("dst host {v4} or dst host {v6}");
    let capture = Capture::start(&world.run, role, &network.node.netns, "remote", &filter)?;
    work()?;
    Ok(capture.finish()?.len())
}

pub(super) fn holds(world: &mut World) -> Result {
    let servers: [Serve; 2] = [(Server::tcp, TCP.1), (Server::udp, UDP.1)];
    let network = Network::named(&world.run, "region-", &PODS, &servers)?;
    let mut target = world.target("region").with_cluster("west", &PODS[1..]);
    target.service = target.service.bordered(&["east"], "none");
    let open = target.clone().with_cluster("east", &PODS[..1]);
    let launch = Launch::new(&world.run, "region", &network.node.netns);
    let roomy: &[&str] = &["--tc=on"];
    // Room for no more services than those that are there.
    let short: &[&str] = &["--tc=on", "--max-memory=64Ki"];
    let mut site = launch.flags(roomy).capabilities(&[ENTERS]).knows(&[&target.service])?;
    lead(&network, &target)?;
    for (sockets, family) in CLIENTS {
        let slowest = by(&site, &network, sockets, || slowest_refusal(&target, family))?;
        ensure!(
            slowest < wait::scaled(REFUSED_WITHIN),
            "{family}, sockets: {sockets}: {slowest:?}"
        );
    }
    for one in 0..12 {
        site.manifests.write(&world.target(&format!("neighbour-{one}")).service)?;
    }
    for sockets in [true, false] {
        let seen = Seen::default();
        let crossed = crossing(world, &network, &format!("region-{sockets}"), || {
            let _in_cgroup = if sockets { Some(site.cgroup.visit()?) } else { None };
            with_clients(
                &network.pod,
                |_, stop| seen.dial(&target, stop),
                || {
                    for round in 0..ROUNDS {
                        site.apply(&open.service)?;
                        site.manifests.write(&target.service)?;
                        site.agent.replace(if round % 2 == 0 { short } else { roomy })?;
                        site.agent.wait_for(&target.service)?;
                    }
                    Ok(())
                },
            )
        })?;
        let [answered, refused, ended] =
            [seen.answered, seen.refused, seen.ended].map(AtomicUsize::into_inner);
        tell(format!("sockets: {sockets}: {answered} answered, {refused} refused, {ended} ended"));
        ensure!(answered > 0 && refused > 0, "the pods neither came nor went");
        ensure!(crossed == 0, "{crossed} packets crossed the border, sockets: {sockets}");
    }
    // Whoever knows the pod's address reaches it, and the capture sees that.
    let [v4, _] = REMOTE.both(PODS[1]);
    let dials =
        || Ok(network.pod.run(|| connected(Family::V4, (v4, TCP.1).into()).map(drop))??);
    let seen = crossing(world, &network, "region-direct", dials)?;
    ensure!(seen > 0, "the capture sees nothing");
    Ok(())
}
