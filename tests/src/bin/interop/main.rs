//! The interop suite: what works in a member cluster without the agent works with it, whichever system wrote
//! the objects. kube-proxy serves the node; the objects are those of the scenarios `interop-*`.

use self::world::World;
use crate::prelude::*;

mod prelude;
mod reach;
mod system;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    world::cases(&mut suite);
    suite.main("mcs-iop", World::begin)
}
