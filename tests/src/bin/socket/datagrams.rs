//! Datagrams by rarer calls: batches of mixed destinations, segments, peeks, ancillary data, both families on one
//! socket, and a peer that is no VIP.

use std::os::fd::AsRawFd as _;

use nix::{
    cmsg_space,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg,
        setsockopt, sockopt,
    },
};
use rustix::net::{MMsgHdr, SocketAddrAny, recvfrom, sendmmsg, sockopt::set_ipv6_v6only};

use crate::{prelude::*, world};

pub(crate) fn cases(suite: &mut Suite<World>) {
    each_family(suite, "sendmmsg to VIPs and a pod in one call", sends_to_mixed);
    each_family(suite, "segments to two VIPs in one call", sends_segments);
    each_family(suite, "a datagram that is looked at first", peeks);
    each_family(
        suite,
        "a connected socket that sends with an address and without in turn",
        in_turn,
    );
    suite.case("datagrams with the address that the host is to use", names_its_address);
    suite.case("VIPs of both families on one socket, or of IPv6 alone", uses_both_families);
}

/// Two VIPs without a common backend.
fn with_two(world: &World, client: impl FnOnce(&[Target; 2]) -> Result + Send) -> Result {
    let targets =
        [("one", 0), ("two", 1)].map(|(name, pod)| world.fresh(name).with(&PODS[pod..=pod]));
    for target in &targets {
        world.site.apply(&target.service)?;
    }
    world.at(Place::Pod, || client(&targets))?;
    targets.iter().try_for_each(|target| world.site.remove(&target.service))
}

/// Sends one payload to each of these, by one call. Returns how many were sent.
fn send_all(socket: &UdpSocket, to: &[SocketAddr], payload: &[u8]) -> io::Result<usize> {
    let addresses: Vec<_> = to.iter().copied().map(SocketAddrAny::from).collect();
    let payload = [IoSlice::new(payload)];
    let mut control: Vec<_> = to.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let messages = addresses.iter().zip(&mut control);
    let mut messages: Vec<_> = messages
        .map(|(address, control)| MMsgHdr::new_with_addr(address, &payload, control))
        .collect();
    Ok(sendmmsg(socket, &mut messages, SendFlags::empty())?)
}

/// The sources of that many replies, in order of address.
fn sources(socket: &UdpSocket, count: usize) -> Result<Vec<SocketAddr>> {
    let mut sources =
        (0..count).map(|_| Ok(receive(socket)?.source)).collect::<Result<Vec<_>>>()?;
    sources.sort_unstable();
    Ok(sources)
}

fn sends_to_mixed(world: &World, family: Family, _: Place) -> Result {
    with_two(world, |[one, two]| {
        let socket = udp(family)?;
        let direct = family.written(backend(PODS[5], family, UDP.1));
        let mut to = [one.udp(family), direct, two.udp(family)];
        ensure!(send_all(&socket, &to, b"who are you")? == to.len(), "not all were sent");
        to.sort_unstable();
        let found = sources(&socket, to.len())?;
        ensure!(found == to, "replies of {found:?} instead of {to:?}");

        // What is refused ends the call, and takes nothing from what comes before and after.
        let refused = one.at(family, UNKNOWN_PORT);
        let to = [one.udp(family), refused, two.udp(family)];
        let sent = send_all(&socket, &to, b"who are you")?;
        ensure!(sent == 1, "{sent} sent before the one that is refused");
        let error = send_all(&socket, &to[1..], b"who are you").map_err(|error| error.kind());
        ensure!(error.is_err(), "what is refused was sent: {error:?}");
        ensure!(send_all(&socket, &to[2..], b"who are you")? == 1, "the last was not sent");
        let mut expected = [to[0], to[2]];
        expected.sort_unstable();
        let found = sources(&socket, 2)?;
        ensure!(found == expected, "replies of {found:?} instead of {expected:?}");
        Ok(())
    })
}

fn sends_segments(world: &World, family: Family, _: Place) -> Result {
    const SEGMENTS: usize = 3;
    let text = b"who are you";
    with_two(world, |[one, two]| {
        let socket = udp(family)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(text.len())?)?;
        let to = [one.udp(family), two.udp(family)];
        ensure!(send_all(&socket, &to, &text.repeat(SEGMENTS))? == to.len(), "not all were sent");
        let mut expected: Vec<_> = to.iter().flat_map(|vip| [*vip; SEGMENTS]).collect();
        expected.sort_unstable();
        let found = sources(&socket, expected.len())?;
        ensure!(found == expected, "replies of {found:?} instead of {expected:?}");
        Ok(())
    })
}

fn peeks(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let vip = world.web.udp(family);
        for socket in [udp(family)?, udp_connected(family, vip)?] {
            socket.send_to(b"who are you", vip)?;
            for flags in [RecvFlags::PEEK, RecvFlags::PEEK, RecvFlags::empty()] {
                let mut buffer = [0; 128];
                let (_, _, source) = recvfrom(&socket, &mut buffer, flags)?;
                let source = SocketAddr::try_from(source.context("no source")?)?;
                ensure!(source == vip, "with {flags:?} a reply shows {source}");
            }
        }
        Ok(())
    })
}

