//! Writes to the maps fail, and clients notice nothing.

use mcs_tests::writer::{WriteFaults, Writer, batch};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("one write in ten fails, under load", |world| changes(world, "faulty", 100, 1));
    suite.case("writes fail in bursts of 50, under load", |world| changes(world, "bursts", 10, 50));
}

/// The agent's engine in this process, which takes over the maps of an agent that has stopped:
/// services change hundreds of times, by writes whose system calls fail.
fn changes(world: &World, role: &str, per_mille: u16, length: u32) -> Result {
    let time = Duration::from_secs(if is_full() { 60 } else { 5 });
    let (target, mut site, _in_cgroup) = world.stage(role, &[])?;
    let mut writer = Writer::take_over(&mut site, WriteFaults { per_mille, length })?;
    let states = [0, 1].map(|turn| {
        let mut services = vec![target.clone().with(SETS[turn]).service];
        services.extend((1..=20).map(|number| bystander(turn, number)));
        batch(&world.run, &services)
    });
    let [first, second] = states;
    let states = [first?, second?];
    let (changed, rounds) = Load::of(&target).during(&world.network.pod, || {
        let start = Instant::now();
        let (mut changed, mut rounds) = (0, 0);
        while start.elapsed() < time {
            rounds += writer.write(&states[(changed + 1) % 2])?;
            changed += 1;
        }
        Ok((changed, rounds))
    })?;
    writer.check()?;
    let half = half_written(&site)?;
    tell(format!(
        "{changed} changes in {rounds} rounds, {} writes failed; {half} clients met a frontend half \
         written",
        writer.failed()
    ));
    ensure!(writer.failed() > 0 && half == 0);
    Ok(())
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
fn half_written(site: &Site) -> Result<u64> {
    Ok(site.agent.counters()?["refused_inconsistent"])
}
