//! UDP, connected or not.

use mcs_tests::client::Reply;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{MMsgHdr, RecvAncillaryBuffer, SocketAddrAny};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    everywhere(suite, "UDP connect and send", connects);
    everywhere(suite, "UDP sendto", sends_to);
    everywhere(suite, "UDP sendmsg", sends_messages);
    everywhere(suite, "UDP sendmmsg", sends_many_messages);
    everywhere(suite, "UDP over all backends", spreads);
    suite.case("UDP with an IPv4 address on an IPv6 socket", uses_v4_on_v6);
    each_family(suite, "UDP keeps a backend for a socket", keeps_backend);
    each_family(suite, "UDP leaves a backend that is gone", leaves_backend);
    each_family(suite, "UDP reply of a backend that is gone", shows_late_reply);
    each_family(suite, "UDP with two VIPs on one socket", tells_vips_apart);
    each_family(suite, "UDP error queue shows the backend (a limit)", error_queue);
}

/// The reply comes from a backend of `web`, which saw the client, and shows the VIP.
fn check(world: &World, family: Family, socket: &UdpSocket, reply: Reply) -> Result {
    let Reply { backend, source } = reply;
    assert!(backends(World::WEB, family, UDP.1).contains(&backend), "{backend} is not of web");
    assert_eq!(source, world.web.udp(family), "source of the reply");
    let port = socket.local_addr()?.port();
    let seen = world.server(Protocol::Udp, backend)?.seen();
    assert!(seen.iter().any(|client| client.port() == port), "the server saw {seen:?}, not {port}");
    Ok(())
}

fn connects(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let vip = world.web.udp(family);
        let socket = udp_connected(family, vip)?;
        assert_eq!(socket.peer_addr()?, vip, "peer name");
        for _ in 0..3 {
            socket.send(b"who are you")?;
            check(world, family, &socket, receive(&socket)?)?;
        }
        socket.send(b"who are you")?;
        check(world, family, &socket, receive_message(&socket, RecvFlags::empty())?)
    })
}

fn sends_to(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp(family)?;
        let reply = ask(&socket, world.web.udp(family))?;
        check(world, family, &socket, reply)?;
        assert!(socket.peer_addr().is_err(), "sendto has connected the socket");
        Ok(())
    })
}

fn sends_messages(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp(family)?;
        rustix::net::sendmsg_addr(
            &socket,
            &world.web.udp(family),
            &[IoSlice::new(b"who are "), IoSlice::new(b"you")],
            &mut SendAncillaryBuffer::default(),
            SendFlags::empty(),
        )?;
        check(world, family, &socket, receive_message(&socket, RecvFlags::empty())?)
    })
}

fn sends_many_messages(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp(family)?;
        let address = SocketAddrAny::from(world.web.udp(family));
        let payload = [IoSlice::new(b"who are you")];
        let mut control = [SendAncillaryBuffer::default(), SendAncillaryBuffer::default()];
        let mut messages: Vec<_> = control
            .iter_mut()
            .map(|control| MMsgHdr::new_with_addr(&address, &payload, control))
            .collect();
        assert_eq!(rustix::net::sendmmsg(&socket, &mut messages, SendFlags::empty())?, 2);
        let replies = [receive(&socket)?, receive(&socket)?];
        assert_eq!(replies[0], replies[1]);
        check(world, family, &socket, replies[0])
    })
}

/// recvmsg(2).
fn receive_message(socket: &UdpSocket, flags: RecvFlags) -> Result<Reply> {
    let mut buffer = [0; 128];
    let mut control = [];
    let message = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut buffer)],
        &mut RecvAncillaryBuffer::new(&mut control),
        flags,
    )?;
    let source = message.address.context("no source address")?.try_into()?;
    let text = std::str::from_utf8(&buffer[..message.bytes])?;
    Ok(Reply { backend: text.parse().unwrap_or(source), source })
}

fn spreads(world: &World, family: Family, place: Place) -> Result {
    let seen = world.at(place, || {
        (0..60).map(|_| Ok(ask(&udp(family)?, world.web.udp(family))?.backend)).collect()
    });
    let seen: BTreeSet<SocketAddr> = seen?;
    assert_eq!(seen, BTreeSet::from_iter(backends(World::WEB, family, UDP.1)));
    Ok(())
}

