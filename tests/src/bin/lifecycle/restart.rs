//! Agents end in any way, at any instant, and the next one takes over.

use bytemuck::Zeroable as _;
use mcs_agent::core::{kernel::dataplane::KernelMapsReader, tables::MapView};
use mcs_common::{AddressKinds, BackendRecord, maps};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("SIGTERM and a new start, under load", ends);
    suite.case("SIGTERM in every phase of a start, under load", ends_early);
    suite.case("SIGKILL at random instants while services change, under load", is_killed);
    suite.case("1,000 connections a second, and the agent is killed every second", every_second);
    suite.case("a restart changes nothing that is right", adopts);
    suite.case("a start removes nothing before all has been read, under load", prunes_late);
}

fn ends(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = world.stage("ended", &[])?;
    Load::of(&target).during(&world.network.pod, || {
        for _ in 0..3 {
            site.agent.stop()?;
            site.agent.come_back(&[])?;
        }
        Ok(())
    })
}

/// An agent that has just begun ends when it is asked to, and the next one takes over what it has left.
fn ends_early(world: &mut World) -> Result {
    // A start takes less than these together.
    const PHASES: u32 = 12;
    const PHASE: Duration = Duration::from_millis(25);
    let (target, mut site, _in_cgroup) = world.stage("brief", &[])?;
    site.agent.stop()?;
    Load::of(&target).during(&world.network.pod, || {
        for phase in 0..PHASES {
            site.agent.start_again(&[])?;
            thread::sleep(PHASE * phase);
            site.agent.signal(Signal::TERM)?;
            site.agent.wait_until_ended()?;
        }
        site.agent.come_back(&[])
    })?;
    site.agent.wait_for(&target.service)
}

/// Bystanders keep the agent in the midst of plans.
fn is_killed(world: &mut World) -> Result {
    let kills = if is_full() { 200 } else { 20 / wait::factor().clamp(1, 20) as usize };
    let (target, mut site, _in_cgroup) = world.stage("killed", &[])?;
    let mut random = fastrand::Rng::with_seed(6);
    let last = Load::of(&target).during(&world.network.pod, || {
        let (mut last, mut hinted) = (Vec::new(), 0);
        for turn in 0..kills {
            let changed = target.clone().with(SETS[(turn + 1) % 2]);
            site.manifests.write(&changed.service)?;
            let services = bystanders(turn);
            services.iter().try_for_each(|service| site.manifests.write(service))?;
            thread::sleep(Duration::from_millis(random.u64(0..400)));
            site.agent.kill()?;
            hinted += all_are_hinted(&site)?;
            site.agent.start_again(&[])?;
            last = [vec![changed.service], services].concat();
        }
        site.agent.wait_until_healthy()?;
        ensure!(hinted > 0, "the maps were always empty");
        Ok(last)
    })?;
    last.iter().try_for_each(|service| site.agent.wait_for(service))?;
    let inconsistent = site.agent.counters()?["refused_inconsistent"];
    ensure!(inconsistent == 0, "{inconsistent} clients have met a frontend half written");
    tell(format!("killed {kills} times; no frontend was ever half written"));
    Ok(())
}

/// Programs look up no address without its hint. Returns how many VIPs and backends an agent has left, each with its hint.
fn all_are_hinted(site: &Site) -> Result<usize> {
    let pins = Pins::new(site.bpffs.path());
    let maps = KernelMapsReader::open_with_filter(&pins.config(), &pins.hints())?;
    let contents = maps.read_all()?;
    let vips = contents.vips.keys().map(|vip| (vip, AddressKinds::VIP));
    let used = contents.backends.iter().filter(|one| **one != BackendRecord::zeroed());
    let all: Vec<_> = vips.chain(used.map(|one| (&one.addr, AddressKinds::BACKEND))).collect();
    for (address, hint) in &all {
        ensure!(maps.kinds_of(address).includes(*hint), "{address:?} lacks its hint");
    }
    Ok(all.len())
}

