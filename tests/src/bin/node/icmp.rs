//! ICMP errors of routers and backends about packets to a VIP, and ping.

use std::{
    io::IoSliceMut,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use nix::{
    cmsg_space,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        SocketType, ipproto,
        sockopt::{Timeout, set_ip_ttl, set_ipv6_unicast_hops, set_socket_timeout},
    },
};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "traceroute by UDP", traces_udp);
    each(suite, &Layout::ALL, "traceroute by TCP", traces_tcp);
    each(suite, &Layout::ALL, "ping", pings);
}

/// The node, the router and the far router are before a far pod.
const HOPS: u8 = 3;

/// What the kernel tells of an ICMP error.
#[derive(Debug)]
struct Report {
    errno: i32,
    /// Who sent it.
    offender: IpAddr,
    /// Where the packet was going, as the socket knows it.
    destination: SocketAddr,
}

fn limit_hops(socket: impl AsFd, family: Family, hops: u8) -> Result {
    match family {
        Family::V6 => set_ipv6_unicast_hops(&socket, Some(hops))?,
        Family::V4 | Family::Mapped => set_ip_ttl(&socket, hops.into())?,
    }
    match family {
        Family::V6 => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
        Family::V4 | Family::Mapped => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
    }
    Ok(())
}

/// Waits for an ICMP error.
fn report(socket: impl AsFd) -> Result<Report> {
    let mut events = [PollFd::new(&socket, PollFlags::empty())];
    let events = poll(&mut events, Some(&Timespec { tv_sec: 2, tv_nsec: 0 }))?;
    ensure!(events > 0, "no ICMP error came");
    let mut payload = [0; 2048];
    let mut room = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
    let mut buffers = [IoSliceMut::new(&mut payload)];
    let descriptor = socket.as_fd().as_raw_fd();
    let message = recvmsg::<SockaddrStorage>(
        descriptor,
        &mut buffers,
        Some(&mut room),
        MsgFlags::MSG_ERRQUEUE,
    )?;
    let destination = message.address.as_ref().and_then(address).context("no destination")?;
    for control in message.cmsgs()? {
        let (error, offender) = match control {
            ControlMessageOwned::Ipv4RecvErr(error, offender) => {
                let offender = offender.context("no offender")?;
                (error, IpAddr::from(offender.sin_addr.s_addr.to_ne_bytes()))
            }
            ControlMessageOwned::Ipv6RecvErr(error, offender) => {
                let offender = offender.context("no offender")?;
                (error, IpAddr::from(offender.sin6_addr.s6_addr))
            }
            _ => continue,
        };
        let errno = i32::try_from(error.ee_errno)?;
        return Ok(Report { errno, offender, destination });
    }
    anyhow::bail!("an error without a report")
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port())))
}

/// The address towards the client of the router that is `hops` hops away. None for the node, which may answer from any address.
fn router(world: &World, family: Family, hops: u8) -> Option<IpAddr> {
    let [near, far] = world.place.routers();
    let pick = |(v4, v6)| family.address(v4, v6, 0).ip();
    match hops {
        2 => Some(pick(near)),
        3 => Some(pick(far)),
        _ => None,
    }
}

fn check(world: &World, family: Family, hops: u8, vip: SocketAddr, report: &Report) -> Result {
    ensure!(report.errno == libc::EHOSTUNREACH, "{hops} hops: {report:?}");
    ensure!(report.destination == vip, "{hops} hops: about another destination: {report:?}");
    ensure!(report.offender != vip.ip(), "{hops} hops: the VIP itself: {report:?}");
    if let Some(router) = router(world, family, hops) {
        ensure!(report.offender == router, "{hops} hops: {report:?} instead of {router}");
    }
    Ok(())
}

/// The routers on the way say so, and the pod behind them answers.
fn traces_udp(world: &World, layout: Layout, family: Family) -> Result {
    let vip = world.far.udp(family);
    world.place.pod(layout)?.netns.run(|| {
        for hops in 1..=HOPS {
            let socket = client::udp(family)?;
            limit_hops(&socket, family, hops)?;
            socket.send_to(b"how far", vip)?;
            check(world, family, hops, vip, &report(&socket)?)?;
        }
        let socket: UdpSocket = client::udp(family)?;
        limit_hops(&socket, family, HOPS + 1)?;
        let reply = ask(&socket, vip)?;
        let expected = backends(Distance::Far, World::FAR, family, UDP.1);
        ensure!(reply.source == vip && expected.contains(&reply.backend), "{reply:?}");
        anyhow::Ok(())
    })?
}

fn traces_tcp(world: &World, layout: Layout, family: Family) -> Result {
    let vip = world.far.tcp(family);
    world.place.pod(layout)?.netns.run(|| {
        for hops in 1..=HOPS {
            let stream = client::tcp(family)?;
            limit_hops(&stream, family, hops)?;
            // The error comes while the SYN is still being sent, and then does not end connect(2).
            stream.set_nonblocking(true)?;
            let begun = client::connect(&stream, vip).err().context("connected")?;
            ensure!(begun.raw_os_error() == Some(libc::EINPROGRESS), "{hops} hops: {begun}");
            check(world, family, hops, vip, &report(&stream)?)?;
        }
        let stream = client::tcp(family)?;
        limit_hops(&stream, family, HOPS + 1)?;
        client::connect(&stream, vip)?;
        let backend = client::identity(&stream)?;
        ensure!(backends(Distance::Far, World::FAR, family, TCP.1).contains(&backend), "{backend}");
        anyhow::Ok(())
    })?
}

/// The node answers.
fn pings(world: &World, layout: Layout, family: Family) -> Result {
    let pod = world.place.pod(layout)?;
    pod.netns.sysctl("ipv4/ping_group_range", "0 0")?;
    let vips = [world.web.tcp(family).ip(), world.empty.tcp(family).ip()];
    pod.netns.run(|| {
        for vip in vips {
            for size in [0, 56, 1_400] {
                ping(family, vip, size).with_context(|| format!("{size} bytes to {vip}"))?;
            }
        }
        anyhow::Ok(())
    })?
}

fn ping(family: Family, to: IpAddr, size: usize) -> Result {
    let (protocol, request, reply) = match family {
        Family::V6 => (ipproto::ICMPV6, 128, 129),
        Family::V4 | Family::Mapped => (ipproto::ICMP, 8, 0),
    };
    let domain = if family == Family::V6 {
        rustix::net::AddressFamily::INET6
    } else {
        rustix::net::AddressFamily::INET
    };
    let socket: OwnedFd = rustix::net::socket(domain, SocketType::DGRAM, Some(protocol))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
    // The kernel fills in checksum and identifier. The sequence number is 7.
    let mut message = vec![request, 0, 0, 0, 0, 0, 0, 7];
    message.extend(crate::exchange::pattern(size));
    // A ping socket is used as a UDP socket is.
    let socket = UdpSocket::from(socket);
    socket.send_to(&message, SocketAddr::new(to, 0))?;
    let mut buffer = [0; 2048];
    let (length, source) = socket.recv_from(&mut buffer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => anyhow::anyhow!("no reply"),
        _ => error.into(),
    })?;
    ensure!(source.ip() == to, "{source} answers");
    ensure!(buffer[0] == reply && buffer[6..length] == message[6..], "another answer");
    Ok(())
}
