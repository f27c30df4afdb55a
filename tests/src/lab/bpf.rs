//! Foreign eBPF programs, assembled by hand, and queries of programs and maps in the kernel.

#![expect(unsafe_code, reason = "bpf(2)")]

pub mod classifier;
pub mod observer;
pub mod verification;

use std::{
    ffi::CString,
    net::SocketAddrV4,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
};

use aya_obj::generated::{BPF_F_AFTER, BPF_F_BEFORE, bpf_attr, bpf_cmd, bpf_insn, bpf_map_type};
use bytemuck::{AnyBitPattern, NoUninit, bytes_of_mut};
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    system::uname,
};

use crate::prelude::*;

pub use aya_obj::generated::{bpf_attach_type as AttachType, bpf_prog_type as ProgramType};

/// `BPF_F_QUERY_EFFECTIVE` of include/uapi/linux/bpf.h.
const BPF_F_QUERY_EFFECTIVE: u32 = 1;
/// The kernel takes no more at one hook (`BPF_CGROUP_MAX_PROGS`, `BPF_MPROG_MAX`).
const MOST_PROGRAMS: usize = 64;

/// An instruction. Registers 6 to 9 outlive calls; register 10 is the top of the stack.
#[derive(Clone, Copy)]
pub struct Instruction(bpf_insn);

/// Codes of instructions (Documentation/bpf/standardization/instruction-set.rst).
pub mod code {
    /// `dst = *(u32 *)(src + off)`
    pub const LOAD_WORD: u8 = 0x61;
    /// `dst = *(u64 *)(src + off)`
    pub const LOAD_DOUBLE: u8 = 0x79;
    /// `*(u32 *)(dst + off) = src`
    pub const STORE_WORD: u8 = 0x63;
    /// `*(u64 *)(dst + off) = src`
    pub const STORE_DOUBLE: u8 = 0x7b;
    /// `*(u32 *)(dst + off) = imm`
    pub const STORE_WORD_CONSTANT: u8 = 0x62;
    /// `*(u64 *)(dst + off) = imm`
    pub const STORE_DOUBLE_CONSTANT: u8 = 0x7a;
    /// `*(u64 *)(dst + off) += src`, at once
    pub const ADD_DOUBLE_IN_MEMORY: u8 = 0xdb;
    /// `dst = src`
    pub const MOVE: u8 = 0xbf;
    /// `dst = imm`
    pub const MOVE_CONSTANT: u8 = 0xb7;
    /// `dst += imm`
    pub const ADD_CONSTANT: u8 = 0x07;
    /// Goes on after `off` more instructions.
    pub const JUMP: u8 = 0x05;
    /// Goes on after `off` more instructions if `dst == imm`.
    pub const JUMP_IF_EQUAL: u8 = 0x15;
    /// Goes on after `off` more instructions if `dst != imm`.
    pub const JUMP_IF_OTHER: u8 = 0x55;
    /// Calls the helper `imm`.
    pub const CALL: u8 = 0x85;
    /// Returns register 0.
    pub const EXIT: u8 = 0x95;
}

/// Numbers of helpers (include/uapi/linux/bpf.h).
pub mod helper {
    /// `bpf_map_lookup_elem`
    pub const MAP_LOOKUP_ELEM: i32 = 1;
    /// `bpf_map_update_elem`
    pub const MAP_UPDATE_ELEM: i32 = 2;
    /// `bpf_skb_load_bytes`
    pub const SKB_LOAD_BYTES: i32 = 26;
}

/// An instruction of one of the kinds in [`code`].
pub fn instruction(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Instruction {
    Instruction(bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(dst, src),
        off,
        imm,
    })
}

/// A kind of map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// An array, whose key is a `u32`.
    Array,
    /// A hash.
    Hash,
}

/// A map from `K` to `V`.
#[derive(Debug)]
pub struct Map<K, V> {
    fd: OwnedFd,
    types: std::marker::PhantomData<(K, V)>,
}

impl<K: NoUninit, V: AnyBitPattern + NoUninit> Map<K, V> {
    /// Makes one.
    pub fn create(kind: MapKind, entries: u32) -> io::Result<Self> {
        let size = |size: usize| u32::try_from(size).map_err(io::Error::other);
        let mut attr = zeroed();
        // SAFETY: fields of a union of integers.
        let map = unsafe { &mut attr.__bindgen_anon_1 };
        map.map_type = match kind {
            MapKind::Array => bpf_map_type::BPF_MAP_TYPE_ARRAY,
            MapKind::Hash => bpf_map_type::BPF_MAP_TYPE_HASH,
        } as u32;
        map.key_size = size(size_of::<K>())?;
        map.value_size = size(size_of::<V>())?;
        map.max_entries = entries;
        allow_locked_memory();
        // SAFETY: no pointers.
        let fd = unsafe { make(bpf_cmd::BPF_MAP_CREATE, &mut attr)? };
        Ok(Self { fd, types: std::marker::PhantomData })
    }