/// Services whose sets are never the same in two turns that follow each other.
fn bystanders(turn: usize) -> Vec<mcs_tests::manifests::Service> {
    let service = |number: u8| {
        let turn = u8::try_from(turn % 100).unwrap_or(0);
        let ips = (0..20).map(|host| [10, 80, number, host + 20 * (turn % 10)].into());
        mcs_tests::manifests::Service::new(
            format!("bystander-{number}"),
            [[10, 79, 1, number].into()],
        )
        .port(mcs_tests::manifests::Protocol::Tcp, 80, 80)
        .endpoints("remote", ips)
    };
    (1..40).map(service).collect()
}

/// The promise in its plainest form.
fn every_second(world: &mut World) -> Result {
    let seconds = if is_full() { 60 } else { 30 };
    let (target, mut site, _in_cgroup) = world.stage("steady", &[])?;
    Load::of(&target).at_rate(1000).during(&world.network.pod, || {
        let start = Instant::now();
        for second in 1..=seconds {
            let until = start + Duration::from_secs(second);
            thread::sleep(until.saturating_duration_since(Instant::now()));
            site.agent.kill()?;
            site.agent.start_again(&[])?;
        }
        Ok(())
    })?;
    tell(format!("{seconds} seconds, killed each"));
    site.agent.wait_until_healthy()
}

fn adopts(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = world.stage("adopted", &[])?;
    let (dump, maps) = found(&site)?;
    Load::of(&target).during(&world.network.pod, || site.agent.replace(&[]))?;
    let (after, same_maps) = found(&site)?;
    ensure!(maps == same_maps, "{same_maps:?} are pinned instead of {maps:?}");
    let [now, former] = [&after, &dump].map(MapView::of);
    ensure!(dump == after, "the maps hold\n{now}\ninstead of\n{former}");
    Ok(())
}

/// The service has gone while no agent ran, but something else cannot be read.
fn prunes_late(world: &mut World) -> Result {
    let seconds = if is_full() { 30 } else { 5 };
    let (target, mut site, _in_cgroup) = world.stage("unread", &[])?;
    let broken = site.manifests.path().join("broken.yaml");
    Load::of(&target).during(&world.network.pod, || {
        site.agent.kill()?;
        std::fs::write(&broken, "{")?;
        site.manifests.remove(target.service.name())?;
        for _ in 0..2 {
            site.agent.start_again(&[])?;
            wait::until("the agent to have read what it can", || {
                let status = site.agent.status()?;
                ensure!(status["report"]["agent"]["pid"] == site.agent.pid(), "it starts");
                ensure!(status["report"]["source"]["problems"][0].is_object(), "no problem");
                Ok(())
            })?;
            thread::sleep(Duration::from_secs(seconds));
            ensure!(site.agent.status()?["report"]["synced"] == false, "it takes all for read");
            site.agent.wait_for(&target.service)?;
            site.agent.kill()?;
        }
        site.agent.start_again(&[])
    })?;
    std::fs::remove_file(broken)?;
    site.agent.wait_until_gone(target.service.name())?;
    tell("nothing removed until all was read, gone then");
    site.agent.wait_until_healthy()
}

/// Whether a map with figures of imports is pinned there: each agent makes them anew.
pub(crate) fn counts_imports(pin: &Path) -> bool {
    [maps::FIGURES, maps::FIGURE_VIPS].iter().any(|name| pin.ends_with(name))
}

/// What the maps hold, and their ids.
pub(crate) fn found(site: &Site) -> Result<(MapContents, Vec<u32>)> {
    let pins = Pins::new(site.bpffs.path());
    let dump = KernelMapsReader::open(&pins.config())?.read_all()?;
    let mut ids = Vec::new();
    for directory in [pins.config(), pins.state()] {
        let mut paths = std::fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        paths.retain(|path| !counts_imports(path));
        for path in paths {
            ids.push(aya::maps::MapInfo::from_pin(path)?.id());
        }
    }
    // A device may keep the program of an earlier agent, which reads the same hints.
    ids.push(aya::maps::MapInfo::from_pin(pins.hints())?.id());
    Ok((dump, ids))
}
