//! A border that closes: clients of endpoints outside of it end by both paths, unless the owner says `drain`.

use mcs_tests::{server::Servers, target::REMOTE};

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
