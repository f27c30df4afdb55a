//! The bpf(2) commands that aya 0.14 has no call for.

mod tcx;

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use aya_obj::generated::{
    BPF_F_QUERY_EFFECTIVE, bpf_attach_type, bpf_attr, bpf_cmd, bpf_insn, bpf_link_info,
    bpf_map_type, bpf_prog_type,
};
use bytemuck::Pod;

pub(super) use self::tcx::{
    TcxEntry, TcxLinkInfo, create_tcx_link, program_name, query_tcx, tcx_link_info,
};

/// Calls bpf(2).
///
/// # Safety
/// The part of `attr` that `command` reads is filled in, and every pointer in it is valid for what
/// the command does with it.
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

/// # Safety
/// `fd` was just returned by a bpf(2) command that makes one.
unsafe fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller vouches that nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn fd_field(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// What a link is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CgroupLinkInfo {
    /// The cgroup's id; 0 when that is gone.
    pub(super) cgroup_id: u64,
    /// `enum bpf_attach_type`.
    pub(super) attach_type: u32,
    /// The program's id.
    pub(super) program_id: u32,
}

/// Asks about a link; `None` if it is not one to a cgroup.
pub(super) fn cgroup_link_info(link: BorrowedFd<'_>) -> io::Result<Option<CgroupLinkInfo>> {
    const BPF_LINK_TYPE_CGROUP: u32 = 3;
    let info = link_info(link)?;
    if info.type_ != BPF_LINK_TYPE_CGROUP {
        return Ok(None);
    }
    // SAFETY: the kernel filled the variant that the type names.
    let cgroup = unsafe { info.__bindgen_anon_1.cgroup };
    Ok(Some(CgroupLinkInfo {
        cgroup_id: cgroup.cgroup_id,
        attach_type: cgroup.attach_type,
        program_id: info.prog_id,
    }))
}

fn link_info(link: BorrowedFd<'_>) -> io::Result<bpf_link_info> {
    // SAFETY: integers only.
    let mut info: bpf_link_info = unsafe { std::mem::zeroed() };
    let mut attr = zeroed_attr();
    attr.info.bpf_fd = fd_field(link);
    attr.info.info_len = u32::try_from(size_of::<bpf_link_info>()).map_err(io::Error::other)?;
    attr.info.info = (&raw mut info).addr() as u64;
    // SAFETY: `info` outlives the call and is `info_len` bytes long.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)? };
    Ok(info)
}

/// What tells a map, a program or a link from every other one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    /// As the kernel calls descriptors of this sort. Each sort has ids of its own.
    sort: String,
    /// Its id.
    id: u32,
}

/// Asks what a descriptor leads to.
pub(super) fn identity(object: BorrowedFd<'_>) -> io::Result<Identity> {
    // The type and the id: so begin `bpf_map_info`, `bpf_prog_info` and `bpf_link_info`.
    let mut info = [0_u32; 2];
    let mut attr = zeroed_attr();
    attr.info.bpf_fd = fd_field(object);
    attr.info.info_len = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    attr.info.info = info.as_mut_ptr().addr() as u64;
    // SAFETY: `info` outlives the call and is `info_len` bytes long.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)? };
    Ok(Identity { sort: sort(object)?, id: info[1] })
}

/// Whether a descriptor leads to a link, which alone can be asked what it is attached to.
pub(super) fn is_link(object: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sort(object)? == "anon_inode:bpf-link")
}

/// A link is called `bpf_link` by who has made it, and `bpf-link` by who has opened its pin.
fn sort(object: BorrowedFd<'_>) -> io::Result<String> {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", object.as_raw_fd()))?;
    Ok(name.to_string_lossy().replace("bpf_", "bpf-"))
}

/// Attaches a program to a cgroup, beside those that are there.
pub(super) fn create_cgroup_link(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    attach_type: bpf_attach_type,
) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = fd_field(program);
    attr.link_create.__bindgen_anon_2.target_fd = fd_field(cgroup);
    attr.link_create.attach_type = attach_type as u32;
    // SAFETY: no pointers.
    let fd = unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr)? };
    // SAFETY: the kernel just made it.
    Ok(unsafe { owned(fd) })
}

