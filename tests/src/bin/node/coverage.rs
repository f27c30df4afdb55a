//! Checks the counters after all cases.

use crate::prelude::*;

/// Counters of errors, which must stay 0.
const NEVER: &[&str] =
    &["packet_refused_inconsistent", "packet_dropped_malformed", "packet_dropped_failed"];

/// Each case of one port, of direct connections, has one refused.
const COLLISIONS: u64 = 8;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the programs have counted nothing that should not be", counted);
}

fn counted(world: &mut World) -> Result {
    let counters = world.site.agent.counters()?;
    for (name, count) in counters.iter().filter(|(_, count)| **count > 0) {
        tell(format!("{count:>9}  {name}"));
    }
    for name in NEVER {
        ensure!(counters[*name] == 0, "{name} is {}", counters[*name]);
    }
    let collisions = counters["packet_refused_collision"];
    ensure!(collisions <= COLLISIONS, "{collisions} collisions, not {COLLISIONS}");
    Ok(())
}
