//! Backends are removed while clients use them.

use mcs_tests::manifests::Aside;

use crate::prelude::*;

/// The endpoints before, and those after.
const BEFORE: &[u8] = &[11];
const AFTER: &[u8] = &[12];
const BYTES: usize = 5_000_000;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for layout in Layout::CNI {
        suite.case(format!("a backend goes: TCP stays, UDP moves, {layout}"), move |world| {
            let rest = |target: Target| target.with_remote(Distance::Near, AFTER);
            changes(world, layout, rest, moves)
        });
        suite.case(
            format!("a backend terminates and serves: flows stay, {layout}"),
            move |world| {
                let both = [BEFORE, AFTER].concat();
                let leaving = BEFORE.iter().flat_map(|pod| Distance::Near.pod(*pod));
                let rest = |target: Target| {
                    target.with_remote(Distance::Near, &both).aside_ips(Aside::Draining, leaving)
                };
                changes(world, layout, rest, stays)
            },
        );
        suite.case(
            format!("all backends go: flows stay, new ones are refused, {layout}"),
            move |world| changes(world, layout, |target| target.with(&[]), is_refused),
        );
    }
}

/// Clients of both families use what was there before, when it changes.
fn changes(
    world: &World,
    layout: Layout,
    change: impl FnOnce(Target) -> Target,
    check: fn(Family, &Target, &Clients) -> Result,
) -> Result {
    let target = world.fresh("changing").with_remote(Distance::Near, BEFORE);
    world.site.apply(&target.service)?;
    let rest = change(target.clone());
    world.place.pod(layout)?.netns.run(|| {
        let clients = Family::ON_WIRE.map(|family| Clients::begin(family, &target));
        world.site.apply(&rest.service)?;
        for (family, clients) in Family::ON_WIRE.into_iter().zip(clients) {
            let clients = clients?;
            check(family, &target, &clients).with_context(|| family.to_string())?;
            bulk(&clients.stream, BYTES).context("the connection that was there")?;
        }
        anyhow::Ok(())
    })??;
    world.site.remove(&target.service)
}

fn moves(family: Family, target: &Target, clients: &Clients) -> Result {
    let new = backends(Distance::Near, AFTER, family, UDP.1);
    for socket in [&clients.connected, &clients.unconnected] {
        let reply = ask(socket, target.udp(family))?;
        ensure!(new.contains(&reply.backend), "still answered by {}", reply.backend);
        ensure!(reply.source == target.udp(family), "{} is shown", reply.source);
    }
    let (_, backend) = greeted(family, target.tcp(family))?;
    ensure!(backends(Distance::Near, AFTER, family, TCP.1).contains(&backend), "{backend}");
    Ok(())
}

/// Flows that are there stay; a new client gets one of the others.
fn stays(family: Family, target: &Target, clients: &Clients) -> Result {
    clients.stay(family, target)?;
    let new = ask(&client::udp(family)?, target.udp(family))?.backend;
    ensure!(backends(Distance::Near, AFTER, family, UDP.1).contains(&new), "{new}");
    Ok(())
}

fn is_refused(family: Family, target: &Target, clients: &Clients) -> Result {
    clients.stay(family, target)?;
    let start = Instant::now();
    let new = client::udp_connected(family, target.udp(family))?;
    new.send(b"anybody there")?;
    let error = new.recv(&mut [0; 16]).err().context("answered")?;
    let refused = io::ErrorKind::ConnectionRefused;
    ensure!(error.kind() == refused, "{error} after {:?}", start.elapsed());
    let error = client::connected(family, target.tcp(family)).err().context("connected")?;
    ensure!(error.kind() == refused, "{error} after {:?}", start.elapsed());
    Ok(())
}

/// Clients of the endpoints before.
struct Clients {
    stream: std::net::TcpStream,
    connected: std::net::UdpSocket,
    unconnected: std::net::UdpSocket,
}

impl Clients {
    fn begin(family: Family, target: &Target) -> Result<Self> {
        let (tcp, udp) = (target.tcp(family), target.udp(family));
        let (stream, backend) = greeted(family, tcp)?;
        expect(backend, family, TCP.1)?;
        let (connected, unconnected) = (client::udp_connected(family, udp)?, client::udp(family)?);
        for socket in [&connected, &unconnected] {
            expect(ask(socket, udp)?.backend, family, UDP.1)?;
        }
        Ok(Self { stream, connected, unconnected })
    }

    /// UDP is answered as before.
    fn stay(&self, family: Family, target: &Target) -> Result {
        for socket in [&self.connected, &self.unconnected] {
            expect(ask(socket, target.udp(family))?.backend, family, UDP.1)?;
        }
        Ok(())
    }
}

fn expect(backend: SocketAddr, family: Family, port: u16) -> Result {
    ensure!(backends(Distance::Near, BEFORE, family, port).contains(&backend), "{backend}");
    Ok(())
}