/// The ids of the programs of one type that run for the sockets of a cgroup, in their order: those
/// attached to it and to its ancestors.
pub(super) fn query_cgroup_effective(
    cgroup: BorrowedFd<'_>,
    attach_type: bpf_attach_type,
) -> io::Result<Vec<u32>> {
    /// What is beyond is left out: there are that many for each level at most
    /// (`BPF_CGROUP_MAX_PROGS`, kernel/bpf/cgroup.c).
    const MOST: usize = 64;
    let mut ids = [0_u32; MOST];
    let mut attr = zeroed_attr();
    attr.query.__bindgen_anon_1.target_fd = fd_field(cgroup);
    attr.query.attach_type = attach_type as u32;
    attr.query.query_flags = BPF_F_QUERY_EFFECTIVE;
    attr.query.prog_ids = ids.as_mut_ptr().addr() as u64;
    attr.query.__bindgen_anon_2.count = u32::try_from(MOST).map_err(io::Error::other)?;
    // SAFETY: `ids` outlives the call and is `count` long.
    match unsafe { bpf(bpf_cmd::BPF_PROG_QUERY, &mut attr) } {
        Err(error) if error.raw_os_error() != Some(libc::ENOSPC) => return Err(error),
        _ => {}
    }
    // SAFETY: an integer either way.
    let count = unsafe { attr.query.__bindgen_anon_2.count } as usize;
    Ok(ids.into_iter().take(count).collect())
}

/// Makes an attached link run another program, without an instant of neither.
pub(super) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = zeroed_attr();
    attr.link_update.link_fd = fd_field(link);
    attr.link_update.__bindgen_anon_1.new_prog_fd = fd_field(program);
    // SAFETY: no pointers.
    unsafe { bpf(bpf_cmd::BPF_LINK_UPDATE, &mut attr)? };
    Ok(())
}

/// Detaches a link, on kernels that can (5.9).
pub(super) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = zeroed_attr();
    attr.link_detach.link_fd = fd_field(link);
    // SAFETY: no pointers.
    unsafe { bpf(bpf_cmd::BPF_LINK_DETACH, &mut attr)? };
    Ok(())
}

/// Whether the verifier takes a program of these instructions for a hook.
pub(super) fn loads(
    program_type: bpf_prog_type,
    attach_type: bpf_attach_type,
    instructions: &[bpf_insn],
) -> io::Result<bool> {
    let mut attr = zeroed_attr();
    // SAFETY: a field of a union of integers.
    let program = unsafe { &mut attr.__bindgen_anon_3 };
    program.prog_type = program_type as u32;
    program.expected_attach_type = attach_type as u32;
    program.insns = instructions.as_ptr().addr() as u64;
    program.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    program.license = c"GPL".as_ptr().addr() as u64;
    // SAFETY: the instructions and the licence outlive the call.
    match unsafe { bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr) } {
        Ok(fd) => {
            // SAFETY: the kernel just made it.
            drop(unsafe { owned(fd) });
            Ok(true)
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits until every program run that might still hold what was just unlinked has ended.
///
/// An update of an array of maps waits for an RCU grace period before it returns, on every kernel
/// (`maybe_wait_bpf_programs`, kernel/bpf/syscall.c), whatever the map: this one is private.
#[derive(Debug)]
pub(crate) struct ReaderBarrier {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl ReaderBarrier {
    pub(crate) fn new() -> io::Result<Self> {
        let inner = create_array(bpf_map_type::BPF_MAP_TYPE_ARRAY, None)?;
        let outer = create_array(bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS, Some(inner.as_fd()))?;
        Ok(Self { outer, inner })
    }

    pub(crate) fn wait(&self) -> io::Result<()> {
        let key = 0_u32;
        let value = fd_field(self.inner.as_fd());
        let mut attr = zeroed_attr();
        // SAFETY: fields of a union of integers.
        let element = unsafe { &mut attr.__bindgen_anon_2 };
        element.map_fd = fd_field(self.outer.as_fd());
        element.key = (&raw const key).addr() as u64;
        element.__bindgen_anon_1.value = (&raw const value).addr() as u64;
        // SAFETY: key and value are as long as the map says, and outlive the call.
        unsafe { bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr)? };
        Ok(())
    }
}

fn create_array(kind: bpf_map_type, inner: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = kind as u32;
    map.key_size = 4;
    map.value_size = 4;
    map.max_entries = 1;
    map.inner_map_fd = inner.map_or(0, fd_field);
    // SAFETY: no pointers.
    let fd = unsafe { bpf(bpf_cmd::BPF_MAP_CREATE, &mut attr)? };
    // SAFETY: the kernel just made it.
    Ok(unsafe { owned(fd) })
}

/// Entries of a hash map, as [`lookup_batch`] reads them.
#[derive(Debug)]
pub(crate) struct Batch<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    filled: usize,
    /// Where the next call begins; `None` before the first.
    next: Option<u64>,
}

impl<K: Pod, V: Pod> Batch<K, V> {
    /// A batch of at most `room` entries, which has to be more than any bucket of the map has.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            keys: vec![K::zeroed(); room],
            values: vec![V::zeroed(); room],
            filled: 0,
            next: None,
        }
    }

    /// One that goes on where another one has ended.
    pub(crate) fn after(room: usize, place: Option<u64>) -> Self {
        Self { next: place, ..Self::new(room) }
    }

    /// Where the next call begins.
    pub(crate) const fn place(&self) -> Option<u64> {
        self.next
    }

    /// What the last call read.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (K, V)> {
        self.keys.iter().copied().zip(self.values.iter().copied()).take(self.filled)
    }
}

