//! Verification: the programs are attached, and run for every process below the cgroup.

use mcs_tests::{
    bpf::{AttachType, Instruction},
    cgroup::Cgroup,
};

use crate::prelude::*;

/// The agent looks every 30 s.
const PATIENCE: Duration = Duration::from_secs(45);

/// A connect4 program that lets every connection pass, and redirects it to another address if `elsewhere`.
fn connects(elsewhere: bool) -> Result<Program> {
    const USER_IP4: i16 = 4;
    let mut program: Vec<Instruction> = Vec::new();
    if elsewhere {
        let localhost = i32::from_ne_bytes([127, 0, 0, 1]);
        program.push(instruction(code::STORE_WORD_CONSTANT, 1, 0, USER_IP4, localhost));
    }
    program.push(instruction(code::MOVE_CONSTANT, 0, 0, 0, 1));
    program.push(instruction(code::EXIT, 0, 0, 0, 0));
    Ok(Program::load(
        ProgramType::BPF_PROG_TYPE_CGROUP_SOCK_ADDR,
        Some(AttachType::BPF_CGROUP_INET4_CONNECT),
        &program,
    )?)
}

/// Waits for a report of a verification. Returns it, and how long that took.
fn wait_for_verification(
    site: &Site,
    what: &str,
    is_it: impl Fn(&Value) -> bool,
) -> Result<(Value, Duration)> {
    let start = std::time::Instant::now();
    let found = wait::within(PATIENCE, what, || {
        let mut status = site.agent.status()?;
        let attachment = status["report"]["attachment"].take();
        ensure!(is_it(&attachment), "{attachment}");
        Ok(attachment)
    })?;
    Ok((found, start.elapsed()))
}

pub(crate) fn is_proven(world: &World) -> Result {
    let target = world.target("proven");
    let mut site = world.start("proven", &[], &[&target.service])?;
    site.agent.stop()?;
    let pods = ["proven/pod-a", "proven/pod-a/container", "proven/pod-b"];
    let children =
        pods.iter().map(|role| Cgroup::create(&world.run, role)).collect::<Result<Vec<_>>>()?;
    // It looks when it starts.
    site.agent.start_again(&[])?;
    let (found, took) = wait_for_verification(&site, "the proof", |attachment| {
        attachment["witness"] == true && attachment["effect"]["cgroups"].as_u64() >= Some(4)
    })?;
    ensure!(found["effect"]["without"] == 0, "{found}");
    ensure!(found["effect"]["before"].as_array().is_some_and(Vec::is_empty), "{found}");
    let counted = site.agent.counters()?["refused_unknown_port"];
    ensure!(counted == 0, "the self-test was counted {counted} times");
    tell(format!("{} cgroups, and a self-test, after {took:.1?}", found["effect"]["cgroups"]));

    // `status` names a foreign program in a cgroup below, which runs before ours.
    let program = connects(false)?;
    let link = program
        .attach_to_cgroup(File::open(children[0].path())?, AttachType::BPF_CGROUP_INET4_CONNECT)?;
    let (found, took) = wait_for_verification(&site, "the program to be named", |attachment| {
        attachment["effect"]["before"].as_array().is_some_and(|before| before.len() == 1)
    })?;
    let before = found["effect"]["before"][0].as_str().unwrap_or_default();
    ensure!(before.contains("connect4") && before.contains("pod-a"), "{before}");
    ensure!(site.agent.is_healthy()?, "{}", site.agent.status()?["degraded"]);
    tell(format!("named after {took:.1?}: {before}"));
    drop(link);
    // They have to be removed in this order.
    children.into_iter().rev().try_for_each(|child| {
        let path = child.path().to_owned();
        drop(child);
        ensure!(!path.exists(), "{} is left", path.display());
        Ok(())
    })
}

pub(crate) fn is_shadowed(world: &World) -> Result {
    let target = world.target("shadowed");
    let mut site = world.start("shadowed", &[], &[&target.service])?;
    site.agent.stop()?;
    ensure!(site.agent.cleanup()?.status.success());
    // In the cgroup of the self-test: its programs run before those of the one above. The agent removes it afterwards.
    let cgroup = site.cgroup.path().join("mcs-agent-self-test");
    fs::create_dir(&cgroup)?;
    let _redirecting = connects(true)?
        .attach_to_cgroup(File::open(&cgroup)?, AttachType::BPF_CGROUP_INET4_CONNECT)?;
    site.agent.start_again(&[])?;
    let (found, took) =
        wait_for_verification(&site, "the redirection to be noticed", |attachment| {
            attachment["witness"] == false
        })?;
    let degraded = site.agent.status()?["degraded"].to_string();
    ensure!(degraded.contains("attached, but the self-test failed"), "{degraded}");
    tell(format!("reported after {took:.1?}: {}", found["witness_says"]));
    let (_, took) =
        wait_for_verification(&site, "all to be well", |attachment| attachment["witness"] == true)?;
    site.agent.wait_until_healthy()?;
    tell(format!("well again after {took:.1?}"));
    Ok(())
}
