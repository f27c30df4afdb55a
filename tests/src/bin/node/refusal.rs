//! Refusals: where no backend answers, the client learns it at once.

use mcs_tests::target::UNKNOWN_PORT;
use rustix::net::{
    AddressFamily, Protocol, SocketType, ipproto,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "refused: no backend", |world, layout, family| {
        let (tcp, udp) = (world.empty.tcp(family), world.empty.udp(family));
        let counted = Counted::begin(world, "packet_refused_no_backend")?;
        refused(world, layout, family, tcp, udp)?;
        counted.end(world)
    });
    each(suite, &Layout::ALL, "refused: unknown port", |world, layout, family| {
        let unknown = world.web.at(family, UNKNOWN_PORT);
        let counted = Counted::begin(world, "packet_refused_unknown_port")?;
        refused(world, layout, family, unknown, unknown)?;
        counted.end(world)
    });
    each(suite, &Layout::ALL, "refused: policy Local, no local endpoint", not_local);
    each(suite, &Layout::ALL, "refused by the backend: no server", |world, layout, family| {
        let deaf = world.web.at(family, DEAF.0);
        refused(world, layout, family, deaf, deaf)
    });
    each(suite, &Layout::ALL, "refused: the import has gone", |world, layout, family| {
        gone(world, &world.place.pod(layout)?.netns, family)
    });
    // The node's own processes have no hook here: their packets reach the uplink.
    suite.case("refused at the uplink: the import has gone", |world| {
        let node = &world.place.node.netns;
        Family::ON_WIRE.into_iter().try_for_each(|family| gone(world, node, family))
    });
    each(suite, &Layout::ALL, "refused: SCTP", no_sctp);
    each(suite, &Layout::ALL, "dropped: a protocol without ports", no_other_protocol);
}

/// A counter that has to move.
struct Counted {
    name: &'static str,
    before: u64,
}

impl Counted {
    fn begin(world: &World, name: &'static str) -> Result<Self> {
        let before = world.site.agent.counters()?.get(name).copied().unwrap_or(0);
        Ok(Self { name, before })
    }

    fn end(self, world: &World) -> Result {
        let after = world.site.agent.counters()?.get(self.name).copied().unwrap_or(0);
        ensure!(after > self.before, "{} did not count", self.name);
        Ok(())
    }
}

/// By TCP and by UDP.
fn refused(
    world: &World,
    layout: Layout,
    family: Family,
    tcp: SocketAddr,
    udp: SocketAddr,
) -> Result {
    refused_in(&world.place.pod(layout)?.netns, family, tcp, udp)
}

fn refused_in(netns: &Namespace, family: Family, tcp: SocketAddr, udp: SocketAddr) -> Result {
    netns.run(|| {
        client::refused_at_once(|| client::connected(family, tcp).map(drop)).context("TCP")?;
        // The second would have to be cut.
        for size in [1, 4_000] {
            client::refused_at_once(|| send_and_wait(&client::udp_connected(family, udp)?, size))
                .with_context(|| format!("UDP, {size} bytes"))?;
        }
        anyhow::Ok(())
    })?
}

fn send_and_wait(socket: &UdpSocket, size: usize) -> io::Result<()> {
    socket.send(&pattern(size))?;
    socket.recv(&mut [0; 16]).map(drop)
}

fn gone(world: &World, netns: &Namespace, family: Family) -> Result {
    let target = world.fresh("gone").with_remote(Distance::Near, World::WEB);
    world.site.apply(&target.service)?;
    world.site.remove(&target.service)?;
    let counted = Counted::begin(world, "packet_refused_gone")?;
    refused_in(netns, family, target.tcp(family), target.udp(family))?;
    counted.end(world)
}

fn not_local(world: &World, layout: Layout, family: Family) -> Result {
    let counted = Counted::begin(world, "packet_refused_no_backend")?;
    refused(world, layout, family, world.local.tcp(family), world.local.udp(family))?;
    counted.end(world)
}

/// A raw socket to a VIP.
fn raw(
    family: Family,
    protocol: Protocol,
    to: IpAddr,
    patience: Duration,
) -> io::Result<std::net::TcpStream> {
    let domain = if family == Family::V6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = rustix::net::socket(domain, SocketType::RAW, Some(protocol))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    rustix::net::connect(&socket, &SocketAddr::new(to, 0))?;
    // Reads and writes as any connected socket.
    Ok(socket.into())
}

fn no_sctp(world: &World, layout: Layout, family: Family) -> Result {
    let counted = Counted::begin(world, "packet_refused_sctp")?;
    world.place.pod(layout)?.netns.run(|| {
        client::refused_at_once(|| {
            let mut socket =
                raw(family, ipproto::SCTP, world.web.tcp(family).ip(), client::AT_ONCE)?;
            // Ports, verification tag and checksum.
            io::Write::write_all(&mut socket, &[0x80, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0])?;
            socket.read(&mut [0; 16]).map(drop)
        })
    })??;
    counted.end(world)
}

fn no_other_protocol(world: &World, layout: Layout, family: Family) -> Result {
    let counted = Counted::begin(world, "packet_dropped_protocol")?;
    world.place.pod(layout)?.netns.run(|| {
        let mut socket =
            raw(family, ipproto::GRE, world.web.tcp(family).ip(), client::AT_ONCE / 10)?;
        io::Write::write_all(&mut socket, &[0; 16])?;
        let answer = socket.read(&mut [0; 16]);
        let error = answer.err().context("was answered")?;
        ensure!(error.kind() == io::ErrorKind::WouldBlock, "{error}");
        anyhow::Ok(())
    })??;
    counted.end(world)
}