    /// The two instructions that put the map into a register.
    pub fn load_into(&self, register: u8) -> [Instruction; 2] {
        const LOAD_CONSTANT: u8 = 0x18;
        const PSEUDO_MAP_FD: u8 = 1;

        let map = self.fd.as_raw_fd();
        [instruction(LOAD_CONSTANT, register, PSEUDO_MAP_FD, 0, map), instruction(0, 0, 0, 0, 0)]
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> io::Result<Option<V>> {
        let mut value = V::zeroed();
        let mut attr = zeroed();
        // SAFETY: fields of a union of integers.
        let element = unsafe { &mut attr.__bindgen_anon_2 };
        element.map_fd = number(self.fd.as_fd());
        element.key = std::ptr::from_ref(key).addr() as u64;
        element.__bindgen_anon_1.value = bytes_of_mut(&mut value).as_mut_ptr().addr() as u64;
        // SAFETY: key and value are as long as the map says, and outlive the call.
        match unsafe { call(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether this kernel is of that release, or a later one.
pub fn is_kernel(major: u32, minor: u32) -> bool {
    let release = uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Whether a program can be attached to a cgroup before those that are there, as the agent then attaches its own. Linux 6.17
/// can, and kernels to which that was ported, such as Debian's 6.12.118. The others refuse the flag before they look at the
/// cgroup, which is none here.
pub fn has_order_on_cgroups() -> bool {
    let (connect, nobody) = (AttachType::BPF_CGROUP_INET4_CONNECT, Ipv4Addr::LOCALHOST);
    let to = SocketAddrV4::new(nobody, 0);
    let Ok(program) = Program::leading(connect, nobody, to) else { return false };
    let mut attr = zeroed();
    attr.link_create.__bindgen_anon_1.prog_fd = number(program.0.as_fd());
    attr.link_create.__bindgen_anon_2.target_fd = u32::MAX;
    attr.link_create.attach_type = connect as u32;
    attr.link_create.flags = BPF_F_BEFORE;
    // SAFETY: no pointers.
    let attached = unsafe { make(bpf_cmd::BPF_LINK_CREATE, &mut attr) };
    attached.is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
}

/// A loaded program.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads one. `attach` is the type that sock address programs are for.
    pub fn load(
        kind: ProgramType,
        attach: Option<AttachType>,
        instructions: &[Instruction],
    ) -> io::Result<Self> {
        let instructions: Vec<_> = instructions.iter().map(|instruction| instruction.0).collect();
        let mut attr = load_attributes(kind, attach, &instructions)?;
        allow_locked_memory();
        // SAFETY: the instructions and the licence outlive the call.
        Ok(Self(unsafe { make(bpf_cmd::BPF_PROG_LOAD, &mut attr)? }))
    }

    /// Loads one that leads sockets with this IPv4 address elsewhere. The last part of the address is below 128: the constant
    /// is not negative.
    pub fn leading(attach: AttachType, from: Ipv4Addr, to: SocketAddrV4) -> io::Result<Self> {
        // Offsets in `struct bpf_sock_addr` of include/uapi/linux/bpf.h.
        const USER_IP4: i16 = 4;
        const USER_PORT: i16 = 24;

        let word = |ip: &Ipv4Addr| i32::from_ne_bytes(ip.octets());
        let port = i32::from(to.port().to_be());
        let program = [
            instruction(code::LOAD_WORD, 2, 1, USER_IP4, 0),
            instruction(code::JUMP_IF_OTHER, 2, 0, 4, word(&from)),
            instruction(code::MOVE_CONSTANT, 2, 0, 0, word(to.ip())),
            instruction(code::STORE_WORD, 1, 2, USER_IP4, 0),
            instruction(code::MOVE_CONSTANT, 2, 0, 0, port),
            instruction(code::STORE_WORD, 1, 2, USER_PORT, 0),
            instruction(code::MOVE_CONSTANT, 0, 0, 0, 1),
            instruction(code::EXIT, 0, 0, 0, 0),
        ];
        Self::load(ProgramType::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, Some(attach), &program)
    }

    /// Pins it, for programs that take a path.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut attr = zeroed();
        // SAFETY: fields of a union of integers.
        let object = unsafe { &mut attr.__bindgen_anon_4 };
        object.pathname = path.as_ptr().addr() as u64;
        object.bpf_fd = number(self.0.as_fd());
        // SAFETY: the path outlives the call.
        unsafe { call(bpf_cmd::BPF_OBJ_PIN, &mut attr).map(drop) }
    }

    /// Attaches it to a cgroup, after the programs that are there.
    pub fn attach_to_cgroup(&self, cgroup: impl AsFd, attach: AttachType) -> io::Result<Link> {
        self.attach_with(cgroup, attach, 0)
    }

    /// Attaches it to a cgroup, before the programs that are there ([`has_order_on_cgroups`]).
    pub fn attach_to_cgroup_first(
        &self,
        cgroup: impl AsFd,
        attach: AttachType,
    ) -> io::Result<Link> {
        self.attach_with(cgroup, attach, BPF_F_BEFORE)
    }

    fn attach_with(&self, cgroup: impl AsFd, attach: AttachType, flags: u32) -> io::Result<Link> {
        let mut attr = zeroed();
        attr.link_create.flags = flags;
        attr.link_create.__bindgen_anon_1.prog_fd = number(self.0.as_fd());
        attr.link_create.__bindgen_anon_2.target_fd = number(cgroup.as_fd());
        attr.link_create.attach_type = attach as u32;
        // SAFETY: no pointers.
        Ok(Link { _fd: unsafe { make(bpf_cmd::BPF_LINK_CREATE, &mut attr)? } })
    }

    /// Attaches it to an interface of the calling thread's network namespace by tcx, before or after
    /// all programs that are there.
    pub fn attach_to_interface(
        &self,
        index: u32,
        attach: AttachType,
        order: Order,
    ) -> io::Result<Link> {
        let mut attr = zeroed();
        attr.link_create.__bindgen_anon_1.prog_fd = number(self.0.as_fd());
        attr.link_create.__bindgen_anon_2.target_ifindex = index;
        attr.link_create.attach_type = attach as u32;
        attr.link_create.flags = match order {
            Order::First => BPF_F_BEFORE,
            Order::Last => BPF_F_AFTER,
        };
        // SAFETY: no pointers.
        Ok(Link { _fd: unsafe { make(bpf_cmd::BPF_LINK_CREATE, &mut attr)? } })
    }
}

/// A place among the programs of a hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Before all others.
    First,
    /// After all others.
    Last,
}

/// A program is attached as long as this lives.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

/// Before Linux 5.11 maps and programs count as locked memory of their user, of whom each process has
/// a limit. Where it cannot be raised, what is over it says so.
pub fn allow_locked_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    let _ = setrlimit(Resource::Memlock, unlimited);
}

/// Detaches the link with this id, whoever holds it.
pub fn detach_link(id: u32) -> io::Result<()> {
    let mut attr = zeroed();
    attr.__bindgen_anon_6.__bindgen_anon_1.link_id = id;
    // SAFETY: no pointers.
    let link = unsafe { make(bpf_cmd::BPF_LINK_GET_FD_BY_ID, &mut attr)? };
    let mut attr = zeroed();
    attr.link_detach.link_fd = number(link.as_fd());
    // SAFETY: no pointers.
    unsafe { call(bpf_cmd::BPF_LINK_DETACH, &mut attr).map(drop) }
}

/// Opens what is pinned there.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = zeroed();
    attr.__bindgen_anon_4.pathname = path.as_ptr().addr() as u64;
    // SAFETY: the path outlives the call.
    unsafe { make(bpf_cmd::BPF_OBJ_GET, &mut attr) }
}

/// What the kernel tells of what is pinned there (`proc_pid_fdinfo(5)`).
pub fn describe_pin(path: &Path) -> Result<String> {
    let open = open_pin(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(fs::read_to_string(format!("/proc/self/fdinfo/{}", open.as_raw_fd()))?)
}

/// Writes an entry of a map, whose key and value are as long as these.
pub fn write(map: impl AsFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut attr = zeroed();
    // SAFETY: fields of a union of integers.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = number(map.as_fd());
    element.key = key.as_ptr().addr() as u64;
    element.__bindgen_anon_1.value = value.as_ptr().addr() as u64;
    // SAFETY: key and value are as long as the map's, and outlive the call.
    unsafe { call(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr).map(drop) }
}

/// The value of a key of a map. `size`: its bytes.
pub fn read(map: impl AsFd, key: &[u8], size: usize) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; size];
    let mut attr = zeroed();
    // SAFETY: fields of a union of integers.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = number(map.as_fd());
    element.key = key.as_ptr().addr() as u64;
    element.__bindgen_anon_1.value = value.as_mut_ptr().addr() as u64;
    // SAFETY: key and value are as long as the map's, and outlive the call.
    match unsafe { call(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attr) } {
        Ok(_) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first entries of a hash, as many as a test makes, with keys and values of so many bytes.
pub fn entries(map: impl AsFd, key: usize, value: usize) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    const MOST: usize = 256;

    let mut entries = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    while entries.len() < MOST {
        let mut next = vec![0; key];
        let mut attr = zeroed();
        // SAFETY: fields of a union of integers.
        let element = unsafe { &mut attr.__bindgen_anon_2 };
        element.map_fd = number(map.as_fd());
        element.key = last.as_ref().map_or(0, |last| last.as_ptr().addr() as u64);
        element.__bindgen_anon_1.next_key = next.as_mut_ptr().addr() as u64;
        // SAFETY: both keys are as long as the map's, and outlive the call.
        match unsafe { call(bpf_cmd::BPF_MAP_GET_NEXT_KEY, &mut attr) } {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
        if let Some(value) = read(map.as_fd(), &next, value)? {
            entries.push((next.clone(), value));
        }
        last = Some(next);
    }
    Ok(entries)
}

/// The ids of all type information in the kernel, its own included.
pub fn btf_ids() -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    loop {
        let mut attr = zeroed();
        attr.__bindgen_anon_6.__bindgen_anon_1.start_id = ids.last().copied().unwrap_or(0);
        // SAFETY: no pointers.
        match unsafe { call(bpf_cmd::BPF_BTF_GET_NEXT_ID, &mut attr) } {
            // SAFETY: a field of a union of integers, which the kernel has written.
            Ok(_) => ids.push(unsafe { attr.__bindgen_anon_6.next_id }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ids),
            Err(error) => return Err(error),
        }
    }
}

/// The ids of the programs that run at a hook of a cgroup, in their order, those of its ancestors
/// included. `attach` is a number of `enum bpf_attach_type` for cgroups; none run where the kernel does
/// not know it.
pub fn attached_to_cgroup(cgroup: impl AsFd, attach: u32) -> io::Result<Vec<u32>> {
    let mut attr = zeroed();
    attr.query.__bindgen_anon_1.target_fd = number(cgroup.as_fd());
    attr.query.attach_type = attach;
    attr.query.query_flags = BPF_F_QUERY_EFFECTIVE;
    match query(attr) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Vec::new()),
        programs => programs,
    }
}

