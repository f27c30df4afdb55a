//! Traffic to addresses that are no VIP is not changed.

use std::net::Shutdown;

use rustix::net::{
    bind,
    sockopt::{set_socket_linger, set_socket_reuseaddr},
};

use crate::prelude::*;

const BYTES: usize = 2_000_000;
/// Longer than one takes.
const ROUND_TRIP: Duration = Duration::from_millis(200);

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "direct traffic, no VIP", passes);
    each(
        suite,
        &Layout::ALL,
        "a direct connection from the port of one by VIP that has ended",
        reuses_port,
    );
    each(suite, &Layout::ALL, "a direct connection and one by VIP from one port", shares_port);
    each(suite, &Layout::ALL, "a direct socket of UDP with the port of a closed one", frees_port);
}

/// TCP and UDP to remote pods at both distances, and to the other pod of the node.
fn passes(world: &World, layout: Layout, family: Family) -> Result {
    let pod = world.place.pod(layout)?;
    let peer = world.place.peer(layout)?;
    let counted = world.site.agent.counters()?;
    let remote = |port| Distance::ALL.map(|distance| backends(distance, &[16], family, port));
    pod.netns.run(|| {
        let local = family.address(peer.v4(), peer.v6(), TCP.1);
        for to in remote(TCP.1).into_iter().flatten().chain([local]) {
            let (stream, identity) = greeted(family, to)?;
            ensure!(identity == to, "{to} says that it is {identity}");
            bulk(&stream, BYTES)?;
        }
        let local = family.address(peer.v4(), peer.v6(), UDP.1);
        for to in remote(UDP.1).into_iter().flatten().chain([local]) {
            let socket = client::udp(family)?;
            let reply = ask(&socket, to)?;
            ensure!((reply.backend, reply.source) == (to, to), "{to} answers as {reply:?}");
            ask_until_known(&socket, to, 4000)?;
        }
        anyhow::Ok(())
    })??;
    ensure!(world.site.agent.counters()? == counted, "something was counted");
    Ok(())
}

/// How a client ends its connection.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Close,
}

/// A direct connection from the port of an earlier connection by VIP, to the backend of that connection.
fn reuses_port(world: &World, layout: Layout, family: Family) -> Result {
    world.place.pod(layout)?.netns.run(|| {
        for end in [End::Reset, End::Close] {
            let (by_vip, backend) = greeted_on(reusable(family)?, world.web.tcp(family))?;
            let client = by_vip.local_addr()?;
            finish(by_vip, end)?;
            let (stream, identity) = greeted_on(reusable_from(family, client)?, backend)?;
            ensure!(identity == backend, "{backend} says that it is {identity}");
            bulk(&stream, BYTES).with_context(|| format!("after {end:?}"))?;
        }
        Ok(())
    })?
}

/// The direct connection that comes later is refused, and a VIP's that comes later gets another backend or port.
fn shares_port(world: &World, layout: Layout, family: Family) -> Result {
    world.place.pod(layout)?.netns.run(|| {
        let vip = world.web.tcp(family);
        let (by_vip, backend) = greeted_on(reusable(family)?, vip)?;
        let client = by_vip.local_addr()?;
        let refused = || anyhow::Ok(world.site.agent.counters()?["packet_refused_collision"]);
        let before = refused()?;
        let direct = client::connect(&reusable_from(family, client)?, backend);
        ensure!(
            direct.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused),
            "{direct:?}"
        );
        ensure!(refused()? == before + 1, "refused {} times", refused()? - before);
        still_goes(&by_vip, vip)?;
        finish(by_vip, End::Reset)?;

        // The VIP leads from this port to this backend.
        let (direct, identity) = greeted_on(reusable_from(family, client)?, backend)?;
        ensure!(identity == backend, "{backend} says that it is {identity}");
        let (by_vip, _) = greeted_on(reusable_from(family, client)?, vip)?;
        still_goes(&direct, backend)?;
        still_goes(&by_vip, vip)?;
        for stream in [direct, by_vip] {
            bulk(&stream, BYTES)?;
        }
        Ok(())
    })?
}

/// The flow of the closed socket takes one reply. The pod's kernel answers it, and the next one arrives.
fn frees_port(world: &World, layout: Layout, family: Family) -> Result {
    world.place.pod(layout)?.netns.run(|| {
        let by_vip = client::udp(family)?;
        let backend = ask(&by_vip, world.web.udp(family))?.backend;
        let client = by_vip.local_addr()?;
        drop(by_vip);
        let direct = client::udp(family)?;
        bind(&direct, &client)?;
        client::connect(&direct, backend)?;
        let patience = direct.read_timeout()?;
        direct.set_read_timeout(Some(wait::scaled(ROUND_TRIP)))?;
        direct.send(b"who are you")?;
        if receive_nameless(&direct).is_err() {
            direct.set_read_timeout(patience)?;
            direct.send(b"who are you")?;
            let identity = receive_nameless(&direct)?;
            ensure!(identity == backend, "{backend} says that it is {identity}");
        }
        Ok(())
    })?
}

/// Ends a connection, so that both sides know.
fn finish(mut stream: TcpStream, end: End) -> Result {
    match end {
        End::Reset => set_socket_linger(&stream, Some(Duration::ZERO))?,
        End::Close => {
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new())?;
        }
    }
    Ok(())
}

/// A TCP socket with `SO_REUSEADDR`: another one can bind its port after its end.
fn reusable(family: Family) -> Result<TcpStream> {
    let socket = client::tcp(family)?;
    set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

/// The same with this port.
fn reusable_from(family: Family, client: SocketAddr) -> Result<TcpStream> {
    let socket = reusable(family)?;
    bind(&socket, &client)?;
    Ok(socket)
}
