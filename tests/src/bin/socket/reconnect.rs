//! A socket that used a VIP connects to another address, or fails to.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each_family(suite, "UDP connect to a VIP, then to a pod", to_a_pod);
    each_family(suite, "UDP connect to a VIP, then to its backend", to_the_backend);
    each_family(suite, "UDP connect to a VIP, then to another", to_another_vip);
    each_family(suite, "UDP disconnect, then send to the backend", disconnected_to_the_backend);
    each_family(suite, "UDP disconnect, then send to the VIP", disconnected_to_the_vip);
    each_family(suite, "UDP send to a VIP, then to its backend", send_to_the_backend);
    each_family(suite, "UDP connected to a VIP sends to it", send_to_the_vip);
    each_family(suite, "UDP connected to a VIP sends to another", send_to_another_vip);
    each_family(suite, "UDP refused connect changes nothing", refused);
    each_family(suite, "UDP failed connects change nothing", failed);
    each_family(suite, "TCP disconnect, then to the backend", tcp_to_the_backend);
    each_family(suite, "TCP connect after failed ones", tcp_after_failures);
}

/// The socket's peer is shown as `peer`, also as the source of its replies. Returns who replies.
fn check(socket: &UdpSocket, peer: SocketAddr) -> Result<SocketAddr> {
    assert_eq!(socket.peer_addr()?, peer, "peer name");
    socket.send(b"who are you")?;
    let reply = receive(socket)?;
    assert_eq!(reply.source, peer, "source of the reply");
    Ok(reply.backend)
}

fn to_a_pod(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp_connected(family, world.web.udp(family))?;
        check(&socket, world.web.udp(family))?;
        let pod = family.written(backend(PODS[5], family, UDP.1));
        connect(&socket, pod)?;
        check(&socket, pod)?;
        connect(&socket, world.web.udp(family))?;
        check(&socket, world.web.udp(family))?;
        Ok(())
    })
}

fn to_the_backend(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp_connected(family, world.web.udp(family))?;
        let backend = family.written(check(&socket, world.web.udp(family))?);
        connect(&socket, backend)?;
        check(&socket, backend)?;
        Ok(())
    })
}

fn to_another_vip(world: &World, family: Family, place: Place) -> Result {
    let other = world.fresh("other").with(World::WEB);
    world.site.apply(&other.service)?;
    world.at(place, || {
        let socket = udp(family)?;
        // Both have the same backends, so some come twice in a row.
        for target in [&world.web, &other].into_iter().cycle().take(12) {
            connect(&socket, target.udp(family))?;
            check(&socket, target.udp(family))?;
        }
        Ok(())
    })?;
    world.site.remove(&other.service)
}

fn disconnected_to_the_backend(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp_connected(family, world.web.udp(family))?;
        let backend = family.written(check(&socket, world.web.udp(family))?);
        disconnect(&socket)?;
        let error = socket.peer_addr().map_err(|error| error.kind());
        assert_eq!(error, Err(io::ErrorKind::NotConnected));
        assert_eq!(ask(&socket, backend)?.source, backend);
        Ok(())
    })
}

fn disconnected_to_the_vip(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let vip = world.web.udp(family);
        for _ in 0..10 {
            let socket = udp_connected(family, vip)?;
            check(&socket, vip)?;
            // An IPv6 socket hears from its former peer only, on kernels as of today: sk_v6_daddr
            // stays (__udp_disconnect, net/ipv4/udp.c).
            disconnect(&socket)?;
            assert_eq!(ask(&socket, vip)?.source, vip);
        }
        Ok(())
    })
}

fn send_to_the_backend(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp(family)?;
        let vip = world.web.udp(family);
        let reply = ask(&socket, vip)?;
        let backend = family.written(reply.backend);
        assert_eq!(ask(&socket, backend)?.source, backend);
        assert_eq!(ask(&socket, vip)?, reply, "the backend is kept, and shown as the VIP again");
        Ok(())
    })
}

