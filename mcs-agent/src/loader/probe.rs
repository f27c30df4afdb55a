use std::io;

use aya_obj::generated::{bpf_attach_type, bpf_insn, bpf_prog_type};
use rustix::fd::AsRawFd as _;
use serde::{Deserialize, Serialize};

use super::sys;

/// What this kernel can do, found by trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Features {
    /// A refused system call can say ECONNREFUSED (`bpf_set_retval`, 5.18); else it says EPERM.
    pub set_retval: bool,
    /// Programs can be attached to devices by links (tcx, 6.6); else by filters on a clsact qdisc.
    pub tcx: bool,
}

impl Features {
    /// Tries each.
    pub fn probe() -> io::Result<Self> {
        Ok(Self { set_retval: has_set_retval()?, tcx: has_tcx()? })
    }

    /// What this kernel lacks, each with what is done instead.
    pub fn fallbacks(self) -> Vec<&'static str> {
        let fallbacks = [
            (self.set_retval, "bpf_set_retval (refused system calls say EPERM)"),
            (self.tcx, "tcx (devices have filters on a clsact qdisc)"),
        ];
        fallbacks.into_iter().filter(|(has, _)| !has).map(|(_, fallback)| fallback).collect()
    }
}

fn has_set_retval() -> io::Result<bool> {
    const BPF_FUNC_SET_RETVAL: i32 = 187;
    const MOV64_IMM: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;

    let program = [
        instruction(MOV64_IMM, 1, -libc::ECONNREFUSED),
        instruction(CALL, 0, BPF_FUNC_SET_RETVAL),
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
        assert!(Features { set_retval: true, tcx: true }.fallbacks().is_empty());
        let fallbacks = Features { set_retval: true, tcx: false }.fallbacks();
        assert_eq!(fallbacks, ["tcx (devices have filters on a clsact qdisc)"]);
    }
}