/// A connected socket hears from its peer alone, whatever it sends to others.
fn in_turn(world: &World, family: Family, _: Place) -> Result {
    with_two(world, |[one, two]| {
        let direct = family.written(backend(PODS[5], family, UDP.1));
        for peer in [direct, one.udp(family)] {
            let socket = udp_connected(family, peer)?;
            for _ in 0..3 {
                socket.send_to(b"who are you", two.udp(family))?;
                socket.send(b"who are you")?;
                let source = receive(&socket)?.source;
                ensure!(source == peer, "a reply of {peer} shows {source}");
                ensure!(socket.peer_addr()? == peer, "the peer is {}", socket.peer_addr()?);
            }
        }
        // A socket without a peer still has none.
        let socket = udp(family)?;
        ask(&socket, one.udp(family))?;
        let error = socket.send(b"who are you").err().and_then(|error| error.raw_os_error());
        ensure!(error == Some(libc::EDESTADDRREQ), "send(2) without a peer: {error:?}");
        Ok(())
    })
}

/// As servers with several addresses answer: `IP_PKTINFO` and `IPV6_PKTINFO`, sent and received.
fn names_its_address(world: &mut World) -> Result {
    let world = &*world;
    for family in [Family::V4, Family::V6] {
        world.at(Place::Pod, || {
            let socket = udp(family)?;
            let fd = socket.as_raw_fd();
            let vip = world.web.udp(family);
            let payload = [IoSlice::new(b"who are you")];
            let to = SockaddrStorage::from(vip);
            let flags = MsgFlags::empty();
            let own = world::identity(POD, 2, family, 0).ip();
            match own {
                IpAddr::V4(own) => {
                    setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
                    let own = libc::in_addr { s_addr: u32::from(own).to_be() };
                    let any = libc::in_addr { s_addr: 0 };
                    let info =
                        libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: own, ipi_addr: any };
                    let control = [ControlMessage::Ipv4PacketInfo(&info)];
                    sendmsg(fd, &payload, &control, flags, Some(&to))?;
                }
                IpAddr::V6(own) => {
                    setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
                    let own = libc::in6_addr { s6_addr: own.octets() };
                    let info = libc::in6_pktinfo { ipi6_addr: own, ipi6_ifindex: 0 };
                    let control = [ControlMessage::Ipv6PacketInfo(&info)];
                    sendmsg(fd, &payload, &control, flags, Some(&to))?;
                }
            }
            let mut buffer = [0; 128];
            let mut iov = [IoSliceMut::new(&mut buffer)];
            let mut space = cmsg_space!(libc::in6_pktinfo);
            let message = recvmsg::<SockaddrStorage>(fd, &mut iov, Some(&mut space), flags)?;
            let arrived_at = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    Some(IpAddr::from(u32::from_be(info.ipi_addr.s_addr).to_be_bytes()))
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    Some(IpAddr::from(info.ipi6_addr.s6_addr))
                }
                _ => None,
            });
            ensure!(arrived_at == Some(own), "{family}: the reply came to {arrived_at:?}");
            ensure!(message.address == Some(to), "{family}: it shows {:?}", message.address);
            Ok(())
        })?;
    }
    Ok(())
}

fn uses_both_families(world: &mut World) -> Result {
    let world = &*world;
    with_two(world, |[one, two]| {
        let socket = udp(Family::V6)?;
        let mut to = [
            one.udp(Family::V6),
            one.udp(Family::Mapped),
            two.udp(Family::Mapped),
            two.udp(Family::V6),
        ];
        ensure!(send_all(&socket, &to, b"who are you")? == to.len(), "not all were sent");
        to.sort_unstable();
        let found = sources(&socket, to.len())?;
        ensure!(found == to, "replies of {found:?} instead of {to:?}");

        // A socket that has no IPv4 gets none by a VIP either, and works on.
        let socket = udp(Family::V6)?;
        set_ipv6_v6only(&socket, true)?;
        let mapped = one.udp(Family::Mapped);
        let connects = connect(&socket, mapped).map_err(|error| error.kind());
        let sent = socket.send_to(b"who are you", mapped).map_err(|error| error.kind());
        ensure!(connects == Err(io::ErrorKind::NetworkUnreachable), "connect: {connects:?}");
        ensure!(sent == Err(io::ErrorKind::NetworkUnreachable), "send: {sent:?}");
        connect(&socket, one.udp(Family::V6))?;
        socket.send(b"who are you")?;
        receive_nameless(&socket)?;
        ensure!(socket.peer_addr()? == one.udp(Family::V6), "{}", socket.peer_addr()?);
        Ok(())
    })
}
