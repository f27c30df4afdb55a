//! What a run of each program takes.

use std::iter;

use aya::sys::{Stats, enable_stats};
use rustix::net::sockopt::set_socket_linger;

use super::{Case, Sizes};
use crate::{
    hooks::{Family, HOOKS, Hook, ran},
    prelude::*,
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

const CONTENDERS: [Contender; 4] =
    [Contender::Empty, Contender::Sockets, Contender::Packets, Contender::Cilium];

/// Where a client goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To a VIP.
    Hit,
    /// To a backend, by its own address.
    Backend,
    /// To somebody else.
    Miss,
}

/// The quantities of this case that are about a miss in these programs.
pub(crate) fn misses(reach: Reach, of: &[&str]) -> impl Iterator<Item = (String, Contender)> {
    let hooks = HOOKS.iter().filter(move |hook| of.iter().any(|of| hook.name.starts_with(of)));
    hooks.map(move |hook| (quantity(hook, reach), hook.contender))
}

fn quantity(hook: &Hook, reach: Reach) -> String {
    let reach = match reach {
        Reach::Hit => "hit",
        Reach::Backend => "miss, a backend",
        Reach::Miss => "miss",
    };
    format!("{}, {reach}", hook.name)
}

fn time(plan: &Plan, _: u32) -> Duration {
    Duration::from_micros(100) * plan.operations * plan.rounds * 18
}

fn run(session: &mut Session<'_>) -> Result {
    let _stats = enable_stats(Stats::RunTime).context("cannot take the time of programs")?;
    for reach in [Reach::Hit, Reach::Backend, Reach::Miss] {
        for hook in HOOKS.iter().filter(|hook| hook.hits || reach != Reach::Hit) {
            let mut contenders = vec![Contender::Empty, hook.contender];
            // It has services of IPv4 alone.
            if hook.contender == Contender::Sockets
                && (reach != Reach::Hit || hook.family == Some(Family::V4))
            {
                contenders.push(Contender::Cilium);
            }
            let (target, operations) = (session.world.target(), session.plan.operations);
            let name = quantity(hook, reach);
            session.rounds(&name, Unit::Nanoseconds, &contenders, |lane: &Lane| {
                let before = ran(lane, hook)?;
                let family = hook.family.unwrap_or(Family::V4);
                let reach = match reach {
                    Reach::Hit if lane.contender == Contender::Empty => Reach::Backend,
                    reach => reach,
                };
                let to = |port| addresses(family, reach, &target, port);
                let (tcp, udp) = (to(APART), to(UDP_APART));
                lane.as_client(lane.cpus.server, || match hook.attach {
                    AttachType::BPF_CGROUP_INET4_CONNECT
                    | AttachType::BPF_CGROUP_INET6_CONNECT
                    | AttachType::BPF_CGROUP_INET4_GETPEERNAME
                    | AttachType::BPF_CGROUP_INET6_GETPEERNAME => connect(&tcp, operations),
                    _ => exchange(family, &udp, operations),
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

/// Where a port is reached: in turn at each of these.
fn addresses(family: Family, reach: Reach, target: &Service, port: Port) -> Vec<SocketAddr> {
    let (v4, v6) = match reach {
        Reach::Hit => (vec![target.vip], target.vip_v6.into_iter().collect()),
        Reach::Backend => {
            (backends().into_iter().take(1).collect(), backends_v6().into_iter().take(1).collect())
        }
        Reach::Miss => (bystanders(), bystanders_v6()),
    };
    let ips: Vec<IpAddr> = match family {
        Family::V4 => v4.into_iter().map(IpAddr::from).collect(),
        Family::V6 => v6.into_iter().map(IpAddr::from).collect(),
    };
    let number = if reach == Reach::Hit { port.frontend } else { port.target };
    ips.into_iter().map(|ip| SocketAddr::new(ip, number)).collect()
}

/// So many of these addresses, in turn.
fn in_turn(to: &[SocketAddr], count: u32) -> Result<impl Iterator<Item = SocketAddr>> {
    ensure!(!to.is_empty(), "no address of this family");
    Ok(iter::repeat(to).flatten().copied().take(usize::try_from(count)?))
}

/// Connects and asks for the peer, this number of times.
fn connect(to: &[SocketAddr], count: u32) -> Result {
    for to in in_turn(to, count)? {
        let mut stream = TcpStream::connect(to)?;
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        ensure!(stream.peer_addr()? == to, "another peer than {to}");
        stream.write_all(&[7])?;
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}

/// Sends a datagram and waits until it comes back, this number of times on one socket.
fn exchange(family: Family, to: &[SocketAddr], count: u32) -> Result {
    let socket = match family {
        Family::V4 => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        Family::V6 => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    for to in in_turn(to, count)? {
        socket.send_to(&[7], to)?;
        let (_, from) = socket.recv_from(&mut [0])?;
        ensure!(from == to, "an answer from {from}, not {to}");
    }
    Ok(())
}
