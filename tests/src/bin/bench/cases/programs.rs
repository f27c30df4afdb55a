//! What a run of each program takes.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use aya::{
    programs::loaded_programs,
    sys::{Stats, enable_stats},
};
use mcs_tests::bpf::{
    AttachType, Instruction, Link, Order, Program, ProgramType, attached_to_cgroup,
    attached_to_interface, code, instruction,
};
use rustix::net::sockopt::set_socket_linger;

use super::{Case, Sizes};
use crate::{
    contender::Contender,
    figures::Unit,
    lane::{Lane, backends, backends_v6},
    objects::{APART, Port, Service, UDP_APART},
    plan::Plan,
    session::Session,
};

pub(crate) const CASE: Case = Case {
    name: mcs_tests::subjects::PROGRAMS.name,
    note: "By BPF_ENABLE_STATS under real traffic; direct is a program at the same hook that does nothing. \
           What the kernel takes to look at its clock is in all of them. Servers are outside of the cgroup.",
    sizes: Sizes::Each,
    contenders: &CONTENDERS,
    time,
    run,
};

const CONTENDERS: [Contender; 3] = [Contender::Direct, Contender::Sockets, Contender::Packets];

/// Where a program is attached.
#[derive(Clone, Copy)]
enum Place {
    Cgroup,
    /// An interface of the node.
    Device(&'static str),
}

/// A hook, whose programs run for sockets of one family, or for packets.
struct Hook {
    name: &'static str,
    place: Place,
    attach: AttachType,
    /// Whose program it is.
    contender: Contender,
    /// None for packets.
    family: Option<Family>,
    /// Whether it meets ClusterSetIPs at all.
    hits: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

const fn socket(name: &'static str, attach: AttachType, family: Family) -> Hook {
    let (place, contender) = (Place::Cgroup, Contender::Sockets);
    Hook { name, place, attach, contender, family: Some(family), hits: true }
}

const fn packet(name: &'static str, device: &'static str, attach: AttachType, hits: bool) -> Hook {
    let (place, contender) = (Place::Device(device), Contender::Packets);
    Hook { name, place, attach, contender, family: None, hits }
}

const HOOKS: [Hook; 11] = [
    socket("connect4", AttachType::BPF_CGROUP_INET4_CONNECT, Family::V4),
    socket("connect6", AttachType::BPF_CGROUP_INET6_CONNECT, Family::V6),
    socket("sendmsg4", AttachType::BPF_CGROUP_UDP4_SENDMSG, Family::V4),
    socket("sendmsg6", AttachType::BPF_CGROUP_UDP6_SENDMSG, Family::V6),
    socket("recvmsg4", AttachType::BPF_CGROUP_UDP4_RECVMSG, Family::V4),
    socket("recvmsg6", AttachType::BPF_CGROUP_UDP6_RECVMSG, Family::V6),
    socket("getpeername4", AttachType::BPF_CGROUP_INET4_GETPEERNAME, Family::V4),
    socket("getpeername6", AttachType::BPF_CGROUP_INET6_GETPEERNAME, Family::V6),
    packet("from_pod", "client", AttachType::BPF_TCX_INGRESS, true),
    packet("to_pod", "client", AttachType::BPF_TCX_EGRESS, true),
    packet("uplink", "servers", AttachType::BPF_TCX_EGRESS, false),
];

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
    let direct = session.lane(Contender::Direct)?;
    let links = HOOKS.iter().map(|hook| attach_trivial(direct, hook));
    let _links: Vec<Link> = links.collect::<Result<_, _>>()?;
    for reach in [HIT, MISS] {
        for hook in HOOKS.iter().filter(|hook| hook.hits || reach == MISS) {
            let contenders = [Contender::Direct, hook.contender];
            let (target, operations) = (session.world.target(), session.plan.operations);
            let name = quantity(hook, reach);
            session.rounds(&name, Unit::Nanoseconds, &contenders, |lane: &Lane| {
                let before = ran(lane, hook)?;
                let family = hook.family.unwrap_or(Family::V4);
                let is_hit = reach == HIT && lane.contender != Contender::Direct;
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

/// How often programs ran, and how long in all.
struct Ran {
    runs: u64,
    time: Duration,
}

/// What the program of the lane's hook did so far. Those of cgroups above come after it, those of others on a
/// device before.
fn ran(lane: &Lane, hook: &Hook) -> anyhow::Result<Ran> {
    let id = match hook.place {
        Place::Cgroup => {
            let cgroup = File::open(lane.cgroup.path())?;
            attached_to_cgroup(cgroup, hook.attach as u32)?.first().copied()
        }
        Place::Device(device) => {
            let index = lane.node.index(device)?;
            lane.node.run(|| attached_to_interface(index, hook.attach))??.last().copied()
        }
    };
    let id = id.with_context(|| format!("no program at {}", hook.name))?;
    let info = loaded_programs().find(|info| info.as_ref().is_ok_and(|info| info.id() == id));
    let info = info.with_context(|| format!("program {id} is gone"))??;
    Ok(Ran { runs: info.run_count(), time: info.run_time() })
}

/// Attaches a program that does nothing.
fn attach_trivial(lane: &Lane, hook: &Hook) -> anyhow::Result<Link> {
    /// The next program decides, or the kernel: `TCX_NEXT`.
    const NEXT: i32 = -1;
    /// It may go on.
    const ALLOW: i32 = 1;

    let returning = |verdict: i32| -> [Instruction; 2] {
        [instruction(code::MOVE_CONSTANT, 0, 0, 0, verdict), instruction(code::EXIT, 0, 0, 0, 0)]
    };
    let link = match hook.place {
        Place::Cgroup => {
            let kind = ProgramType::BPF_PROG_TYPE_CGROUP_SOCK_ADDR;
            let program = Program::load(kind, Some(hook.attach), &returning(ALLOW))?;
            program.attach_to_cgroup(File::open(lane.cgroup.path())?, hook.attach)
        }
        Place::Device(device) => {
            let kind = ProgramType::BPF_PROG_TYPE_SCHED_CLS;
            let program = Program::load(kind, None, &returning(NEXT))?;
            let index = lane.node.index(device)?;
            lane.node.run(|| program.attach_to_interface(index, hook.attach, Order::Last))?
        }
    };
    link.with_context(|| format!("a program that does nothing at {}", hook.name))
}