/// The ids of the programs that run by tcx at an interface of the calling thread's network
/// namespace, in their order.
pub fn attached_to_interface(index: u32, attach: AttachType) -> io::Result<Vec<u32>> {
    let mut attr = zeroed();
    attr.query.__bindgen_anon_1.target_ifindex = index;
    attr.query.attach_type = attach as u32;
    query(attr)
}

fn query(mut attr: bpf_attr) -> io::Result<Vec<u32>> {
    let mut ids = vec![0_u32; MOST_PROGRAMS];
    // SAFETY: fields of a union of integers.
    let query = unsafe { &mut attr.query };
    query.prog_ids = ids.as_mut_ptr().addr() as u64;
    query.__bindgen_anon_2.prog_cnt = u32::try_from(ids.len()).map_err(io::Error::other)?;
    // SAFETY: there is room for as many ids as the attributes say, and it outlives the call.
    unsafe { call(bpf_cmd::BPF_PROG_QUERY, &mut attr)? };
    // SAFETY: a field of a union of integers, which the kernel has written.
    let count = unsafe { attr.query.__bindgen_anon_2.prog_cnt };
    ids.truncate(usize::try_from(count).map_err(io::Error::other)?);
    Ok(ids)
}

/// What every load of a program says. The instructions have to outlive the call.
fn load_attributes(
    kind: ProgramType,
    attach: Option<AttachType>,
    instructions: &[bpf_insn],
) -> io::Result<bpf_attr> {
    let mut attr = zeroed();
    // SAFETY: fields of a union of integers.
    let program = unsafe { &mut attr.__bindgen_anon_3 };
    program.prog_type = kind as u32;
    program.expected_attach_type = attach.map_or(0, |attach| attach as u32);
    program.insns = instructions.as_ptr().addr() as u64;
    program.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    program.license = c"GPL".as_ptr().addr() as u64;
    Ok(attr)
}

/// Calls bpf(2) with a command that makes an object.
///
/// # Safety
/// The part of `attr` that `command` reads is filled in, and every pointer in it is valid for what
/// the command does with it.
unsafe fn make(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for `attr`.
    let fd = unsafe { call(command, attr)? };
    // SAFETY: the kernel just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// As for [`make`].
unsafe fn call(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<RawFd> {
    // SAFETY: the kernel reads and writes `attr` within its size; the caller vouches for the rest.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(result).map_err(io::Error::other)
}

fn zeroed() -> bpf_attr {
    // SAFETY: the union is made of integers; all zeros is what the kernel expects of unused fields.
    unsafe { std::mem::zeroed() }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}
