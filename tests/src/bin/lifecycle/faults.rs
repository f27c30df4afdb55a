//! Writes to the maps that fail.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mcs_agent::{
    dataplane::KernelMaps,
    loader::{DirectoryLock, Pins},
    model::{self, Backend, DesiredState, Frontend, FrontendId, ObjectKey},
    reconcile::{Faulty, Maps as _, Realized, apply, plan},
};
use mcs_tests::{
    manifests::{Protocol, Service},
    site::Site,
    suite::{Suite, is_full, tell},
};

use crate::{
    load::Load,
    world::{SETS, World},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("one write in ten fails, under load", |world| changes(world, "faulty", 100, 1));
    suite.case("writes fail in bursts of 50, under load", |world| changes(world, "bursts", 10, 50));
}

/// Plans after which a change must have arrived.
const PLANS: usize = 10_000;

/// The agent's writer in this process, which takes over the maps of an agent that has stopped:
/// services change hundreds of times, by writes that fail before they take effect or after.
fn changes(world: &World, role: &str, per_mille: u16, length: u32) -> anyhow::Result<()> {
    let time = Duration::from_secs(if is_full() { 60 } else { 5 });
    let target = world.target(role);
    let mut site = world.site(role, &[], &target)?;
    let _in_cgroup = site.cgroup.visit()?;
    site.agent.stop()?;
    let pins = Pins::new(site.bpffs.path());
    let _lock = DirectoryLock::try_take(pins.root())?.context("the agent still runs")?;
    let capacity = pins.capacity()?.context("the agent has left no maps")?;
    let maps = KernelMaps::open(&pins.config())?;
    let (mut realized, findings) = Realized::restore(maps.dump()?, capacity);
    ensure!(findings.is_empty(), "the agent left {findings:?}");
    let mut maps = Faulty::in_bursts(maps, per_mille, length, 6);
    let states = [0, 1].map(|turn| {
        let mut services = vec![target.clone().with(SETS[turn]).service];
        services.extend((1..=20).map(|number| bystander(turn, number)));
        desired(&services)
    });
    let (changed, plans) = Load::of(&target).during(&world.pod, || {
        let start = Instant::now();
        let (mut changed, mut plans) = (0, 0);
        while start.elapsed() < time {
            plans += converge(&states[(changed + 1) % 2], &mut maps, &mut realized)?;
            changed += 1;
        }
        Ok((changed, plans))
    })?;
    let (found, findings) = Realized::restore(maps.dump()?, capacity);
    ensure!(findings.is_empty(), "{} frontends are damaged: {findings:?}", findings.len());
    ensure!(plan(&states[changed % 2], &found, true).steps.is_empty(), "not all has arrived");
    let half = half_written(&site)?;
    tell(format!(
        "{changed} changes in {plans} plans, {} writes failed; {half} clients met a frontend half \
         written",
        maps.failed()
    ));
    ensure!(maps.failed() > 0 && half == 0);
    Ok(())
}

/// Plans and writes until all has arrived. Returns how many plans it took.
fn converge(
    desired: &DesiredState,
    maps: &mut Faulty<KernelMaps>,
    realized: &mut Realized,
) -> anyhow::Result<usize> {
    for plans in 1..=PLANS {
        let plan = plan(desired, realized, true);
        ensure!(plan.deferred.is_empty(), "no room: {:?}", plan.deferred);
        if apply(&plan, maps, realized).is_ok() {
            return Ok(plans);
        }
    }
    anyhow::bail!("no end after {PLANS} plans")
}

/// A service whose VIP or backends are others each turn.
fn bystander(turn: usize, number: u8) -> Service {
    let turn = u8::try_from(turn).unwrap_or(0);
    let vip =
        if number.is_multiple_of(2) { [10, 79, 2, number] } else { [10, 79, 3 + turn, number] };
    let ips = (0..=number % 5).map(|host| [10, 80, turn, host].into());
    Service::new(format!("bystander-{number}"), [vip.into()])
        .port(Protocol::Tcp, 80, 80)
        .endpoints("remote", ips)
}

/// How many clients found an index that was not their frontend's.
fn half_written(site: &Site) -> anyhow::Result<u64> {
    Ok(site.agent.counters()?["refused_inconsistent"])
}

/// What the rules make of these services.
fn desired(services: &[Service]) -> DesiredState {
    let mut desired = DesiredState::default();
    for service in services {
        for ((ip, port, protocol), addresses) in service.frontends() {
            let protocol = match protocol {
                Protocol::Tcp => model::Protocol::Tcp,
                Protocol::Udp => model::Protocol::Udp,
            };
            let backend = |address| Backend { address, cluster: "remote".into() };
            let frontend = Frontend {
                import: ObjectKey::new("default", service.name()),
                port_name: String::new(),
                affinity_seconds: None,
                backends: addresses.into_iter().map(backend).collect(),
            };
            desired.vips.insert(ip);
            desired.frontends.insert(FrontendId { ip, port, protocol }, frontend);
        }
    }
    desired
}
