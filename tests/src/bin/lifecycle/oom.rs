//! The kernel kills the agent because its cgroup has no memory left.

use crate::{growth::PATIENCE, memory::MemoryLimit, prelude::*};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("killed by the kernel for want of memory, under load", is_killed);
}

/// What the agent may take more than it has, in bytes: less than the objects to come.
const MORE: u64 = 1 << 20;
/// Services that come at a time.
const SERVICES: usize = 6;

fn is_killed(world: &mut World) -> Result {
    let turns = if is_full() { 20 } else { 3 };
    let limit = MemoryLimit::create(&world.run, "memory")?;
    let (target, mut site, _in_cgroup) = world.stage("starved", &[])?;
    let mut there = 0;
    Load::of(&target).during(&world.network.pod, || {
        for _ in 0..turns {
            // A process is counted from its start on.
            site.agent.kill()?;
            site.agent.start_again(&[])?;
            limit.hold(site.agent.pid())?;
            site.agent.wait_until_healthy()?;
            let killed = limit.kills()?;
            limit.set(limit.usage()? + MORE)?;
            for one in there..there + SERVICES {
                site.manifests.write(&large(one))?;
            }
            there += SERVICES;
            wait::within(PATIENCE, "the kernel to kill the agent", || {
                ensure!(limit.kills()? > killed, "it still runs with {} bytes", limit.usage()?);
                Ok(())
            })?;
            site.agent.wait_until_ended()?;

            let (before, maps) = found(&site)?;
            site.agent.start_again(&[])?;
            wait_for(&site, there * 1000)?;
            let (after, same) = found(&site)?;
            // Some agents die after they have written backends, and before the frontends that lead there.
            let counts = |maps: &MapContents| {
                (maps.backends.len(), maps.frontends.len(), maps.vips.len(), maps.states.len())
            };
            let was_whole = counts(&before) == counts(&after) && maps == same;
            ensure!(!was_whole || before == after, "a restart changed what was right");
            limit.set(u64::MAX >> 1)?;
        }
        Ok(())
    })?;
    // The kernel may kill the agent's self-test, another process, too.
    ensure!(limit.kills()? >= turns, "killed {} times", limit.kills()?);
    tell(format!("killed {turns} times"));
    site.agent.wait_for(&target.service)
}
