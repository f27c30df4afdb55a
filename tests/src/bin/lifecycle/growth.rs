//! Maps grow while they are in use.

use mcs_tests::{agent::works, wait::scaled};

use crate::{
    cleanup::{MOVES, wait_for_move},
    prelude::*,
};

/// Endpoints of a service.
pub(crate) const SET: usize = 1000;
/// How long an agent may take to read, and to write, all of them.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("maps grow from nothing while the agent runs, under load", grows);
    suite.case("64k to 1M endpoints, under load", grows_far);
    suite.case("killed while maps grow, under load", is_killed);
}

/// A service of `SET` endpoints.
pub(crate) fn large(number: usize) -> Service {
    let [high, low] = u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
    let ips = (0..SET).map(|n| {
        let [third, last] = u16::try_from(n + 1).unwrap_or(0).to_be_bytes();
        IpAddr::from([11, low, third | high << 2, last])
    });
    Service::new(format!("large-{number}"), [[10, 90, high, low].into()])
        .port(Protocol::Tcp, 80, 80)
        .endpoints("remote", ips)
}

/// Waits until the maps have room for this number of endpoints and hold all of them.
pub(crate) fn wait_for(site: &Site, endpoints: usize) -> Result<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = site.agent.status()?;
        let has = status["report"]["usage"]["endpoints"].as_u64().unwrap_or(0);
        let own = status["report"]["agent"]["pid"] == site.agent.pid();
        if own && works(&status) && has >= endpoints as u64 {
            return Ok(status);
        }
        if Instant::now() > until {
            bail!("{has} of {endpoints} endpoints after {PATIENCE:?}: {}", status["degraded"]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until a 16th more than this number of endpoints fits. Maps grow ahead of need.
fn wait_for_headroom(site: &Site, endpoints: usize) -> Result<Value> {
    let need = (endpoints + endpoints / 16) as u64;
    let until = Instant::now() + PATIENCE;
    loop {
        let status = site.agent.status()?;
        let room = room(&status)?;
        if room >= need {
            return Ok(status);
        }
        ensure!(Instant::now() < until, "room for {room} endpoints after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn room(status: &Value) -> Result<u64> {
    status["report"]["capacity"]["endpoints"].as_u64().context("no capacity")
}

fn grows(world: &mut World) -> Result {
    grow(world, "grown", &[8, 40])
}

fn grows_far(world: &mut World) -> Result {
    grow(world, "grown-far", &[64, 1000])
}

/// How long the agent took no change for each growth, from its log.
fn pauses(log: &str) -> Result<Vec<Duration>> {
    let growths = log.lines().filter(|line| line.contains("moved to larger maps"));
    let micros = |line: &str| {
        let micros =
            line.split("micros=").nth(1)?.split(|sign: char| !sign.is_ascii_digit()).next()?;
        micros.parse().ok().map(Duration::from_micros)
    };
    growths.map(|line| micros(line).with_context(|| format!("no time in {line}"))).collect()
}

/// Adds services up to each of these numbers.
fn grow(world: &World, role: &str, numbers: &[usize]) -> Result {
    let (target, mut site, _in_cgroup) = world.stage(role, &[])?;
    let mut before = room(&site.agent.status()?)?;
    let mut there = 0;
    for &number in numbers {
        let status = Load::of(&target).during(&world.network.pod, || {
            (there..number).try_for_each(|one| site.manifests.write(&large(one)))?;
            wait_for(&site, number * SET)?;
            wait_for_headroom(&site, number * SET)
        })?;
        there = number;
        let after = room(&status)?;
        ensure!(after > before, "there is room for {after} endpoints still");
        tell(format!(
            "{} endpoints, room for {after} instead of {before}, {} KiB of config maps, {} KiB of the \
             process at most",
            number * SET,
            status["report"]["config_map_bytes"].as_u64().unwrap_or(0) / 1024,
            Footprint::of(site.agent.pid())?.peak
        ));
        before = after;
    }
    let pauses = pauses(&site.agent.log()?)?;
    let longest = pauses.iter().max().context("it never moved to larger maps")?;
    let last = numbers.last().copied().unwrap_or_default();
    let bound = Duration::from_secs(if last * SET > 100_000 { 3 } else { 1 });
    tell(format!("{} growths, each within {longest:?}", pauses.len()));
    ensure!(*longest <= scaled(bound), "changes waited for {longest:?}");
    ensure!(site.agent.status()?["report"]["grown_at"].is_u64(), "status says no time");
    // A new start takes them as they are.
    Load::of(&target).during(&world.network.pod, || {
        site.agent.kill()?;
        site.agent.start_again(&[])?;
        wait_for(&site, there * SET)
    })?;
    let kept = room(&site.agent.status()?)?;
    ensure!(kept == before, "there is room for {kept} endpoints after a restart");
    site.agent.wait_for(&target.service)
}

fn is_killed(world: &mut World) -> Result {
    let kills = if is_full() { 40 } else { 8 };
    let mut random = fastrand::Rng::with_seed(7);
    let (target, mut site, _in_cgroup) = world.stage("interrupted", &[])?;
    let pins = site.bpffs.path().join("mcs");
    let mut halfway = 0;
    Load::of(&target).during(&world.network.pod, || {
        for turn in 0..kills {
            // From the smallest maps on, each time.
            site.agent.stop()?;
            for one in 0..12 {
                // There is nothing the first time.
                let _ = site.manifests.remove(large(one).name());
            }
            site.agent.come_back(&["--max-memory=400Ki"])?;
            site.agent.stop()?;
            site.agent.start_again(&[])?;
            (0..12).try_for_each(|one| site.manifests.write(&large(one)))?;
            if turn % 2 == 0 {
                std::thread::sleep(Duration::from_millis(random.u64(0..800)));
            } else {
                wait_for_move(&pins)?;
                std::thread::sleep(Duration::from_millis(random.u64(0..100)));
            }
            site.agent.kill()?;
            halfway += usize::from(MOVES.iter().any(|name| pins.join(name).exists()));
            site.agent.start_again(&[])?;
            wait_for(&site, 12 * SET).with_context(|| format!("turn {turn}"))?;
        }
        Ok(())
    })?;
    tell(format!("killed {kills} times, {halfway} of them halfway to other maps"));
    ensure!(halfway > 0, "never killed halfway");
    for leftover in MOVES {
        ensure!(!pins.join(leftover).exists(), "{leftover} is left");
    }
    site.agent.wait_for(&target.service)
}
