//! What a run of each program takes.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use aya::sys::{Stats, enable_stats};
use mcs_tests::bpf::AttachType;
use rustix::net::sockopt::set_socket_linger;

use super::{Case, Sizes};
use crate::{
    contender::Contender,
    figures::Unit,
    hooks::{Family, HOOKS, Hook, ran},
    lane::{Lane, backends, backends_v6},
    objects::{APART, Port, Service, UDP_APART},
    plan::Plan,
    session::Session,
};

pub(crate) const CASE: Case = Case {
    name: mcs_tests::subjects::PROGRAMS.name,
    note: "By BPF_ENABLE_STATS under real traffic; empty is a program at the same hook that does nothing. \
           What the kernel takes to look at its clock is in all of them. Servers are outside of the cgroup.",
    sizes: Sizes::Each,
    contenders: &CONTENDERS,
    time,
    run,
};

const CONTENDERS: [Contender; 3] = [Contender::Empty, Contender::Sockets, Contender::Packets];

/// Part of a quantity's name, with what it is reached by.
pub(crate) const MISS: &str = "miss";
const HIT: &str = "hit";

/// The quantities of this case that are about a miss.
pub(crate) fn misses() -> impl Iterator<Item = (String, Contender)> {
    HOOKS.iter().map(|hook| (quantity(hook, MISS), hook.contender))
}

fn quantity(hook: &Hook, reach: &str) -> String {
    format!("{}, {reach}", hook.name)
}

fn time(plan: &Plan, _: u32) -> Duration {
    Duration::from_micros(100) * plan.operations * plan.rounds * 12
}

fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let _stats = enable_stats(Stats::RunTime).context("cannot take the time of programs")?;
    for reach in [HIT, MISS] {
        for hook in HOOKS.iter().filter(|hook| hook.hits || reach == MISS) {
            let contenders = [Contender::Empty, hook.contender];
            let (target, operations) = (session.world.target(), session.plan.operations);
            let name = quantity(hook, reach);
            session.rounds(&name, Unit::Nanoseconds, &contenders, |lane: &Lane| {
                let before = ran(lane, hook)?;
                let family = hook.family.unwrap_or(Family::V4);
                let is_hit = reach == HIT && lane.contender != Contender::Empty;
                let to = |port| {
                    let target = is_hit.then_some(&target);
                    address(family, target, port)
                };
                let (tcp, udp) = (to(APART)?, to(UDP_APART)?);
                lane.as_client(lane.cpus.server, || match hook.attach {
                    AttachType::BPF_CGROUP_INET4_CONNECT
                    | AttachType::BPF_CGROUP_INET6_CONNECT
                    | AttachType::BPF_CGROUP_INET4_GETPEERNAME
                    | AttachType::BPF_CGROUP_INET6_GETPEERNAME => connect(tcp, operations),
                    _ => exchange(family, udp, operations),
                })?;
                let after = ran(lane, hook)?;
                let runs = after.runs - before.runs;
                let expected = operations..=operations + operations / 10;
                ensure!(
                    expected.contains(&u32::try_from(runs)?),
                    "it ran {runs} times for {operations} operations"
                );
                #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 runs")]
                let runs = runs as f64;
                Ok(after.time.saturating_sub(before.time).as_secs_f64() * 1e9 / runs)
            });
        }
    }
    Ok(())
}

/// Where a port of the target is reached, or that of a backend.
fn address(family: Family, target: Option<&Service>, port: Port) -> anyhow::Result<SocketAddr> {
    let vip = target.map(|target| match family {
        Family::V4 => Some(IpAddr::from(target.vip)),
        Family::V6 => target.vip_v6.map(IpAddr::from),
    });
    if let Some(vip) = vip {
        return Ok((vip.context("the target has no VIP of this family")?, port.frontend).into());
    }
    let backend = match family {
        Family::V4 => backends().first().copied().map(IpAddr::from),
        Family::V6 => backends_v6().first().copied().map(IpAddr::from),
    };
    Ok((backend.context("there is no backend")?, port.target).into())
}

/// Connects and asks for the peer, so many times.
fn connect(to: SocketAddr, count: u32) -> anyhow::Result<()> {
    for _ in 0..count {
        let mut stream = TcpStream::connect(to)?;
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        ensure!(stream.peer_addr()? == to, "another peer than {to}");
        stream.write_all(&[7])?;
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}

/// Sends a datagram and waits for it to come back, so many times on one socket.
fn exchange(family: Family, to: SocketAddr, count: u32) -> anyhow::Result<()> {
    let socket = match family {
        Family::V4 => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        Family::V6 => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    for _ in 0..count {
        socket.send_to(&[7], to)?;
        let (_, from) = socket.recv_from(&mut [0])?;
        ensure!(from == to, "an answer from {from}, not {to}");
    }
    Ok(())
}