/// Reads the next entries of a hash map. Returns whether there are more.
///
/// It goes bucket by bucket (`__htab_map_lookup_and_delete_batch`, kernel/bpf/hashtab.c), so it ends
/// whatever is written meanwhile, and what is there all the time is read once.
pub(crate) fn lookup_batch<K: Pod, V: Pod>(
    map: BorrowedFd<'_>,
    batch: &mut Batch<K, V>,
) -> io::Result<bool> {
    let mut next = 0_u64;
    let mut attr = zeroed_attr();
    attr.batch.map_fd = fd_field(map);
    attr.batch.in_batch =
        batch.next.as_ref().map_or(0, |next| std::ptr::from_ref(next).addr() as u64);
    attr.batch.out_batch = (&raw mut next).addr() as u64;
    attr.batch.keys = batch.keys.as_mut_ptr().addr() as u64;
    attr.batch.values = batch.values.as_mut_ptr().addr() as u64;
    attr.batch.count = u32::try_from(batch.keys.len()).map_err(io::Error::other)?;
    // SAFETY: keys and values have room for `count` entries of the map's sizes, which the caller's
    // types have been checked against, and outlive the call; so do the places of the walk.
    let result = unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr) };
    let more = match result {
        Ok(_) => true,
        // The end: what has been read is in place all the same.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => false,
        Err(error) => return Err(error),
    };
    // SAFETY: the kernel has written the field.
    batch.filled = unsafe { attr.batch.count } as usize;
    batch.next = Some(next);
    Ok(more)
}

/// Opens a pinned object.
pub(crate) fn get_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = path_field(path)?;
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let object = unsafe { &mut attr.__bindgen_anon_4 };
    object.pathname = path.as_ptr().addr() as u64;
    // SAFETY: the path outlives the call.
    let fd = unsafe { bpf(bpf_cmd::BPF_OBJ_GET, &mut attr)? };
    // SAFETY: the kernel just made it.
    Ok(unsafe { owned(fd) })
}

/// Pins an object.
pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = path_field(path)?;
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let fields = unsafe { &mut attr.__bindgen_anon_4 };
    fields.pathname = path.as_ptr().addr() as u64;
    fields.bpf_fd = fd_field(object);
    // SAFETY: the path outlives the call.
    unsafe { bpf(bpf_cmd::BPF_OBJ_PIN, &mut attr)? };
    Ok(())
}

fn path_field(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
