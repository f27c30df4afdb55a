//! The node suite: the packet path with real agents, real traffic and what else a node has.

use std::process::ExitCode;

use mcs_tests::{client::Family, suite::Suite, topology::pod::Layout};

mod direct;
mod exchange;
mod translation;
mod world;

use self::world::World;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    direct::cases(&mut suite);
    translation::cases(&mut suite);
    suite.main(World::begin)
}

/// What holds for clients in pods of every layout, and for both families.
type Check = fn(&World, Layout, Family) -> anyhow::Result<()>;

/// Adds a case for each of these layouts and each family.
fn each(suite: &mut Suite<World>, layouts: &[Layout], name: &str, check: Check) {
    for layout in layouts.iter().copied() {
        for family in Family::ON_WIRE {
            let name = format!("{name}, {layout}, {family}");
            suite.case(name, move |world| check(world, layout, family));
        }
    }
}
