//! Backend sets and VIPs change, and clients notice nothing.

use mcs_agent::core::model::EventBatch;
use mcs_tests::{
    traffic::{self, Load},
    writer::{WriteFaults, Writer, batch},
};

use crate::prelude::*;

const REPLACEMENTS: usize = 1000;
const AT_LEAST: Duration = Duration::from_secs(3);
/// The backend sets that alternate, and one that a bystander has.
pub(crate) const SETS: [&[u8]; 2] = [&[11, 12], &[13, 14]];
const BYSTANDER: &[u8] = &[15, 16];
/// Few buckets, so that freed elements of the hash maps are reused at once: room for 47 frontends.
const SMALL: &str = "--max-memory=64Ki";
/// VIPs of a turn.
const FEW: u32 = 46;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a backend set is replaced under load", replaces_sets);
    suite.case("a backend set is replaced under load, by manifests", replaces_by_manifests);
    suite.case("VIPs come and go beside one under load", replaces_vips);
}

fn inconsistent(site: &Site) -> Result<u64> {
    Ok(site.agent.counters()?["refused_inconsistent"])
}

fn replaces_sets(world: &mut World) -> Result {
    let target = world.fresh("replaced");
    let bystander = world.fresh("bystander");
    let states = [0, 1].map(|turn| {
        // The bystander's backends come and go too, so that ids and blocks change hands.
        let bystanders = &BYSTANDER[..=turn];
        (target.clone().with(SETS[turn]), bystander.clone().with(bystanders))
    });
    let services = [&states[0].0.service, &states[0].1.service];
    let mut site = world.start("replaced", &[], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    let mut writer = Writer::take_over(&mut site, WriteFaults::default())?;
    let batches = states
        .iter()
        .map(|(target, bystander)| batch(&world.run, [&target.service, &bystander.service]));
    let states = batches.collect::<Result<Vec<_>>>()?;
    let load = target.load(&SETS.concat());
    let mut replacements = 0;
    let answers = traffic::during(world.netns(Place::Pod), &load, || {
        let start = Instant::now();
        for state in states.iter().cycle().skip(1) {
            if replacements >= REPLACEMENTS && start.elapsed() >= AT_LEAST {
                break;
            }
            writer.write(state)?;
            replacements += 1;
        }
        Ok(())
    })?;
    tell(format!("{replacements} replacements, {answers} answers"));
    assert_eq!(inconsistent(&site)?, 0);
    Ok(())
}

fn replaces_by_manifests(world: &mut World) -> Result {
    let target = world.fresh("rewritten");
    world.site.apply(&target.clone().with(SETS[0]).service)?;
    let load = target.load(&SETS.concat());
    let answers = traffic::during(world.netns(Place::Pod), &load, || {
        let mut sets = SETS.iter().cycle().skip(1).take(8);
        sets.try_for_each(|set| world.site.apply(&target.clone().with(set).service))
    })?;
    tell(format!("8 replacements, {answers} answers"));
    world.site.remove(&target.service)
}

fn replaces_vips(world: &mut World) -> Result {
    let stable = world.fresh("stable");
    let vip = stable.tcp(Family::V4);
    let stable = one_frontend("stable", vip.ip())
        .port(Protocol::Udp, UDP.0, UDP.1)
        .endpoints("remote", ips(SETS[0]));
    let mut site = world.start("few", &[SMALL], &[&stable])?;
    let _in_cgroup = site.cgroup.visit()?;
    let mut writer = Writer::take_over(&mut site, WriteFaults::default())?;
    let states = (0..16).map(|turn| batch_beside(world, &stable, turn));
    let states = states.collect::<Result<Vec<_>>>()?;
    let load = Load {
        tcp: vec![(Family::V4, vip)],
        udp: vec![(Family::V4, SocketAddr::new(vip.ip(), UDP.0))],
        backends: [TCP.1, UDP.1]
            .iter()
            .flat_map(|port| backends(SETS[0], Family::V4, *port))
            .collect(),
    };
    let answers = traffic::during(world.netns(Place::Pod), &load, || {
        states.iter().cycle().take(200).try_for_each(|state| writer.write(state).map(drop))
    })?;
    tell(format!("{} VIPs replaced, {answers} answers", 200 * (FEW - 2)));
    assert_eq!(inconsistent(&site)?, 0);
    Ok(())
}

/// One VIP, and beside it as many others as there is room for, which no other turn has.
fn batch_beside(world: &World, stable: &Service, turn: u8) -> Result<EventBatch> {
    let mut services = vec![stable.clone()];
    for number in 2..FEW {
        let vip = Ipv4Addr::new(10, 80, turn, u8::try_from(number).unwrap_or(u8::MAX));
        let passing = one_frontend(&format!("passing-{number}"), vip.into());
        services.push(passing.endpoints("remote", ips(BYSTANDER)));
    }
    batch(&world.run, &services)
}

fn one_frontend(name: &str, vip: IpAddr) -> Service {
    Service::new(name, [vip]).port(Protocol::Tcp, TCP.0, TCP.1)
}

fn ips(pods: &[u8]) -> Vec<IpAddr> {
    backends(pods, Family::V4, TCP.1).iter().map(SocketAddr::ip).collect()
}
