//! Sockets that change hands or roles: duplicated, passed on, inherited, of another namespace, older than the agent,
//! and servers that were clients.

#![expect(unsafe_code, reason = "unshare(2)")]

use std::{mem::MaybeUninit, net::TcpListener, os::unix::net::UnixStream};

use mcs_tests::site::place;
use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryMessage, listen, recvmsg, sendmsg,
    },
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::{prelude::*, slots::until_free};

pub(crate) fn cases(suite: &mut Suite<World>) {
    each_family(suite, "a socket of several holders stays as long as the last", changes_hands);
    each_family(suite, "a socket of another namespace than its user's", is_of_another_namespace);
    suite.case("TCP sockets that connected to a VIP become servers", become_servers);
    suite.case("sockets that are older than the agent", are_older);
    each_family(suite, "a client in a cgroup namespace below", is_in_a_namespace);
}

/// A pair of sockets that are connected to `web`.
fn pair(world: &World, family: Family) -> Result<(TcpStream, UdpSocket)> {
    let stream = connected(family, world.web.tcp(family))?;
    Ok((stream, udp_connected(family, world.web.udp(family))?))
}

fn show_vips(world: &World, family: Family, (stream, socket): &(TcpStream, UdpSocket)) -> Result {
    ensure!(stream.peer_addr()? == world.web.tcp(family), "TCP shows {}", stream.peer_addr()?);
    ensure!(socket.peer_addr()? == world.web.udp(family), "UDP shows {}", socket.peer_addr()?);
    socket.send(b"who are you")?;
    let source = receive(socket)?.source;
    ensure!(source == world.web.udp(family), "a reply shows {source}");
    Ok(())
}

/// The slot goes with the last holder of the socket, not with the first that closes it.
fn changes_hands(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let first = pair(world, family)?;
        let second = (first.0.try_clone()?, first.1.try_clone()?);
        drop(first);
        show_vips(world, family, &second).context("after dup(2)")?;

        let third = pass(&second)?;
        drop(second);
        show_vips(world, family, &third).context("after SCM_RIGHTS")?;

        let told = told_by_child(third.0.try_clone()?.into())?;
        ensure!(told == world.web.tcp(family), "a child is told {told}");
        show_vips(world, family, &third).context("after a child has closed its own")?;
        identity(&third.0).map(drop)
    })
}