/// The kernel delivers to a connected socket what its peer sends, and nothing else.
fn send_to_the_vip(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let vip = world.web.udp(family);
        for _ in 0..10 {
            let socket = udp_connected(family, vip)?;
            assert_eq!(ask(&socket, vip)?.source, vip);

            let socket = udp(family)?;
            ask(&socket, vip)?;
            connect(&socket, vip)?;
            assert_eq!(ask(&socket, vip)?.source, vip, "after sendto and connect");
        }
        Ok(())
    })
}

fn send_to_another_vip(world: &World, family: Family, place: Place) -> Result {
    let other = world.fresh("other").with(&PODS[3..4]);
    world.site.apply(&other.service)?;
    world.at(place, || {
        let socket = udp_connected(family, world.web.udp(family))?;
        check(&socket, world.web.udp(family))?;
        let server = world.server(Protocol::Udp, backend(PODS[3], family, UDP.1))?;
        server.seen();
        socket.send_to(b"who are you", other.udp(family))?;
        // Its answer is lost, as without VIPs.
        check(&socket, world.web.udp(family))?;
        let port = socket.local_addr()?.port();
        wait::until("the datagram to arrive", || {
            ensure!(server.seen().iter().any(|client| client.port() == port), "it was not sent");
            Ok(())
        })
    })?;
    world.site.remove(&other.service)
}

fn refused(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let socket = udp_connected(family, world.web.udp(family))?;
        let before = check(&socket, world.web.udp(family))?;
        assert!(connect(&socket, world.empty.udp(family)).is_err());
        assert_eq!(check(&socket, world.web.udp(family))?, before);
        Ok(())
    })
}

fn failed(world: &World, family: Family, place: Place) -> Result {
    // Two, since what a failed connect leaves must not be taken for the connection.
    let lost = [(1, "lost"), (2, "strayed")].map(|(host, name)| without_route(world, host, name));
    for target in &lost {
        world.site.apply(&target.service)?;
    }
    world.at(place, || {
        let socket = udp_connected(family, world.web.udp(family))?;
        let before = check(&socket, world.web.udp(family))?;
        for target in &lost {
            let error = connect(&socket, target.udp(family)).map_err(|error| error.kind());
            assert_eq!(error, Err(io::ErrorKind::NetworkUnreachable));
            assert_eq!(check(&socket, world.web.udp(family))?, before);
        }
        Ok(())
    })?;
    lost.iter().try_for_each(|target| world.site.remove(&target.service))
}

/// Its only endpoint is where no route leads, so that the connect fails after the hook.
fn without_route(world: &World, host: u8, name: &str) -> Target {
    let mut target = world.fresh(name);
    let (v4, v6) = nowhere(host);
    target.service = target.service.endpoints("nowhere", [v4.into(), v6.into()]);
    target
}

fn tcp_to_the_backend(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let stream = connected(family, world.web.tcp(family))?;
        let backend = family.written(identity(&stream)?);
        assert_eq!(stream.peer_addr()?, world.web.tcp(family));
        disconnect(&stream)?;
        connect(&stream, backend)?;
        assert_eq!(stream.peer_addr()?, backend, "peer name");
        assert_eq!(family.written(identity(&stream)?), backend);
        Ok(())
    })
}

fn tcp_after_failures(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let stream = client::tcp(family)?;
        assert!(connect(&stream, world.empty.tcp(family)).is_err());
        let error = connect(&stream, world.web.at(family, DEAF.0)).map_err(|error| error.kind());
        assert_eq!(error, Err(io::ErrorKind::ConnectionRefused));
        connect(&stream, world.web.tcp(family))?;
        assert_eq!(identity(&stream)?.port(), TCP.1);
        assert_eq!(stream.peer_addr()?, world.web.tcp(family), "peer name");
        Ok(())
    })
}
