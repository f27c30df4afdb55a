//! The hooks that mcs-agent's programs are attached to, and programs there that do nothing.

use aya::programs::loaded_programs;
use mcs_tests::bpf::{
    Instruction, Link, Order, Program, ProgramType, attached_to_cgroup, attached_to_interface,
    code, instruction,
};

use crate::prelude::*;

/// Where a program is attached.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Cgroup,
    /// An interface of the node.
    Device(&'static str),
}

/// A hook, whose programs run for sockets of one family, or for packets.
pub(crate) struct Hook {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) attach: AttachType,
    /// Whose program it is.
    pub(crate) contender: Contender,
    /// None for packets.
    pub(crate) family: Option<Family>,
    /// Whether it meets ClusterSetIPs at all.
    pub(crate) hits: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
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

pub(crate) const HOOKS: [Hook; 11] = [
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

/// How often programs ran, and how long in all.
pub(crate) struct Ran {
    pub(crate) runs: u64,
    pub(crate) time: Duration,
}

/// What the program of the lane's hook did so far. Those of cgroups above come after it, those of others on a
/// device before.
pub(crate) fn ran(lane: &Lane, hook: &Hook) -> Result<Ran> {
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

/// Attaches a program that does nothing to every hook.
pub(crate) fn attach_empties(lane: &Lane) -> Result<Vec<Link>> {
    HOOKS.iter().map(|hook| attach_empty(lane, hook)).collect()
}

/// Attaches a program that does nothing.
fn attach_empty(lane: &Lane, hook: &Hook) -> Result<Link> {
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
