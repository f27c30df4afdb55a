//! The interop suite: what works in a member cluster without the agent works with it, whichever system wrote
//! the objects. kube-proxy serves the node; the objects are those of the scenarios `interop-*`.

use std::process::ExitCode;

use mcs_tests::suite::Suite;

mod reach;
mod system;
mod world;

use self::world::World;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    world::cases(&mut suite);
    suite.main("mcs-iop", World::begin)
}