/// Sends both through a Unix socket, and receives them.
fn pass((stream, socket): &(TcpStream, UdpSocket)) -> Result<(TcpStream, UdpSocket)> {
    let (from, to) = UnixStream::pair()?;
    let fds = [stream.as_fd(), socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    ensure!(control.push(SendAncillaryMessage::ScmRights(&fds)), "no space for two sockets");
    sendmsg(&from, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())?;

    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&to, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    let stream = fds.next().context("no first socket")?;
    Ok((stream.into(), fds.next().context("no second socket")?.into()))
}

/// The peer's name, as a process is told that has the socket as its standard input.
fn told_by_child(socket: OwnedFd) -> Result<SocketAddr> {
    const SCRIPT: &str = "
import socket
peer = socket.socket(fileno=0).getpeername()
print(('[%s]:%d' if ':' in peer[0] else '%s:%d') % peer[:2])
";
    let mut command = Command::new("python3");
    let command = command.args(["-c", SCRIPT]).stdin(Stdio::from(socket));
    let Ok(output) = command.output() else { return Err(skip("there is no python3")) };
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// As a service manager or a container runtime makes sockets for others: routes are those of the socket.
fn is_of_another_namespace(world: &World, family: Family, place: Place) -> Result {
    let (stream, socket) = world.at(Place::Node, || Ok((tcp(family)?, udp(family)?)))?;
    world.at(place, || {
        connect(&stream, world.web.tcp(family))?;
        connect(&socket, world.web.udp(family))?;
        let pair = (stream, socket);
        show_vips(world, family, &pair)?;
        let server = world.server(Protocol::Tcp, identity(&pair.0)?)?;
        let own = pair.0.local_addr()?;
        let own = SocketAddr::new(own.ip().to_canonical(), own.port());
        let seen = server.seen();
        ensure!(seen.contains(&own), "the server saw {seen:?}, not {own} of the node");
        Ok(())
    })
}

/// An accepted socket is another one: nothing of its listener's past shows.
fn become_servers(world: &mut World) -> Result {
    let direct = tcp(Family::V4)?;
    ensure!(connect(&direct, (Ipv4Addr::LOCALHOST, UNKNOWN_PORT).into()).is_err(), "it connected");
    if let Err(error) = listen(&direct, 1) {
        return Err(skip(format!(
            "no socket listens here that has connected, to whatever: {error}"
        )));
    }
    let target = world.fresh("past").with(World::WEB);
    let site = world.start("servers", &[], &[&target.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    for family in Family::ALL {
        world.at(Place::Pod, || {
            let after_success = tcp(family)?;
            connect(&after_success, target.tcp(family))?;
            identity(&after_success)?;
            disconnect(&after_success)?;
            let after_failure = tcp(family)?;
            ensure!(connect(&after_failure, target.at(family, DEAF.0)).is_err(), "it connected");
            for listener in [after_success, after_failure] {
                serve(listener).with_context(|| family.to_string())?;
            }
            Ok(())
        })?;
    }
    until_free(&site)
}

fn serve(listener: TcpStream) -> Result {
    listen(&listener, 1)?;
    let listener = TcpListener::from(OwnedFd::from(listener));
    let mut own = listener.local_addr()?;
    own.set_ip(if own.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    let client = TcpStream::connect(own)?;
    let (accepted, peer) = listener.accept()?;
    let expected = client.local_addr()?;
    ensure!(peer == expected, "accept(2) tells {peer}, not {expected}");
    ensure!(accepted.peer_addr()? == expected, "its name is {}", accepted.peer_addr()?);
    ensure!(client.peer_addr()? == own, "the client sees {}", client.peer_addr()?);
    Ok(())
}

/// What was connected stays as it is; what connects or sends from now on is translated.
fn are_older(world: &mut World) -> Result {
    let target = world.fresh("later").with(&PODS[..1]);
    let manifests = Manifests::create(&world.run)?;
    manifests.write(&target.service)?;
    let source = Source::Manifests(manifests.path().to_owned());
    let (config, cgroup, _bpffs) = place(&world.run, "later", source, &[])?;
    let _in_cgroup = cgroup.visit()?;
    let pod = |family: Family, port| family.written(backend(PODS[0], family, port));
    let older = world.at(Place::Pod, || {
        let make = |family| {
            let direct = connected(family, pod(family, TCP.1))?;
            let asks = udp_connected(family, pod(family, UDP.1))?;
            Ok((family, direct, asks, tcp(family)?, udp(family)?))
        };
        Family::ALL.into_iter().map(make).collect::<Result<Vec<_>>>()
    })?;
    let mut agent = Agent::start(&world.network.node.netns, config)?;
    agent.wait_until_healthy()?;
    for (family, direct, asks, stream, socket) in &older {
        let family = *family;
        ensure!(direct.peer_addr()? == pod(family, TCP.1), "TCP: {}", direct.peer_addr()?);
        identity(direct)?;
        asks.send(b"who are you")?;
        let source = receive(asks)?.source;
        ensure!(source == pod(family, UDP.1), "a reply to a direct peer shows {source}");

        connect(stream, target.tcp(family))?;
        ensure!(stream.peer_addr()? == target.tcp(family), "TCP: {}", stream.peer_addr()?);
        identity(stream)?;
        socket.send_to(b"who are you", target.udp(family))?;
        let source = receive(socket)?.source;
        ensure!(source == target.udp(family), "a reply shows {source}");
    }
    Ok(())
}

/// A container sees its own cgroup as the root.
fn is_in_a_namespace(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        // SAFETY: a cgroup namespace changes no memory, descriptors or credentials of the thread.
        unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }?;
        let cgroup = BufReader::new(std::fs::File::open("/proc/thread-self/cgroup")?);
        let last = cgroup.lines().last().context("no cgroup")??;
        ensure!(last == "0::/", "the thread sees {last}");
        show_vips(world, family, &pair(world, family)?)
    })
}
