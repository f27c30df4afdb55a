//! Connections to other addresses, and servers: unchanged.

use crate::{prelude::*, world};

pub(crate) fn cases(suite: &mut Suite<World>) {
    everywhere(suite, "directly to a pod", reaches_pods);
    everywhere(suite, "directly to what does not answer", fails_as_ever);
    each_family(suite, "a server of the node sees its clients", serves);
    each_family(suite, "a pod reaches itself through a VIP", reaches_itself);
    each_family(suite, "a server of the node behind a VIP sees its clients", serves_behind_a_vip);
    each_family(suite, "a server that uses a VIP itself sees its clients", serves_and_asks);
}

fn reaches_pods(world: &World, family: Family, place: Place) -> Result {
    let before = world.site.agent.counters()?;
    world.at(place, || {
        let pod = |port| family.written(backend(PODS[0], family, port));
        let stream = connected(family, pod(TCP.1))?;
        assert_eq!(family.written(identity(&stream)?), pod(TCP.1));
        assert_eq!(stream.peer_addr()?, pod(TCP.1));

        assert_eq!(ask(&udp(family)?, pod(UDP.1))?.source, pod(UDP.1));
        let socket = udp_connected(family, pod(UDP.1))?;
        socket.send(b"who are you")?;
        assert_eq!(receive(&socket)?.source, pod(UDP.1));
        assert_eq!(socket.peer_addr()?, pod(UDP.1));
        Ok(())
    })?;
    assert_eq!(world.site.agent.counters()?, before, "traffic to no VIP was counted");
    Ok(())
}

fn fails_as_ever(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let deaf = family.written(backend(PODS[0], family, DEAF.1));
        let error = connected(family, deaf).map_err(|error| error.kind()).err();
        assert_eq!(error, Some(io::ErrorKind::ConnectionRefused));
        let (v4, v6) = nowhere(1);
        let nowhere = family.address(v4, v6, TCP.1);
        let error = connected(family, nowhere).map_err(|error| error.kind()).err();
        assert_eq!(error, Some(io::ErrorKind::NetworkUnreachable));
        let error = udp(family)?.send_to(b"hello", nowhere).map_err(|error| error.kind()).err();
        assert_eq!(error, Some(io::ErrorKind::NetworkUnreachable));
        Ok(())
    })
}

/// Servers in the node's namespace and in the cgroup, at all addresses.
fn servers(world: &World, family: Family) -> Result<[Server; 2]> {
    let any: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        // An IPv6 socket serves IPv4 clients too.
        Family::V6 | Family::Mapped => Ipv6Addr::UNSPECIFIED.into(),
    };
    let node = &world.network.node.netns;
    Ok([
        Server::tcp(node, SocketAddr::new(any, TCP.1))?,
        Server::udp(node, SocketAddr::new(any, UDP.1))?,
    ])
}

/// A pod comes by TCP and by UDP, and the servers see it as it sees itself.
fn check(world: &World, family: Family, place: Place, [tcp, udp]: [SocketAddr; 2]) -> Result {
    let servers = servers(world, family)?;
    let clients = world.at(place, || {
        let stream = connected(family, tcp)?;
        identity(&stream)?;
        let socket = udp_connected(family, udp)?;
        socket.send(b"who are you")?;
        receive_nameless(&socket)?;
        Ok([stream.local_addr()?, socket.local_addr()?])
    })?;
    for (server, client) in servers.iter().zip(clients) {
        assert_eq!(server.seen(), [client], "at {}", server.address());
    }
    Ok(())
}

fn serves(world: &World, family: Family, place: Place) -> Result {
    let before = world.site.agent.counters()?;
    let node = |port| family.address(POD.v4(1), POD.v6(1), port);
    check(world, family, place, [node(TCP.1), node(UDP.1)])?;
    assert_eq!(world.site.agent.counters()?, before, "traffic to no VIP was counted");
    Ok(())
}

fn serves_behind_a_vip(world: &World, family: Family, place: Place) -> Result {
    let mut target = world.fresh("of-the-node");
    target.service = target.service.endpoints("here", POD.both(1));
    world.site.apply(&target.service)?;
    check(world, family, place, [target.tcp(family), target.udp(family)])?;
    check(world, family, Place::Node, [target.tcp(family), target.udp(family)])?;
    world.site.remove(&target.service)
}

fn reaches_itself(world: &World, family: Family, place: Place) -> Result {
    let mut target = world.fresh("of-the-pod");
    target.service = target.service.endpoints("here", POD.both(2));
    world.site.apply(&target.service)?;
    let own = |port| world::identity(POD, 2, family, port);
    let pod = world.netns(place);
    let _servers = (Server::tcp(pod, own(TCP.1))?, Server::udp(pod, own(UDP.1))?);
    world.at(place, || {
        let stream = connected(family, target.tcp(family))?;
        assert_eq!(identity(&stream)?, own(TCP.1));
        assert_eq!(stream.peer_addr()?, target.tcp(family));
        let reply = ask(&udp(family)?, target.udp(family))?;
        assert_eq!((reply.backend, reply.source), (own(UDP.1), target.udp(family)));
        Ok(())
    })?;
    world.site.remove(&target.service)
}

/// As a DNS forwarder does: it asks a VIP by the socket on which it serves.
fn serves_and_asks(world: &World, family: Family, place: Place) -> Result {
    let server = world.at(Place::Node, || {
        let server = udp(family)?;
        assert_eq!(ask(&server, world.web.udp(family))?.source, world.web.udp(family));
        Ok(server)
    })?;
    let address = family.address(POD.v4(1), POD.v6(1), server.local_addr()?.port());
    let client = world.at(place, || {
        let client = udp_connected(family, address)?;
        client.send(b"10.0.0.1:1")?;
        Ok(client)
    })?;
    assert_eq!(receive(&server)?.source, client.local_addr()?);
    Ok(())
}
