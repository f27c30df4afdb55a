//! Thousands of flows at a time, and more than the table has room for.

use std::ops::Range;

use mcs_tests::procfs;
use rustix::{
    net::sockopt::set_tcp_quickack,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use crate::{exchange::echo, prelude::*};

const CONNECTIONS: usize = 2_000;
const SOCKETS: usize = 5_000;
/// Descriptors: both ends of connections, sockets, and some more.
const DESCRIPTORS: u64 = 12_000;
/// Datagrams on their way at a time: what a server's buffer holds.
const BATCH: usize = 50;

/// Flows that a small table holds, and flows that live at a time.
const SMALL: &str = "1024";
const LIVE: usize = 1_500;
/// More than [`Flow::TOUCH_NS`](mcs_common::Flow::TOUCH_NS), the time for which an entry does not refresh
/// the other one of its flow. The table fills up again much sooner.
const REST: Duration = Duration::from_millis(300);

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &[Layout::Routed], "thousands of flows at a time", stay_separate);
    suite.case("more flows than the table holds", survive_eviction);
    suite.case("a pod that fills the table, by its ports and by forged sources", |world| {
        let place = world.new_place(&[(Layout::Routed, 2)])?;
        place.pod(Layout::Routed)?.netns.ip("route add local 10.200.0.0/16 dev lo")?;
        crowds_out(world, &place, Sources::Own)?;
        crowds_out(world, &place, Sources::Forged)
    });
}

/// Whose addresses a pod that fills the table sends from, each time by another port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sources {
    Own,
    /// The node's reverse path filter drops such packets behind our programs.
    Forged,
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "ports",
            Self::Forged => "forged",
        })
    }
}

/// Room for the descriptors of a case.
fn raise_limit() -> Result {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < DESCRIPTORS) {
        let maximum = maximum.map(|maximum| maximum.max(DESCRIPTORS));
        setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum })?;
    }
    Ok(())
}

/// A client that is still there, and who answers it.
struct Live<S> {
    socket: S,
    backend: SocketAddr,
}

/// A line that tells one client from all others.
fn line(number: usize) -> String {
    format!("client {number:08}\n")
}

fn open_connections(family: Family, to: SocketAddr, count: usize) -> Result<Vec<Live<TcpStream>>> {
    let open = |number| {
        let (socket, backend) = greeted(family, to).with_context(|| format!("number {number}"))?;
        set_tcp_quickack(&socket, true)?;
        Ok(Live { socket, backend })
    };
    (0..count).map(open).collect()
}

/// Each sends a line, and gets its own back.
fn use_connections(connections: &[Live<TcpStream>]) -> Result {
    for (number, Live { socket, .. }) in connections.iter().enumerate() {
        (&*socket).write_all(line(number).as_bytes())?;
    }
    for (number, Live { socket, backend }) in connections.iter().enumerate() {
        let expected = line(number);
        let mut received = vec![0; expected.len()];
        (&*socket)
            .read_exact(&mut received)
            .with_context(|| format!("connection {number}, to {backend}"))?;
        ensure!(received == expected.as_bytes(), "connection {number} got another's line");
        // Else the server may retransmit before it gets the last acknowledgement. If the flow was
        // forgotten, the client sees the retransmission come from an unknown address, and resets it.
        set_tcp_quickack(socket, true)?;
    }
    Ok(())
}

/// Asks by new sockets.
fn open_sockets(family: Family, to: SocketAddr, count: usize) -> Result<Vec<Live<UdpSocket>>> {
    let mut sockets = Vec::new();
    for first in (0..count).step_by(BATCH) {
        let numbers = first..count.min(first + BATCH);
        let batch = numbers.clone().map(|_| client::udp(family)).collect::<Result<Vec<_>, _>>()?;
        for (number, socket) in numbers.clone().zip(&batch) {
            socket.send_to(line(number).as_bytes(), to)?;
        }
        for (number, socket) in numbers.zip(batch) {
            let backend = answer(&socket, to, number)?;
            sockets.push(Live { socket, backend });
        }
    }
    Ok(sockets)
}

/// Each asks again, and the same backend answers.
fn use_sockets(sockets: &[Live<UdpSocket>], to: SocketAddr) -> Result {
    for (first, batch) in sockets.chunks(BATCH).enumerate() {
        let numbers = first * BATCH..;
        for (number, live) in numbers.clone().zip(batch) {
            live.socket.send_to(line(number).as_bytes(), to)?;
        }
        for (number, Live { socket, backend }) in numbers.zip(batch) {
            let now = answer(socket, to, number)?;
            ensure!(now == *backend, "socket {number} went from {backend} to {now}");
        }
    }
    Ok(())
}

fn answer(socket: &UdpSocket, vip: SocketAddr, number: usize) -> Result<SocketAddr> {
    let reply =
        echo(socket, line(number).as_bytes()).with_context(|| format!("socket {number}"))?;
    ensure!(reply.source == vip, "{} is shown to socket {number}", reply.source);
    Ok(reply.backend)
}

fn backends_of<S>(live: &[Live<S>]) -> BTreeSet<SocketAddr> {
    live.iter().map(|live| live.backend).collect()
}

