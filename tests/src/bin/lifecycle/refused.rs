//! The kernel refuses one kind of bpf(2) call after the other: when an agent takes over, when it starts on an empty
//! node, and when its objects are removed.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::{bound::serves, prelude::*};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("bpf(2) is refused to an agent that takes over, under load", takes_over);
    suite.case("one call of bpf(2) is refused to an agent that takes over, under load", once);
    suite.case("bpf(2) is refused to the first agent, and to cleanup", begins_and_cleans_up);
    suite.case("the kernel does not take one program for devices", one_program);
    suite.case("a running agent may open nothing more, under load", may_open_nothing);
}

/// Socket hooks, and programs on devices.
const FLAGS: &[&str] = &["--tc=on"];

/// Refusals, each with its name.
const REFUSALS: [(&str, Refusal); 14] = [
    ("BPF_MAP_CREATE: ENOMEM", Refusal::always(0, libc::ENOMEM)),
    ("BPF_MAP_CREATE: EMFILE", Refusal::always(0, libc::EMFILE)),
    ("BPF_MAP_UPDATE_ELEM: E2BIG", Refusal::always(2, libc::E2BIG)),
    ("BPF_MAP_GET_NEXT_KEY: EPERM", Refusal::always(4, libc::EPERM)),
    ("BPF_PROG_LOAD: E2BIG", Refusal::always(5, libc::E2BIG)),
    ("BPF_PROG_LOAD: EPERM", Refusal::always(5, libc::EPERM)),
    ("BPF_OBJ_PIN: ENOSPC", Refusal::always(6, libc::ENOSPC)),
    ("BPF_OBJ_GET: EMFILE", Refusal::always(7, libc::EMFILE)),
    ("BPF_OBJ_GET_INFO_BY_FD: EPERM", Refusal::always(15, libc::EPERM)),
    ("BPF_PROG_QUERY: EPERM", Refusal::always(16, libc::EPERM)),
    ("BPF_MAP_UPDATE_BATCH: ENOMEM", Refusal::always(26, libc::ENOMEM)),
    ("BPF_LINK_CREATE: EBUSY", Refusal::always(28, libc::EBUSY)),
    ("BPF_LINK_UPDATE: EBUSY", Refusal::always(29, libc::EBUSY)),
    ("BPF_LINK_GET_FD_BY_ID: EPERM", Refusal::always(30, libc::EPERM)),
];

/// Programs that run the agent without one operation.
struct Limited<'a> {
    world: &'a World,
    agent: PathBuf,
}

impl<'a> Limited<'a> {
    fn of(world: &'a World, agent: &Agent) -> Self {
        Self { world, agent: agent.binary().to_owned() }
    }

    fn program(&self, refusal: Refusal) -> Result<PathBuf> {
        refusal.script(&self.agent, self.world.run.directory())
    }

