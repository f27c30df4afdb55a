//! An operation of bpf(2) that the kernel refuses to a program, always, once or for one eBPF program, or at which it kills it. This program plays two parts beside the suite: it
//! becomes the program that is refused, and supervises the calls of that one.

#![expect(unsafe_code, reason = "seccomp(2), and its descriptor")]

use std::{
    env,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{
            fs::{FileExt as _, PermissionsExt as _},
            net::UnixStream,
            process::CommandExt as _,
        },
    },
    str::FromStr,
};

use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, poll},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
    process::{Pid, kill_process},
};

use crate::prelude::*;

/// What the kernel says to an operation of bpf(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    /// `enum bpf_cmd`.
    operation: u32,
    /// [`Refusal::KILLED`]: it says nothing any more.
    errno: i32,
    /// Which call is refused, from 1; 0 are all.
    call: u32,
    /// The program whose load alone is refused; empty: every call.
    program: &'static str,
}

impl Refusal {
    const KILLED: i32 = 0;

    /// The program is killed before this call, from 1.
    pub(crate) const fn killed_at(operation: u32, call: u32) -> Self {
        Self { operation, errno: Self::KILLED, call, program: "" }
    }

    pub(crate) const fn always(operation: u32, errno: i32) -> Self {
        Self { operation, errno, call: 0, program: "" }
    }

    /// The verifier does not take this program.
    pub(crate) const fn of_program(program: &'static str) -> Self {
        Self { operation: BPF_PROG_LOAD, errno: libc::E2BIG, call: 0, program }
    }

    pub(crate) const fn once(operation: u32, errno: i32, call: u32) -> Self {
        Self { operation, errno, call, program: "" }
    }

    /// A script that runs `program` so.
    pub(crate) fn script(self, program: &Path, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(format!("refuse-{self}"));
        let own = env::current_exe()?;
        let (own, program) = (own.display(), program.display());
        fs::write(&path, format!("#!/bin/sh\n{REFUSED}={self} exec {own} {program} \"$@\"\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, errno, call, program } = self;
        write!(f, "{operation}-{errno}-{call}-{program}")
    }
}

impl FromStr for Refusal {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('-');
        let mut next = || parts.next().context("too few numbers");
        let (operation, errno) = (next()?.parse()?, next()?.parse()?);
        let call = next()?.parse()?;
        // One for each process that plays a part.
        Ok(Self { operation, errno, call, program: next()?.to_owned().leak() })
    }
}

/// `enum bpf_cmd`.
const BPF_PROG_LOAD: u32 = 5;
/// Set for this program when it is to become the program that its arguments name, without an operation.
const REFUSED: &str = "MCS_TESTS_REFUSED";
/// Set when it is to supervise that one.
const SUPERVISED: &str = "MCS_TESTS_SUPERVISED";

/// Plays one of the parts, where a variable is set.
pub(crate) fn play() -> Option<ExitCode> {
    let played = match (env::var(REFUSED), env::var(SUPERVISED)) {
        (Ok(refusal), _) => become_refused(&refusal),
        (_, Ok(refusal)) => supervise(&refusal),
        _ => return None,
    };
    Some(played.map_or_else(
        |error| {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

fn become_refused(refusal: &str) -> Result {
    let (here, there) = UnixStream::pair()?;
    let mut supervisor = Command::new(env::current_exe()?);
    supervisor
        .env_remove(REFUSED)
        .env(SUPERVISED, refusal)
        .stdin(Stdio::from(OwnedFd::from(there)));
    supervisor.stdout(Stdio::null()).stderr(Stdio::null());
    // It ends with the last process that is refused something.
    drop(supervisor.spawn()?);
    let calls = listen(refusal.parse()?)?;

    let fds = [calls.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    ensure!(control.push(SendAncillaryMessage::ScmRights(&fds)), "no space for a descriptor");
    sendmsg(&here, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())?;
    let mut arguments = env::args_os().skip(1);
    let mut command = Command::new(arguments.next().context("no program")?);
    Err(command.args(arguments).env_remove(REFUSED).exec().into())
}

/// Has the kernel ask before each bpf(2) call of this process with the operation.
fn listen(Refusal { operation, .. }: Refusal) -> Result<OwnedFd> {
    // linux/filter.h: load a word of `struct seccomp_data`, jump if it is equal, return.
    const LOAD: u16 = 0x20;
    const JUMP: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };
    let step = |code, yes, no, k| libc::sock_filter { code, jt: yes, jf: no, k };
    let mut filter = [
        step(LOAD, 0, 0, NUMBER),
        step(JUMP, 0, 3, u32::try_from(libc::SYS_bpf)?),
        step(LOAD, 0, 0, FIRST_ARGUMENT),
        step(JUMP, 0, 1, operation),
        step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the kernel copies the filter.
    let listener = unsafe {
        ensure!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
        // The supervisor reads the memory of this process, which Yama forbids otherwise. It fails without Yama.
        libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program)
    };
    ensure!(listener >= 0, "seccomp: {}", io::Error::last_os_error());
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(listener.try_into()?) })
}

/// Answers each call, until nobody is left who makes any.
fn supervise(refusal: &str) -> Result {
    let Refusal { errno, call, program, .. } = refusal.parse()?;
    let calls = receive()?;
    let mut number = 0;
    loop {
        let mut events = [PollFd::new(&calls, PollFlags::IN)];
        poll(&mut events, None)?;
        if !events[0].revents().contains(PollFlags::IN) {
            return Ok(());
        }
        // SAFETY: zeros are a request that is not there yet; the kernel wants them so.
        let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        let fd = calls.as_raw_fd();
        // SAFETY: the kernel writes the request.
        if unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut request) } != 0 {
            // The caller was killed meanwhile.
            continue;
        }
        number += 1;
        let is_other = !program.is_empty() && program_of(&request)? != program;
        let goes_on = is_other || (call != 0 && call != number);
        if errno == Refusal::KILLED && !goes_on {
            let thread = Pid::from_raw(request.pid.try_into()?).context("no caller")?;
            kill_process(thread, Signal::KILL)?;
            continue;
        }
        let flags = if goes_on { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE } else { 0 };
        let error = if goes_on { 0 } else { -errno };
        let answer =
            libc::seccomp_notif_resp { id: request.id, val: 0, error, flags: flags.try_into()? };
        // SAFETY: the kernel reads the answer. It fails if the caller was killed meanwhile.
        unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
    }
}

/// The name of the program that a call loads, as `union bpf_attr` has it.
fn program_of(request: &libc::seccomp_notif) -> Result<String> {
    /// The offset of `prog_name`.
    const NAME: u64 = 48;
    let mut name = [0; 16];
    let memory = fs::File::open(format!("/proc/{}/mem", request.pid))?;
    memory.read_exact_at(&mut name, request.data.args[1] + NAME)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The descriptor for the calls, from the standard input.
fn receive() -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(io::stdin(), &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let message = control.drain().next().context("no descriptor")?;
    match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next().context("no descriptor"),
        _ => anyhow::bail!("no descriptor"),
    }
}