fn stay_separate(world: &World, layout: Layout, family: Family) -> Result {
    raise_limit()?;
    let (tcp, udp) = (world.web.tcp(family), world.web.udp(family));
    let (connections, sockets) = world.place.pod(layout)?.netns.run(|| {
        let connections = open_connections(family, tcp, CONNECTIONS)?;
        let sockets = open_sockets(family, udp, SOCKETS)?;
        use_connections(&connections)?;
        use_sockets(&sockets, udp)?;
        anyhow::Ok((connections, sockets))
    })??;
    let expected = |port| backends(Distance::Near, World::WEB, family, port);
    ensure!(backends_of(&connections) == expected(TCP.1));
    ensure!(backends_of(&sockets) == expected(UDP.1));
    let flows = process::json_list(&world.site.agent.command(&["flows", "-o", "json"])?)?;
    let count = flows.len();
    ensure!(count >= CONNECTIONS + SOCKETS, "the agent lists {count} flows");
    tell(format!("{CONNECTIONS} connections, {SOCKETS} sockets; the agent lists {count} flows"));
    Ok(())
}

/// A flow that the table has evicted finds its backend again with the client's next packet: the choice depends on addresses and
/// ports alone.
fn survive_eviction(world: &mut World) -> Result {
    let place = world.new_place(&[(Layout::Routed, 1)])?;
    let target: Target = world.fresh("crowded").with_remote(Distance::Near, World::WEB);
    let flags = [FLAGS, &["--max-flows", SMALL]].concat();
    let site = Site::start(&world.run, "small", &place.node.netns, &flags, &[&target.service])?;
    for family in Family::ON_WIRE {
        place.pod(Layout::Routed)?.netns.run(|| {
            let connections = open_connections(family, target.tcp(family), LIVE)?;
            let sockets = open_sockets(family, target.udp(family), LIVE)?;
            for _ in 0..2 {
                thread::sleep(REST);
                connections.chunks(1).try_for_each(use_connections)?;
                use_sockets(&sockets, target.udp(family))?;
            }
            // New ones find a place, too.
            use_connections(&open_connections(family, target.tcp(family), 20)?)
        })??;
    }
    let created = site.agent.counters()?["flow_created"];
    tell(format!(
        "{} flows in use with a table for {SMALL}; they were made {created} times",
        2 * 2 * LIVE
    ));
    ensure!(created > 6 * LIVE as u64, "flows were made {created} times: nothing was forgotten");
    Ok(())
}

/// One datagram of a new flow each.
fn flood(pod: &Pod, to: SocketAddr, sources: Sources, numbers: Range<u16>) -> Result {
    pod.netns.run(|| {
        for number in numbers {
            let [high, low] = number.to_be_bytes();
            let from = match sources {
                Sources::Own => pod.v4(),
                Sources::Forged => Ipv4Addr::new(10, 200, high, low),
            };
            UdpSocket::bind((from, 10_000 + number))?.send_to(b"mine", to)?;
        }
        anyhow::Ok(())
    })?
}

/// What another pod loses are flows that rest, once the backends have changed too. What it uses goes on, and what is new
/// finds a place.
fn crowds_out(world: &World, place: &Place, sources: Sources) -> Result {
    const BUSY: usize = 20;
    const ROUNDS: u16 = 80;
    const PER_ROUND: u16 = 100;
    // Each CPU keeps lists of 128 entries of an LRU map from the others: two a flow.
    let count = 100 + 64 * thread::available_parallelism()?.get();
    raise_limit()?;
    let (hostile, other) = (place.pod(Layout::Routed)?, place.peer(Layout::Routed)?);
    let target = world.fresh("beset");
    let before = target.clone().with_remote(Distance::Near, World::WEB);
    let flooded = world.fresh("flooded").with_remote(Distance::Near, &[16]);
    let flags = [FLAGS, &["--max-flows", SMALL]].concat();
    let services = [&before.service, &flooded.service];
    let site =
        Site::start(&world.run, &format!("{sources}"), &place.node.netns, &flags, &services)?;
    let to = target.tcp(Family::V4);
    let open = |count| other.netns.run(|| open_connections(Family::V4, to, count))?;

    // It has to know the node's hardware address: nobody tells a source that is not its own.
    flood(hostile, flooded.udp(Family::V4), Sources::Own, 0..1)?;

    let (resting, busy) = (open(count)?, open(BUSY)?);
    for round in 0..ROUNDS {
        let numbers = round * PER_ROUND..(round + 1) * PER_ROUND;
        flood(hostile, flooded.udp(Family::V4), sources, numbers)?;
        use_connections(&busy)?;
        use_connections(&open(1)?)?;
    }
    let created = site.agent.counters()?["flow_created"];
    let sent = ROUNDS * PER_ROUND;
    ensure!(created >= sent.into(), "{created} flows were made by {sent} datagrams");
    let filtered = || procfs::network_counter("netstat", "TcpExt", "IPReversePathFilter");
    let filtered = place.node.netns.run(filtered)??;
    ensure!(filtered >= u64::from(sent) || sources == Sources::Own, "{filtered} were filtered");

    site.apply(&target.clone().with_remote(Distance::Near, &[14, 15]).service)?;
    let going = |connections: &[Live<TcpStream>]| {
        connections.iter().filter(|live| still_goes(&live.socket, to).is_ok()).count()
    };
    let (rested, used) = (going(&resting), going(&busy));
    tell(format!(
        "{sources}: {sent} datagrams with a table for {SMALL}; {rested} of {count} connections that rested went on, and {used} of {BUSY} in use"
    ));
    ensure!(rested < count, "nothing was forgotten");
    ensure!(used == BUSY, "{used} of {BUSY} connections in use went on");
    use_connections(&open(BUSY)?)
}