fn uses_v4_on_v6(world: &mut World) -> Result {
    let world = &*world;
    world.at(Place::Pod, || {
        let vip = world.web.udp(Family::V4);
        let socket = udp(Family::Mapped)?;
        let reply = ask(&socket, vip)?;
        check(world, Family::Mapped, &socket, reply)?;
        let socket = udp_connected(Family::Mapped, vip)?;
        socket.send(b"who are you")?;
        check(world, Family::Mapped, &socket, receive(&socket)?)?;
        assert_eq!(socket.peer_addr()?, world.web.udp(Family::Mapped), "peer name");
        Ok(())
    })
}

fn keeps_backend(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp(family)?;
        let first = ask(&socket, world.web.udp(family))?;
        for _ in 0..20 {
            assert_eq!(ask(&socket, world.web.udp(family))?, first);
        }
        Ok(())
    })
}

fn leaves_backend(world: &World, family: Family, place: Place) -> Result {
    let target = world.fresh("leaving").with(&PODS[..3]);
    world.site.apply(&target.service)?;
    let sockets = world.at(place, || {
        let sockets = (0..12).map(|_| {
            let socket = udp(family)?;
            let backend = ask(&socket, target.udp(family))?.backend;
            Ok((socket, backend))
        });
        sockets.collect::<Result<Vec<_>>>()
    })?;
    world.site.apply(&target.clone().with(&PODS[1..4]).service)?;
    let gone = backends(&PODS[..1], family, UDP.1)[0];
    for (socket, before) in sockets {
        let now = ask(&socket, target.udp(family))?;
        assert_eq!(now.source, target.udp(family));
        if before == gone {
            assert!(backends(&PODS[1..4], family, UDP.1).contains(&now.backend), "{now:?}");
            assert_eq!(ask(&socket, target.udp(family))?, now, "the new backend is not kept");
        } else {
            assert_eq!(now.backend, before, "moved for no reason");
        }
    }
    world.site.remove(&target.service)
}

fn shows_late_reply(world: &World, family: Family, place: Place) -> Result {
    let target = world.fresh("late").with(&PODS[..1]);
    world.site.apply(&target.service)?;
    let (sender, connected) = world.at(place, || {
        let sender = udp(family)?;
        sender.send_to(b"who are you", target.udp(family))?;
        let connected = udp_connected(family, target.udp(family))?;
        connected.send(b"who are you")?;
        Ok((sender, connected))
    })?;
    world.site.apply(&target.clone().with(&PODS[1..2]).service)?;
    // The hook that shows the VIP runs when the reply is read, not when it comes.
    for socket in [&sender, &connected] {
        let reply = receive(socket)?;
        assert_eq!(reply.backend, backends(&PODS[..1], family, UDP.1)[0]);
        assert_eq!(reply.source, target.udp(family));
    }
    assert_eq!(connected.peer_addr()?, target.udp(family), "peer name");
    world.site.remove(&target.service)
}

fn tells_vips_apart(world: &World, family: Family, place: Place) -> Result {
    let targets = [world.fresh("one"), world.fresh("two")].map(|target| target.with(&PODS));
    for target in &targets {
        world.site.apply(&target.service)?;
    }
    let shared = world.at(place, || {
        let mut shared = 0;
        for _ in 0..60 {
            let socket = udp(family)?;
            for target in &targets {
                socket.send_to(b"who are you", target.udp(family))?;
            }
            let replies = [receive(&socket)?, receive(&socket)?];
            if replies[0].backend == replies[1].backend {
                shared += 1;
            } else {
                let sources = BTreeSet::from(replies.map(|reply| reply.source));
                assert_eq!(sources, targets.each_ref().map(|target| target.udp(family)).into());
            }
        }
        Ok(shared)
    })?;
    // Chosen blindly, the two would share a backend every sixth time.
    assert!(shared <= 2, "{shared} of 60 sockets have one backend for both VIPs");
    targets.iter().try_for_each(|target| world.site.remove(&target.service))
}

/// No hook sees what the error queue tells.
fn error_queue(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp(family)?;
        if family == Family::V6 {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        }
        socket.send_to(b"anybody there", world.web.at(family, DEAF.0))?;
        // The ICMP error is on its way.
        let mut events = [PollFd::new(&socket, PollFlags::ERR)];
        poll(&mut events, Some(&Timespec { tv_sec: 2, tv_nsec: 0 }))?;
        let error = receive_message(&socket, RecvFlags::ERRQUEUE)?;
        let mut shown = backends(World::WEB, family, DEAF.1).into_iter();
        let error = error.source;
        assert!(shown.any(|backend| family.written(backend) == error), "{error}");
        Ok(())
    })
}
