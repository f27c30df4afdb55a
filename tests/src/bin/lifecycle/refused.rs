//! The kernel refuses one kind of bpf(2) call after the other: when an agent takes over, when it starts on an empty
//! node, and when its objects are removed.

#![expect(unsafe_code, reason = "seccomp(2)")]

use std::{
    env, fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    agent::Agent,
    netns::Namespace,
    site::Site,
    suite::{Suite, tell},
    wait,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

use crate::{
    load::Load,
    restart::found,
    world::{SETS, World},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("bpf(2) is refused to an agent that takes over, under load", takes_over);
    suite.case("bpf(2) is refused to the first agent, and to cleanup", begins_and_cleans_up);
    suite.case("a running agent may open nothing more, under load", may_open_nothing);
}

/// What the kernel says to one operation of bpf(2).
#[derive(Clone, Copy)]
struct Refusal {
    name: &'static str,
    /// `enum bpf_cmd`.
    operation: u32,
    errno: i32,
}

const fn refusal(name: &'static str, operation: u32, errno: i32) -> Refusal {
    Refusal { name, operation, errno }
}

const REFUSALS: [Refusal; 14] = [
    refusal("BPF_MAP_CREATE: ENOMEM", 0, libc::ENOMEM),
    refusal("BPF_MAP_CREATE: EMFILE", 0, libc::EMFILE),
    refusal("BPF_MAP_UPDATE_ELEM: E2BIG", 2, libc::E2BIG),
    refusal("BPF_MAP_GET_NEXT_KEY: EPERM", 4, libc::EPERM),
    refusal("BPF_PROG_LOAD: E2BIG", 5, libc::E2BIG),
    refusal("BPF_PROG_LOAD: EPERM", 5, libc::EPERM),
    refusal("BPF_OBJ_PIN: ENOSPC", 6, libc::ENOSPC),
    refusal("BPF_OBJ_GET: EMFILE", 7, libc::EMFILE),
    refusal("BPF_OBJ_GET_INFO_BY_FD: EPERM", 15, libc::EPERM),
    refusal("BPF_PROG_QUERY: EPERM", 16, libc::EPERM),
    refusal("BPF_MAP_UPDATE_BATCH: ENOMEM", 26, libc::ENOMEM),
    refusal("BPF_LINK_CREATE: EBUSY", 28, libc::EBUSY),
    refusal("BPF_LINK_UPDATE: EBUSY", 29, libc::EBUSY),
    refusal("BPF_LINK_GET_FD_BY_ID: EPERM", 30, libc::EPERM),
];

/// Set for this program when it plays the agent: the operation and the error, as `5:12`.
const VARIABLE: &str = "MCS_TESTS_REFUSE";

/// Where [`VARIABLE`] is set, runs the program that the arguments name, without the operation.
pub(crate) fn limited() -> Option<ExitCode> {
    let value = env::var(VARIABLE).ok()?;
    let mut arguments = env::args_os().skip(1);
    let mut command = Command::new(arguments.next().unwrap_or_default());
    command.args(arguments).env_remove(VARIABLE);
    let error =
        match value.split_once(':').map(|(operation, errno)| (operation.parse(), errno.parse())) {
            Some((Ok(operation), Ok(errno))) => match refuse(operation, errno) {
                Ok(()) => command.exec(),
                Err(error) => error,
            },
            _ => io::Error::other(format!("{VARIABLE} is {value}")),
        };
    eprintln!("{error}");
    Some(ExitCode::FAILURE)
}

/// Has the kernel fail every bpf(2) call of this process with that operation, for good.
fn refuse(operation: u32, errno: u16) -> io::Result<()> {
    // linux/filter.h: load a word of `struct seccomp_data`, jump if it is equal, return.
    const LOAD: u16 = 0x20;
    const JUMP: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };
    let step = |code, yes, no, k| libc::sock_filter { code, jt: yes, jf: no, k };
    let bpf = u32::try_from(libc::SYS_bpf).map_err(io::Error::other)?;
    let mut filter = [
        step(LOAD, 0, 0, NUMBER),
        step(JUMP, 0, 3, bpf),
        step(LOAD, 0, 0, FIRST_ARGUMENT),
        step(JUMP, 0, 1, operation),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | u32::from(errno)),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
                0,
                0,
            ) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Programs that run the agent without one operation.
struct Limited<'a> {
    world: &'a World,
    agent: PathBuf,
}

impl<'a> Limited<'a> {
    fn of(world: &'a World, agent: &Agent) -> Self {
        Self { world, agent: agent.binary().to_owned() }
    }

    fn program(&self, refusal: Refusal) -> anyhow::Result<PathBuf> {
        let Refusal { operation, errno, .. } = refusal;
        let path = self.world.run.directory().join(format!("refuse-{operation}-{errno}"));
        let own = env::current_exe()?;
        let (own, agent) = (own.display(), self.agent.display());
        let script =
            format!("#!/bin/sh\n{VARIABLE}={operation}:{errno} exec {own} {agent} \"$@\"\n");
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    fn start(&self, site: &mut Site, refusal: Refusal, netns: &Namespace) -> anyhow::Result<()> {
        site.agent.set_binary(&self.program(refusal)?);
        let started = site.agent.start_again(netns, &[]);
        site.agent.set_binary(&self.agent);
        started
    }
}

/// How an agent fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Ended,
    Degraded,
    Healthy,
}

