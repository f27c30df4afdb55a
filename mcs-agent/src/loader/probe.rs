use std::io;

use aya_obj::generated::{bpf_attach_type, bpf_insn, bpf_prog_type};
use rustix::fd::AsRawFd as _;
use serde::{Deserialize, Serialize};

use super::sys;

/// What this kernel can do, found by trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a kernel has each feature or not")]
pub struct Features {
    /// A refused system call can say ECONNREFUSED (`bpf_set_retval`, 5.18); else it says EPERM.
    pub set_retval: bool,
    /// Programs can be attached to devices by links (tcx, 6.6); else by filters on a clsact qdisc.
    pub tcx: bool,
    /// A process can ask for the cookie of its network namespace (`SO_NETNS_COOKIE`, 5.14); else
    /// sockets of the host alone cannot be told from others.
    #[serde(default)]
    pub netns_cookie: bool,
    /// Maps are charged to the cgroup of their maker (5.11); else to the locked memory of a process.
    #[serde(default)]
    pub memory_cgroups: bool,
}

impl Features {
    /// Tries each.
    pub fn probe() -> io::Result<Self> {
        Ok(Self {
            set_retval: has_set_retval()?,
            tcx: has_tcx()?,
            netns_cookie: own_netns_cookie().is_ok(),
            memory_cgroups: has_memory_cgroups()?,
        })
    }

    /// What this kernel lacks, each with what is done instead.
    pub fn fallbacks(self) -> Vec<&'static str> {
        let fallbacks = [
            (self.set_retval, "bpf_set_retval (refused system calls say EPERM)"),
            (self.tcx, "tcx (devices have filters on a clsact qdisc)"),
            (self.netns_cookie, "SO_NETNS_COOKIE (no --socket-lb=host)"),
            (self.memory_cgroups, "memory cgroups of maps (they count as locked memory)"),
        ];
        fallbacks.into_iter().filter(|(has, _)| !has).map(|(_, fallback)| fallback).collect()
    }
}

fn has_set_retval() -> io::Result<bool> {
    const BPF_FUNC_SET_RETVAL: i32 = 187;
    can_call(BPF_FUNC_SET_RETVAL, -libc::ECONNREFUSED)
}

/// Looks for a helper that is as old; the accounting itself shows nowhere.
fn has_memory_cgroups() -> io::Result<bool> {
    const BPF_FUNC_KTIME_GET_COARSE_NS: i32 = 160;
    can_call(BPF_FUNC_KTIME_GET_COARSE_NS, 0)
}

/// Whether programs of the socket path can call a helper that takes a number, or nothing.
fn can_call(helper: i32, argument: i32) -> io::Result<bool> {
    const MOV64_IMM: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;

    let program = [
        instruction(MOV64_IMM, 1, argument),
        instruction(CALL, 0, helper),
        instruction(MOV64_IMM, 0, 0),
        instruction(EXIT, 0, 0),
    ];
    sys::loads(
        bpf_prog_type::BPF_PROG_TYPE_CGROUP_SOCK_ADDR,
        bpf_attach_type::BPF_CGROUP_INET4_CONNECT,
        &program,
    )
}

/// Asks for the programs of the loopback device, whose index is 1 in every network namespace.
fn has_tcx() -> io::Result<bool> {
    const LOOPBACK: u32 = 1;
    match sys::query_tcx(LOOPBACK, bpf_attach_type::BPF_TCX_INGRESS) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

fn instruction(code: u8, destination: u8, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(destination, 0),
        off: 0,
        imm,
    }
}

/// The cookie of the network namespace that this process is in (`SO_NETNS_COOKIE`, 5.14).
pub fn own_netns_cookie() -> io::Result<u64> {
    const SO_NETNS_COOKIE: i32 = 71;
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).map_err(io::Error::other)?;
    // SAFETY: the cookie is 8 bytes, as `length` says; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_told() {
        let all =
            Features { set_retval: true, tcx: true, netns_cookie: true, memory_cgroups: true };
        assert!(all.fallbacks().is_empty());
        let fallbacks = Features { tcx: false, ..all }.fallbacks();
        assert_eq!(fallbacks, ["tcx (devices have filters on a clsact qdisc)"]);
    }
}
