//! The node suite: the packet path with real agents, real traffic and what else a node has.

use std::process::ExitCode;

use mcs_tests::suite::Suite;

mod world;

use self::world::World;

fn main() -> ExitCode {
    let suite = Suite::default();
    suite.main(World::begin)
}
