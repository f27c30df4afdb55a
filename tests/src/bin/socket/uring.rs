//! Sockets that `io_uring` uses, on the submitting thread and on a thread of the kernel.

#![expect(unsafe_code, reason = "io_uring has no safe interface among the crates of the tests")]

use std::{
    os::fd::{AsRawFd as _, FromRawFd as _},
    ptr,
    sync::atomic::AtomicU32,
};

use nix::sys::socket::{SockaddrLike as _, SockaddrStorage};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each_family(suite, "connect, sendmsg and recvmsg by io_uring", are_submitted);
}

const SENDMSG: u8 = 9;
const RECVMSG: u8 = 10;
const CONNECT: u8 = 16;
/// `IOSQE_ASYNC`: a thread of the kernel does it.
const BY_THE_KERNEL: u8 = 1 << 4;
/// Offsets in the shared memory, of `io_uring_setup(2)`.
const OFF_RINGS: i64 = 0;
const OFF_ENTRIES: i64 = 0x1000_0000;

/// `struct io_uring_params`: entries of both queues, flags, reserved words, and offsets into the shared memory.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    unused: [u32; 8],
    /// head, tail, mask, entries, flags, dropped, array, and three unused words.
    sq: [u32; 10],
    /// head, tail, mask, entries, overflow, entries' place, and four unused words.
    cq: [u32; 10],
}

/// `struct io_uring_sqe`.
#[repr(C)]
#[derive(Default)]
struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    message_flags: u32,
    user_data: u64,
    unused: [u64; 3],
}

/// A queue for one submission at a time.
struct Ring {
    fd: OwnedFd,
    rings: Shared,
    entries: Shared,
    parameters: Parameters,
}

/// Memory that is shared with the kernel.
struct Shared(*mut u8, usize);

impl Shared {
    fn map(fd: &OwnedFd, length: usize, offset: i64) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses the place.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, access, kind, fd.as_raw_fd(), offset) };
        ensure!(start != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        Ok(Self(start.cast(), length))
    }

    #[expect(clippy::cast_ptr_alignment, reason = "the kernel aligns its words")]
    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel names offsets within the memory.
        unsafe { &*self.0.add(offset as usize).cast::<AtomicU32>() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the memory any more.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

impl Ring {
    fn create() -> Result<Self> {
        let mut parameters = Parameters::default();
        // SAFETY: the kernel writes the parameters alone.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut parameters) };
        if fd < 0 {
            return Err(skip(format!("no io_uring: {}", io::Error::last_os_error())));
        }
        // SAFETY: the descriptor is new.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.try_into()?) };
        // One mapping has both rings (5.4). A completion takes 16 bytes.
        let submitted_end = parameters.sq[6] + parameters.sq_entries * 4;
        let completed_end = parameters.cq[5] + parameters.cq_entries * 16;
        let rings = Shared::map(&fd, submitted_end.max(completed_end) as usize, OFF_RINGS)?;
        let entries = Shared::map(&fd, size_of::<Submission>(), OFF_ENTRIES)?;
        Ok(Self { fd, rings, entries, parameters })
    }

    /// Submits one, and returns its result.
    #[expect(clippy::cast_ptr_alignment, reason = "the kernel aligns its entries")]
    fn run(&mut self, submission: Submission) -> Result<i32> {
        let Parameters { sq, cq, .. } = self.parameters;
        // SAFETY: the only entry is free, since each call waits for its completion.
        unsafe { self.entries.0.cast::<Submission>().write(submission) };
        self.rings.word(sq[6]).store(0, Ordering::Relaxed);
        self.rings.word(sq[1]).fetch_add(1, Ordering::Release);
        let (fd, wait) = (self.fd.as_raw_fd(), 1);
        let no_signals = ptr::null::<libc::c_void>();
        // SAFETY: the kernel reads the entry, and what it points to is there until the completion.
        let done =
            unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, 1, 1, wait, no_signals, 0) };
        ensure!(done == 1, "io_uring_enter: {}", io::Error::last_os_error());
        let head = self.rings.word(cq[0]);
        let place = head.load(Ordering::Relaxed) & self.rings.word(cq[2]).load(Ordering::Relaxed);
        // The result follows eight bytes of the user's.
        let result = self.rings.word(cq[5] + place * 16 + 8).load(Ordering::Acquire);
        head.fetch_add(1, Ordering::Release);
        Ok(result.cast_signed())
    }
}

fn are_submitted(world: &World, family: Family, place: Place) -> Result {
    world.at(place, || {
        let mut ring = Ring::create()?;
        for flags in [0, BY_THE_KERNEL] {
            check(world, family, &mut ring, flags).with_context(|| format!("flags {flags}"))?;
        }
        Ok(())
    })
}

fn check(world: &World, family: Family, ring: &mut Ring, flags: u8) -> Result {
    let stream = tcp(family)?;
    let vip = SockaddrStorage::from(world.web.tcp(family));
    let connected = ring.run(Submission {
        opcode: CONNECT,
        flags,
        fd: stream.as_raw_fd(),
        offset: vip.len().into(),
        address: vip.as_ptr() as u64,
        ..Submission::default()
    })?;
    ensure!(connected == 0, "connect: {connected}");
    ensure!(stream.peer_addr()? == world.web.tcp(family), "TCP shows {}", stream.peer_addr()?);
    let found = identity(&stream)?;
    ensure!(backends(World::WEB, family, TCP.1).contains(&found), "{found} is not of web");

    let refused = SockaddrStorage::from(world.empty.tcp(family));
    let result = ring.run(Submission {
        opcode: CONNECT,
        flags,
        fd: tcp(family)?.as_raw_fd(),
        offset: refused.len().into(),
        address: refused.as_ptr() as u64,
        ..Submission::default()
    })?;
    ensure!(result < 0, "a connect that is to be refused: {result}");

    let socket = udp(family)?;
    let vip = world.web.udp(family);
    let mut address = SockaddrStorage::from(vip);
    let mut buffer = [0_u8; 128];
    for opcode in [SENDMSG, RECVMSG] {
        let mut payload =
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: zeros are a header without anything.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut address).cast();
        header.msg_namelen = address.len();
        header.msg_iov = &raw mut payload;
        header.msg_iovlen = 1;
        let result = ring.run(Submission {
            opcode,
            flags,
            fd: socket.as_raw_fd(),
            address: (&raw const header) as u64,
            length: 1,
            ..Submission::default()
        })?;
        ensure!(result > 0, "operation {opcode}: {result}");
        if opcode == SENDMSG {
            address = SockaddrStorage::from(SocketAddr::from(([0; 4], 0)));
            // The ring would wait for ever.
            let mut events = [PollFd::new(&socket, PollFlags::IN)];
            poll(&mut events, Some(&Timespec { tv_sec: 2, tv_nsec: 0 }))?;
            ensure!(!events[0].revents().is_empty(), "no reply");
        }
    }
    ensure!(address == SockaddrStorage::from(vip), "a reply shows {address}");
    let text = buffer.iter().take_while(|byte| **byte != 0).copied().collect();
    let found: SocketAddr = String::from_utf8(text)?.parse().context("no identity")?;
    ensure!(backends(World::WEB, family, UDP.1).contains(&found), "{found} is not of web");
    Ok(())
}
