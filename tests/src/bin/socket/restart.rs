//! Agents stop and start, and clients notice nothing.

use mcs_tests::{cgroup::Visit, traffic};

use crate::{change::SETS, prelude::*};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the agent is killed under load", is_killed);
    suite.case("the agent restarts with another capacity under load", changes_capacity);
    suite.case("another capacity while a file cannot be read, under load", cannot_read);
    suite.case("another capacity and --socket-lb=off", turns_off);
    suite.case("killed while new maps take the place of old ones, under load", exchanges_maps);
    suite.case("the agent restarts with damaged pins under load", finds_damaged_pins);
}

fn is_killed(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = start(world, "killed")?;
    traffic::during(world.netns(Place::Pod), &target.load(&SETS.concat()), || {
        for set in [SETS[1], SETS[0]] {
            site.agent.kill()?;
            let changed = target.clone().with(set);
            site.manifests.write(&changed.service)?;
            thread::sleep(Duration::from_millis(100));
            site.agent.come_back(&[])?;
            site.agent.wait_for(&changed.service)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn changes_capacity(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = start(world, "resized")?;
    let programs_before = programs(&site)?;
    traffic::during(world.netns(Place::Pod), &target.load(SETS[0]), || {
        for memory in ["512Ki", "128Ki"] {
            site.agent.stop()?;
            site.agent.come_back(&["--max-memory", memory])?;
        }
        Ok(())
    })?;
    assert!(programs(&site)?.is_disjoint(&programs_before), "the programs are still the old ones");
    Ok(())
}

/// An unreadable file delays pruning, and nothing else: the programs are still switched to maps of
/// the new shape, and changes still reach them.
fn cannot_read(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = start(world, "unread")?;
    let programs_before = programs(&site)?;
    site.agent.stop()?;
    fs::write(site.manifests.path().join("broken.yaml"), "kind: [")?;
    traffic::during(world.netns(Place::Pod), &target.load(&SETS.concat()), || {
        site.agent.start_again(&["--max-memory", "128Ki"])?;
        site.manifests.write(&target.clone().with(SETS[1]).service)?;
        let new = backends(SETS[1], Family::V4, TCP.1);
        wait::until("a client to reach a new backend", || {
            let backend = world
                .at(Place::Pod, || identity(&connected(Family::V4, target.tcp(Family::V4))?))?;
            ensure!(new.contains(&backend), "it reached {backend}");
            Ok(())
        })
    })?;
    assert!(programs(&site)?.is_disjoint(&programs_before), "the programs are still the old ones");
    let degraded = site.agent.status()?["degraded"].to_string();
    assert!(degraded.contains("not synced"), "{degraded}");
    fs::remove_file(site.manifests.path().join("broken.yaml"))?;
    site.agent.wait_until_healthy()?;
    site.agent.wait_for(&target.with(SETS[1]).service)
}

fn turns_off(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = start(world, "turned-off")?;
    site.agent.stop()?;
    let flags = ["--max-memory", "128Ki", "--socket-lb=off"];
    site.agent.come_back(&flags)?;
    assert!(programs(&site).is_err(), "programs are attached");
    let changed = target.with(SETS[1]).service;
    site.manifests.write(&changed)?;
    site.agent.wait_for(&changed)?;
    assert_eq!(site.agent.log()?.matches("socket hooks: off").count(), 1);
    Ok(())
}

/// The agent died after the first of two renames, with the programs on the new maps.
fn exchanges_maps(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = start(world, "exchanged")?;
    let pins = site.bpffs.path().join("mcs");
    traffic::during(world.netns(Place::Pod), &target.load(SETS[0]), || {
        site.agent.kill()?;
        fs::rename(pins.join("config"), pins.join("config-new"))?;
        fs::create_dir(pins.join("config-old"))?;
        fs::create_dir(pins.join("config-old/others"))?;
        site.agent.come_back(&[])
    })?;
    assert!(!pins.join("config-new").exists() && !pins.join("config-old").exists());
    // What others have there moves along.
    fs::remove_dir(pins.join("config/others"))?;
    site.agent.wait_for(&target.with(SETS[0]).service)
}

/// The programs go on with the maps they have, whatever happens to the pins.
fn finds_damaged_pins(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = start(world, "damaged")?;
    let maps = site.bpffs.path().join("mcs/config");
    traffic::during(world.netns(Place::Pod), &target.load(SETS[0]), || {
        site.agent.stop()?;
        // One is missing, and one is another map.
        fs::rename(maps.join("clusters"), maps.join("slots"))?;
        site.agent.come_back(&[])?;
        site.agent.wait_for(&target.clone().with(SETS[0]).service)
    })?;
    Ok(())
}

fn start(world: &World, role: &str) -> Result<(Target, Site, Visit)> {
    let target = world.fresh(role);
    let site = world.start(role, &[], &[&target.clone().with(SETS[0]).service])?;
    let visit = site.cgroup.visit()?;
    Ok((target, site, visit))
}

/// The ids of the attached programs.
fn programs(site: &Site) -> Result<BTreeSet<u64>> {
    let hooks: Vec<BTreeMap<String, serde_json::Value>> =
        serde_json::from_value(site.agent.status()?["hooks"].take())?;
    let ids = hooks.iter().map(|hook| hook["program_id"].as_u64().context("not attached"));
    ids.collect()
}