    fn start(&self, site: &mut Site, refusal: Refusal) -> Result {
        site.agent.set_binary(&self.program(refusal)?);
        let started = site.agent.start_again(FLAGS);
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
fn outcome(site: &mut Site) -> Result<Outcome> {
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
fn takes_over(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = world.stage("refused", FLAGS)?;
    let limited = Limited::of(world, &site.agent);
    let mut outcomes = Vec::new();
    Load::of(&target).during(&world.network.pod, || {
        for (turn, (name, refusal)) in REFUSALS.into_iter().enumerate() {
            site.agent.kill()?;
            limited.start(&mut site, refusal)?;
            let found = outcome(&mut site).context(name)?;
            let changed = target.clone().with(SETS[turn % SETS.len()]).service;
            match found {
                Outcome::Healthy => site.apply(&changed).context(name)?,
                Outcome::Ended => ensure!(!site.agent.is_healthy()?, "{name}: healthy"),
                Outcome::Degraded => {}
            }
            outcomes.push(format!("{name}: {found:?}"));
        }
        site.agent.replace(FLAGS)?;
        SETS.iter().try_for_each(|pods| site.apply(&target.clone().with(pods).service))
    })?;
    outcomes.into_iter().for_each(tell);
    Ok(())
}

/// The same, at one call somewhere in the start.
fn once(world: &mut World) -> Result {
    /// Operations, and how many of their calls a start makes at least.
    const CALLS: [(u32, u32); 9] =
        [(0, 20), (2, 4), (5, 12), (6, 20), (7, 40), (15, 60), (26, 1), (28, 4), (29, 12)];
    let turns = if is_full() { 200 } else { 18 };
    let (target, mut site, _in_cgroup) = world.stage("once", FLAGS)?;
    let limited = Limited::of(world, &site.agent);
    let mut random = fastrand::Rng::with_seed(33);
    let mut fared = [0; 3];
    Load::of(&target).during(&world.network.pod, || {
        for turn in 0..turns {
            let (operation, calls) = CALLS[turn % CALLS.len()];
            let errno = [libc::ENOMEM, libc::EMFILE, libc::EPERM][random.usize(..3)];
            let refusal = Refusal::once(operation, errno, random.u32(1..=calls));
            site.agent.kill()?;
            limited.start(&mut site, refusal)?;
            let found = outcome(&mut site).with_context(|| refusal.to_string())?;
            if found == Outcome::Healthy {
                let changed = target.clone().with(SETS[turn % SETS.len()]).service;
                site.apply(&changed).with_context(|| refusal.to_string())?;
            }
            fared[found as usize] += 1;
        }
        site.agent.replace(FLAGS)?;
        SETS.iter().try_for_each(|pods| site.apply(&target.clone().with(pods).service))
    })?;
    let [ended, degraded, healthy] = fared;
    tell(format!("{turns} starts: {ended} ended, {degraded} degraded, {healthy} healthy"));
    Ok(())
}

/// What is left on the way can be removed, and what could not be removed can be removed later.
fn begins_and_cleans_up(world: &mut World) -> Result {
    let target = world.target("barred");
    let mut site = world.start("barred", FLAGS, &[&target.service])?;
    let limited = Limited::of(world, &site.agent);
    let pins = site.bpffs.path().join("mcs");
    for (name, refusal) in REFUSALS.into_iter().step_by(2) {
        site.agent.kill()?;
        site.agent.set_binary(&limited.program(refusal)?);
        let refused = site.agent.cleanup()?;
        site.agent.set_binary(&limited.agent);
        let is_told = !refused.status.success() && !refused.stderr.is_empty();
        ensure!(is_told || !pins.exists(), "{name}: {refused:?}");
        let removed = |site: &Site| {
            let cleanup = site.agent.cleanup()?;
            ensure!(cleanup.status.success(), "{name}: {cleanup:?}");
            ensure!(!pins.exists(), "{name}: {} is left", pins.display());
            Ok(())
        };
        removed(&site)?;

        limited.start(&mut site, refusal)?;
        let found = outcome(&mut site).context(name)?;
        let _ = site.agent.kill();
        removed(&site)?;
        tell(format!("{name}: cleanup {}, start {found:?}", refused.status));

        site.agent.come_back(FLAGS)?;
    }
    site.agent.wait_for(&target.service)
}

/// Only the devices that need the program have none. What a former agent has attached to them serves on.
fn one_program(world: &mut World) -> Result {
    let target = world.target("one-program");
    let mut site = world.start("one-program", FLAGS, &[&target.service])?;
    lead(&world.network, &target)?;
    let limited = Limited::of(world, &site.agent);
    for (program, is_needed, is_first) in
        [("from_pod_bare", false, true), ("from_pod", true, false), ("from_pod", true, true)]
    {
        let case = format!("{program}, on an empty node: {is_first}");
        site.agent.kill()?;
        if is_first {
            let cleanup = site.agent.cleanup()?;
            ensure!(cleanup.status.success(), "{case}: {cleanup:?}");
        }
        limited.start(&mut site, Refusal::of_program(program))?;
        site.agent.wait_for(&target.service).context(case.clone())?;
        if !is_needed {
            site.agent.wait_until_healthy().context(case.clone())?;
        }
        wait::until("the state of the devices", || {
            let status = site.agent.status()?;
            let is_told = |text: &str| status["degraded"].to_string().contains(text);
            let report = &status["report"];
            ensure!(report["agent"]["pid"] == site.agent.pid(), "{case}: the report of another");
            ensure!(report["tc"]["looked"] == true, "{case}: {status}");
            ensure!(
                is_told("does not take the program from_pod ") == is_needed,
                "{case}: {status}"
            );
            Ok(())
        })?;
        for (sockets, family) in CLIENTS {
            if sockets || !is_needed || !is_first {
                let who = by(&site, &world.network, sockets, || answers(&target, family))
                    .with_context(|| format!("{case}, sockets: {sockets}, {family}"))?;
                ensure!(who.iter().all(|one| backends(SETS[0]).contains(one)), "{case}: {who:?}");
            }
        }
    }
    site.agent.replace(FLAGS)?;
    serves(&site, &world.network, &target)
}

/// What it cannot read does not count as gone. It goes on once it can.
fn may_open_nothing(world: &mut World) -> Result {
    const WITHOUT: Duration = Duration::from_secs(3);
    let (target, site, _in_cgroup) = world.stage("closed", &[])?;
    let pid = Pid::from_raw(site.agent.pid().try_into()?);
    let (before, _) = found(&site)?;
    Load::of(&target).during(&world.network.pod, || {
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
