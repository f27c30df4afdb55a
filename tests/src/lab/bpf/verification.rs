//! What the kernel's verifier says of a program that it accepts.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use aya_obj::generated::{bpf_cmd, bpf_func_info, bpf_insn, bpf_prog_info};

use super::{AttachType, ProgramType, call, load_attributes, make, number, zeroed};

/// A program as the loader of an object gives it to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// What hooks it is for.
    pub kind: ProgramType,
    /// The one hook, for kinds that name it when they are loaded.
    pub attach: Option<AttachType>,
    /// The kernel's type of what a tracing program is attached to; 0 for others.
    pub target: u32,
    /// With those of the functions that it calls.
    pub instructions: &'a [bpf_insn],
    /// The type information of its object.
    pub types: BorrowedFd<'a>,
    /// Where its functions begin, and their types. Without them the verifier follows each call of a global function anew.
    pub functions: &'a [bpf_func_info],
}

impl Draft<'_> {
    /// Loads it and returns how many instructions the verifier looked at, which its log says on every kernel, and what
    /// the kernel tells of the loaded program.
    pub fn verify(&self) -> io::Result<(u32, bpf_prog_info)> {
        const BPF_LOG_STATS: u32 = 4;

        let size = |size: usize| u32::try_from(size).map_err(io::Error::other);
        let mut log = vec![0_u8; 4096];
        let mut attr = load_attributes(self.kind, self.attach, self.instructions)?;
        // SAFETY: fields of a union of integers.
        let program = unsafe { &mut attr.__bindgen_anon_3 };
        program.attach_btf_id = self.target;
        program.prog_btf_fd = number(self.types);
        program.func_info = self.functions.as_ptr().addr() as u64;
        program.func_info_cnt = size(self.functions.len())?;
        program.func_info_rec_size = size(size_of::<bpf_func_info>())?;
        program.log_level = BPF_LOG_STATS;
        program.log_buf = log.as_mut_ptr().addr() as u64;
        program.log_size = size(log.len())?;
        // SAFETY: the instructions, the licence, the functions and the log outlive the call.
        let program = unsafe { make(bpf_cmd::BPF_PROG_LOAD, &mut attr)? };
        let log = String::from_utf8_lossy(&log);
        let count = processed(&log);
        let count = count.ok_or_else(|| io::Error::other(format!("no count in the log: {log}")))?;
        Ok((count, program_info(program)?))
    }
}

/// What the kernel tells of a loaded program.
pub fn program_info(program: impl AsFd) -> io::Result<bpf_prog_info> {
    // SAFETY: a structure of integers; all zeros ask for no lists.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut attr = zeroed();
    attr.info.bpf_fd = number(program.as_fd());
    attr.info.info_len = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    attr.info.info = std::ptr::from_mut(&mut info).addr() as u64;
    // SAFETY: the kernel writes no more than the length says, and `info` outlives the call.
    unsafe { call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)? };
    Ok(info)
}

/// Opens type information that the kernel has.
pub fn open_types(id: u32) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.__bindgen_anon_6.__bindgen_anon_1.btf_id = id;
    // SAFETY: no pointers.
    unsafe { make(bpf_cmd::BPF_BTF_GET_FD_BY_ID, &mut attr) }
}

/// `N` of `processed N insns`.
fn processed(log: &str) -> Option<u32> {
    log.split_once("processed ")?.1.split_once(" insns")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_the_count() {
        let log = "verification time 37 usec\nstack depth 16\nprocessed 41422 insns (limit \
                   1000000) max_states_per_insn 4 total_states 3 peak_states 3 mark_read 1\n";
        assert_eq!(processed(log), Some(41_422));
        assert_eq!(processed("stack depth 16\n"), None);
    }
}
