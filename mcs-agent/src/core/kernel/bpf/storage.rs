//! The values of a map of socket storage, of all sockets in every network namespace: an iterator of the kernel writes them
//! to a file (Linux 5.9, with BTF).

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use aya_obj::{
    btf::{Btf, BtfKind},
    generated::{bpf_attach_type, bpf_cmd, bpf_prog_type},
};
use bytemuck::Pod;

use super::{
    object::open_pin,
    syscall::{fd_field, open, zeroed_attr},
};

/// The function whose type the program has.
const ITERATOR: &str = "bpf_iter_bpf_sk_storage_map";
/// As that of the other programs: `bpf_seq_write` takes the GPL.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// The kernel's iterator over socket storage.
pub(crate) struct SocketIterator {
    /// The number of [`ITERATOR`] among the kernel's types.
    function: u32,
}

impl SocketIterator {
    /// Finds it, which takes some 50 ms and memory for the kernel's types meanwhile.
    pub(crate) fn find() -> io::Result<Self> {
        let types = Btf::from_sys_fs();
        let function = types.and_then(|types| types.id_by_type_name_kind(ITERATOR, BtfKind::Func));
        Ok(Self { function: function.map_err(io::Error::other)? })
    }

    /// Reads the value of every socket in a pinned map, `room` bytes at a time. Values that are stored or removed meanwhile may be
    /// missed. So may be the value at the end of a read, if another one is removed while the kernel waits for the next read.
    pub(crate) fn for_each<T: Pod>(
        &self,
        pin: &Path,
        room: usize,
        take: impl FnMut(T),
    ) -> io::Result<()> {
        let map = open_pin(pin)?;
        let program = load(self.function, size_of::<T>())?;
        let link = attach(program.as_fd(), map.as_fd())?;
        let mut attr = zeroed_attr();
        attr.iter_create.link_fd = fd_field(link.as_fd());
        // SAFETY: no pointers; a new descriptor.
        let mut file = File::from(unsafe { open(bpf_cmd::BPF_ITER_CREATE, &mut attr)? });
        let (mut values, mut room) = (Vec::new(), vec![0_u8; room]);
        loop {
            match file.read(&mut room)? {
                0 => break,
                read => values.extend_from_slice(&room[..read]),
            }
        }
        values.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).for_each(take);
        Ok(())
    }
}

/// Loads a program that writes the value of the socket that the kernel has come to. aya loads programs of an object alone.
fn load(function: u32, value_size: usize) -> io::Result<OwnedFd> {
    let value_size = i32::try_from(value_size).map_err(io::Error::other)?;
    // r1 is a `struct bpf_iter__bpf_sk_storage_map`.
    let program = [
        // r2 = value; at the end of the map there is none, and the program has nothing to do.
        instruction(0x79, 2, 1, 24, 0),
        instruction(0x15, 2, 0, 4, 0),
        // r1 = meta->seq
        instruction(0x79, 1, 1, 0, 0),
        instruction(0x79, 1, 1, 0, 0),
        // bpf_seq_write(r1, r2, r3)
        instruction(0xb7, 3, 0, 0, value_size),
        instruction(0x85, 0, 0, 0, 127),
        // return 0
        instruction(0xb7, 0, 0, 0, 0),
        instruction(0x95, 0, 0, 0, 0),
    ];
    let mut attr = zeroed_attr();
    attr.__bindgen_anon_3.prog_type = bpf_prog_type::BPF_PROG_TYPE_TRACING as u32;
    attr.__bindgen_anon_3.expected_attach_type = bpf_attach_type::BPF_TRACE_ITER as u32;
    attr.__bindgen_anon_3.attach_btf_id = function;
    attr.__bindgen_anon_3.insns = program.as_ptr().addr() as u64;
    attr.__bindgen_anon_3.insn_cnt = u32::try_from(program.len()).map_err(io::Error::other)?;
    attr.__bindgen_anon_3.license = LICENSE.as_ptr().addr() as u64;
    // SAFETY: instructions and license outlive the call; a new descriptor.
    unsafe { open(bpf_cmd::BPF_PROG_LOAD, &mut attr) }
}

/// Makes the program run for a map. aya attaches iterators to no map.
fn attach(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // `union bpf_iter_link_info`, as old kernels have it.
    let info = fd_field(map);
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = fd_field(program);
    attr.link_create.attach_type = bpf_attach_type::BPF_TRACE_ITER as u32;
    attr.link_create.__bindgen_anon_3.__bindgen_anon_1.iter_info = (&raw const info).addr() as u64;
    attr.link_create.__bindgen_anon_3.__bindgen_anon_1.iter_info_len =
        u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    // SAFETY: `info` outlives the call and is `iter_info_len` bytes long; a new descriptor.
    unsafe { open(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
}

/// `struct bpf_insn`, of a little-endian machine.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, number: i32) -> u64 {
    let [offset_low, offset_high] = offset.to_le_bytes();
    let [a, b, c, d] = number.to_le_bytes();
    u64::from_ne_bytes([code, to | from << 4, offset_low, offset_high, a, b, c, d])
}
