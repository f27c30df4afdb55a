//! The node suite: the packet path with real agents, real traffic and what else a node has.

use crate::prelude::*;

mod attach;
mod bulk;
mod change;
mod churn;
mod coverage;
mod direct;
mod exchange;
mod explain;
mod foreign;
mod guard;
mod hairpin;
mod icmp;
mod machines;
mod migrated;
mod moves;
mod neighbours;
mod netfilter;
mod prelude;
mod refusal;
mod resize;
mod restart;
mod scale;
mod stuck_device;
mod takeover;
mod translation;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    direct::cases(&mut suite);
    translation::cases(&mut suite);
    bulk::cases(&mut suite);
    icmp::cases(&mut suite);
    refusal::cases(&mut suite);
    hairpin::cases(&mut suite);
    netfilter::cases(&mut suite);
    foreign::cases(&mut suite);
    scale::cases(&mut suite);
    change::cases(&mut suite);
    guard::cases(&mut suite);
    restart::cases(&mut suite);
    takeover::cases(&mut suite);
    resize::cases(&mut suite);
    machines::cases(&mut suite);
    attach::cases(&mut suite);
    churn::cases(&mut suite);
    neighbours::cases(&mut suite);
    moves::cases(&mut suite);
    migrated::cases(&mut suite);
    explain::cases(&mut suite);
    stuck_device::cases(&mut suite);
    coverage::cases(&mut suite);
    suite.main("mcs-node", World::begin)
}

/// Adds a case for clients in pods of each of these layouts, and for each family.
fn each(
    suite: &mut Suite<World>,
    layouts: &[Layout],
    name: &str,
    check: impl Fn(&World, Layout, Family) -> Result + Copy + Send + 'static,
) {
    for layout in layouts.iter().copied() {
        for family in Family::ON_WIRE {
            let name = format!("{name}, {layout}, {family}");
            suite.case(name, move |world| check(world, layout, family));
        }
    }
}
