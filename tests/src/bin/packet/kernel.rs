//! Calls `BPF_PROG_TEST_RUN` directly, because aya's `TestRun` cannot set `CHECKSUM_COMPLETE`.

#![expect(unsafe_code, reason = "bpf(2)")]

use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya_obj::generated::{bpf_attr, bpf_cmd};

use crate::prelude::*;

/// Of include/uapi/linux/bpf.h, Linux 6.16.
const BPF_F_TEST_SKB_CHECKSUM_COMPLETE: u32 = 1 << 2;
/// Longer than any packet of the suite.
const ROOM: usize = 4096;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunResult {
    /// What the program returned.
    pub(crate) verdict: i32,
    /// The frame as the program left it.
    pub(crate) frame: Vec<u8>,
    /// The first word of the control block, as the program left it.
    pub(crate) control: u32,
}

/// `struct __sk_buff` of include/uapi/linux/bpf.h in words, and where `cb` and `gso_size` are.
const CONTEXT_WORDS: usize = 48;
const CONTROL: usize = 12;
const GSO_SIZE: usize = 44;

/// Whether the kernel takes packets whose sum it knows, found by giving one to a classifier that lets
/// it pass.
pub(crate) fn can_sum(program: BorrowedFd<'_>) -> Result<bool> {
    const FRAME: [u8; 64] = [0; 64];
    match run(program, &FRAME, Context::default(), true) {
        Ok(_) => Ok(true),
        Err(error) => match error.downcast_ref::<io::Error>() {
            Some(refused) if refused.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            _ => Err(error),
        },
    }
}

/// What the kernel knows about a packet, beside its bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context {
    /// The payload of each segment that the device is to cut the packet into (0: not at all). The number of
    /// segments is not known, as of a packet from a virtual machine.
    pub(crate) segment: u32,
    /// The first word of the control block.
    pub(crate) control: u32,
}

/// Runs a classifier on a frame. With `summed` the kernel knows the sum of the packet, and fails with `EBADMSG` if
/// what it knows is not true any more afterwards.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    known: Context,
    summed: bool,
) -> Result<RunResult> {
    let mut out = vec![0; ROOM];
    let mut context = [0_u32; CONTEXT_WORDS];
    context[GSO_SIZE] = known.segment;
    context[CONTROL] = known.control;
    // SAFETY: the union is made of integers; all zeros is what the kernel expects of unused fields.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: fields of a union of integers.
    let test = unsafe { &mut attr.test };
    test.prog_fd = program.as_raw_fd().cast_unsigned();
    test.data_size_in = u32::try_from(frame.len())?;
    test.data_in = frame.as_ptr().addr() as u64;
    test.data_size_out = u32::try_from(out.len())?;
    test.data_out = out.as_mut_ptr().addr() as u64;
    test.ctx_in = context.as_ptr().addr() as u64;
    test.ctx_size_in = u32::try_from(size_of_val(&context))?;
    test.ctx_out = context.as_mut_ptr().addr() as u64;
    test.ctx_size_out = test.ctx_size_in;
    test.repeat = 1;
    test.flags = if summed { BPF_F_TEST_SKB_CHECKSUM_COMPLETE } else { 0 };
    // SAFETY: the buffers are as long as the attributes say, and outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            bpf_cmd::BPF_PROG_TEST_RUN,
            &raw mut attr,
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error()).context("BPF_PROG_TEST_RUN");
    }
    // SAFETY: as above.
    let test = unsafe { attr.test };
    out.truncate(usize::try_from(test.data_size_out)?);
    Ok(RunResult { verdict: test.retval.cast_signed(), frame: out, control: context[CONTROL] })
}