/// An agent that does not end says something of itself, and may get well.
fn outcome(site: &mut Site) -> anyhow::Result<Outcome> {
    const GRACE: Duration = Duration::from_millis(500);
    let pid = site.agent.pid();
    let is_over = wait::until("the agent to end or to report", || {
        if Path::new(&format!("/proc/{pid}/exe")).read_link().is_err() {
            return Ok(true);
        }
        let status = site.agent.status().unwrap_or(Value::Null);
        ensure!(status["report"]["agent"]["pid"] == pid, "no report of it: {}", status["state"]);
        Ok(false)
    })?;
    if is_over {
        return Ok(Outcome::Ended);
    }
    let start = Instant::now();
    while start.elapsed() < GRACE {
        if Path::new(&format!("/proc/{pid}/exe")).read_link().is_err() {
            return Ok(Outcome::Ended);
        }
        if site.agent.is_healthy()? {
            return Ok(Outcome::Healthy);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(Outcome::Degraded)
}

/// Clients notice nothing. An agent that says that it is healthy does its work.
fn takes_over(world: &mut World) -> anyhow::Result<()> {
    let target = world.target("refused");
    let mut site = world.site("refused", &[], &target)?;
    let limited = Limited::of(world, &site.agent);
    let _in_cgroup = site.cgroup.visit()?;
    let mut outcomes = Vec::new();
    Load::of(&target).during(&world.pod, || {
        for (turn, refusal) in REFUSALS.into_iter().enumerate() {
            site.agent.kill()?;
            limited.start(&mut site, refusal, &world.node.netns)?;
            let found = outcome(&mut site).context(refusal.name)?;
            let changed = target.clone().with(SETS[turn % SETS.len()]).service;
            match found {
                Outcome::Healthy => site.apply(&changed).context(refusal.name)?,
                Outcome::Ended => ensure!(!site.agent.is_healthy()?, "{}: healthy", refusal.name),
                Outcome::Degraded => {}
            }
            outcomes.push(format!("{}: {found:?}", refusal.name));
        }
        site.agent.kill()?;
        site.agent.start_again(&world.node.netns, &[])?;
        site.agent.wait_until_healthy()?;
        SETS.iter().try_for_each(|pods| site.apply(&target.clone().with(pods).service))
    })?;
    outcomes.into_iter().for_each(tell);
    Ok(())
}

/// What is left on the way can be removed, and what could not be removed can be removed later.
fn begins_and_cleans_up(world: &mut World) -> anyhow::Result<()> {
    let target = world.target("barred");
    let mut site = world.site("barred", &[], &target)?;
    let limited = Limited::of(world, &site.agent);
    let pins = site.bpffs.path().join("mcs");
    for refusal in REFUSALS.into_iter().step_by(2) {
        site.agent.kill()?;
        site.agent.set_binary(&limited.program(refusal)?);
        let refused = site.agent.cleanup()?;
        site.agent.set_binary(&limited.agent);
        let is_told = !refused.status.success() && !refused.stderr.is_empty();
        ensure!(is_told || !pins.exists(), "{}: {refused:?}", refusal.name);
        let removed = |site: &Site| {
            let cleanup = site.agent.cleanup()?;
            ensure!(cleanup.status.success(), "{}: {cleanup:?}", refusal.name);
            ensure!(!pins.exists(), "{}: {} is left", refusal.name, pins.display());
            Ok(())
        };
        removed(&site)?;

        limited.start(&mut site, refusal, &world.node.netns)?;
        let found = outcome(&mut site).context(refusal.name)?;
        let _ = site.agent.kill();
        removed(&site)?;
        tell(format!("{}: cleanup {}, start {found:?}", refusal.name, refused.status));

        site.agent.start_again(&world.node.netns, &[])?;
        site.agent.wait_until_healthy()?;
    }
    site.agent.wait_for(&target.service)
}

/// What it cannot read does not count as gone. It goes on once it can.
fn may_open_nothing(world: &mut World) -> anyhow::Result<()> {
    const WITHOUT: Duration = Duration::from_secs(3);
    let target = world.target("closed");
    let site = world.site("closed", &[], &target)?;
    let _in_cgroup = site.cgroup.visit()?;
    let pid = Pid::from_raw(site.agent.pid().try_into()?);
    let (before, _) = found(&site)?;
    Load::of(&target).during(&world.pod, || {
        let usual = prlimit(
            pid,
            Resource::Nofile,
            Rlimit { current: Some(3), maximum: getrlimit(Resource::Nofile).maximum },
        )?;
        let other = world.target("other");
        site.manifests.write(&other.service)?;
        site.manifests.write(&target.clone().with(SETS[1]).service)?;
        thread::sleep(WITHOUT);
        let (after, _) = found(&site)?;
        prlimit(pid, Resource::Nofile, usual)?;
        ensure!(before.frontends == after.frontends, "what could not be read has changed the maps");
        site.agent.wait_for(&target.clone().with(SETS[1]).service)?;
        site.agent.wait_for(&other.service)
    })?;
    wait::until("the agent to be healthy", || {
        ensure!(site.agent.is_healthy()?, "{}", site.agent.status()?["degraded"]);
        Ok(())
    })
}
