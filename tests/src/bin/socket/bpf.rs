//! Small socket address programs of somebody else, assembled by hand.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
};

use aya_obj::generated::{
    bpf_attach_type, bpf_attr, bpf_cmd, bpf_insn, bpf_map_type, bpf_prog_type,
};

// Offsets in `struct bpf_sock_addr` of include/uapi/linux/bpf.h.
const USER_IP4: i16 = 4;
const USER_IP6_LAST_WORD: i16 = 20;
const USER_PORT: i16 = 24;

/// What a program has seen last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Sight {
    /// How often it ran.
    pub(crate) runs: u64,
    /// The IPv4 address, or the last word of the IPv6 address, in network order.
    pub(crate) word: [u8; 4],
    /// In host order.
    pub(crate) port: u32,
}

/// A hook that a program can be for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    Connect4,
    Connect6,
    Sendmsg4,
    Recvmsg4,
}

impl Hook {
    const fn attach_type(self) -> bpf_attach_type {
        match self {
            Self::Connect4 => bpf_attach_type::BPF_CGROUP_INET4_CONNECT,
            Self::Connect6 => bpf_attach_type::BPF_CGROUP_INET6_CONNECT,
            Self::Sendmsg4 => bpf_attach_type::BPF_CGROUP_UDP4_SENDMSG,
            Self::Recvmsg4 => bpf_attach_type::BPF_CGROUP_UDP4_RECVMSG,
        }
    }

    const fn address(self) -> i16 {
        match self {
            Self::Connect6 => USER_IP6_LAST_WORD,
            Self::Connect4 | Self::Sendmsg4 | Self::Recvmsg4 => USER_IP4,
        }
    }
}

/// A program that notes each address it sees. It is attached as long as this lives.
pub(crate) struct Observer {
    map: OwnedFd,
    _link: OwnedFd,
}

impl Observer {
    /// Attaches one after those that are there. It lets pass, or refuses, all it sees.
    pub(crate) fn attach(cgroup: BorrowedFd<'_>, hook: Hook, lets_pass: bool) -> io::Result<Self> {
        let map = create_map()?;
        let program = load(hook, &program(map.as_fd(), hook, lets_pass))?;
        let link = create_link(program.as_fd(), cgroup, hook)?;
        Ok(Self { map, _link: link })
    }

    /// What it has seen.
    pub(crate) fn sight(&self) -> io::Result<Sight> {
        let key = 0_u32;
        let mut sight = Sight::default();
        let mut attr = zeroed_attr();
        // SAFETY: fields of a union of integers.
        let element = unsafe { &mut attr.__bindgen_anon_2 };
        element.map_fd = number(self.map.as_fd());
        element.key = (&raw const key).addr() as u64;
        element.__bindgen_anon_1.value = (&raw mut sight).addr() as u64;
        // SAFETY: key and value are as long as the map says, and outlive the call.
        unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr)? };
        sight.port = u16::from_be(u16::try_from(sight.port).map_err(io::Error::other)?).into();
        Ok(sight)
    }
}

fn create_map() -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
    map.key_size = 4;
    map.value_size = u32::try_from(size_of::<Sight>()).map_err(io::Error::other)?;
    map.max_entries = 1;
    // SAFETY: no pointers.
    unsafe { make(bpf_cmd::BPF_MAP_CREATE, &mut attr) }
}

/// Registers r6 to r9 outlive calls; r10 is the top of the stack.
fn program(map: BorrowedFd<'_>, hook: Hook, lets_pass: bool) -> Vec<bpf_insn> {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_DOUBLE: u8 = 0x79;
    const STORE_WORD: u8 = 0x63;
    const STORE_DOUBLE: u8 = 0x7b;
    const STORE_WORD_CONSTANT: u8 = 0x62;
    const LOAD_CONSTANT: u8 = 0x18;
    const MOVE: u8 = 0xbf;
    const MOVE_CONSTANT: u8 = 0xb7;
    const ADD_CONSTANT: u8 = 0x07;
    const JUMP_IF_EQUAL: u8 = 0x15;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const PSEUDO_MAP_FD: u8 = 1;
    const MAP_LOOKUP_ELEM: i32 = 1;

    vec![
        instruction(LOAD_WORD, 7, 1, hook.address(), 0),
        instruction(LOAD_WORD, 8, 1, USER_PORT, 0),
        instruction(STORE_WORD_CONSTANT, 10, 0, -4, 0),
        instruction(LOAD_CONSTANT, 1, PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_CONSTANT, 2, 0, 0, -4),
        instruction(CALL, 0, 0, 0, MAP_LOOKUP_ELEM),
        instruction(JUMP_IF_EQUAL, 0, 0, 5, 0),
        instruction(LOAD_DOUBLE, 1, 0, 0, 0),
        instruction(ADD_CONSTANT, 1, 0, 0, 1),
        instruction(STORE_DOUBLE, 0, 1, 0, 0),
        instruction(STORE_WORD, 0, 7, 8, 0),
        instruction(STORE_WORD, 0, 8, 12, 0),
        instruction(MOVE_CONSTANT, 0, 0, 0, i32::from(lets_pass)),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

fn instruction(code: u8, destination: u8, source: u8, off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(destination, source),
        off,
        imm,
    }
}

fn load(hook: Hook, instructions: &[bpf_insn]) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let program = unsafe { &mut attr.__bindgen_anon_3 };
    program.prog_type = bpf_prog_type::BPF_PROG_TYPE_CGROUP_SOCK_ADDR as u32;
    program.expected_attach_type = hook.attach_type() as u32;
    program.insns = instructions.as_ptr().addr() as u64;
    program.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    program.license = c"GPL".as_ptr().addr() as u64;
    // SAFETY: the instructions and the licence outlive the call.
    unsafe { make(bpf_cmd::BPF_PROG_LOAD, &mut attr) }
}

fn create_link(program: BorrowedFd<'_>, cgroup: BorrowedFd<'_>, hook: Hook) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = number(program);
    attr.link_create.__bindgen_anon_2.target_fd = number(cgroup);
    attr.link_create.attach_type = hook.attach_type() as u32;
    // SAFETY: no pointers.
    unsafe { make(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
}

/// Calls bpf(2) with a command that makes an object.
///
/// # Safety
/// The part of `attr` that `command` reads is filled in, and every pointer in it is valid for what
/// the command does with it.
unsafe fn make(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for `attr`.
    let fd = unsafe { bpf(command, attr)? };
    // SAFETY: the kernel just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// As for [`make`].
unsafe fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<RawFd> {
    // SAFETY: the kernel reads and writes `attr` within its size; the caller vouches for the rest.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(result).map_err(io::Error::other)
}

fn zeroed_attr() -> bpf_attr {
    // SAFETY: the union is made of integers; all zeros is what the kernel expects of unused fields.
    unsafe { std::mem::zeroed() }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}
