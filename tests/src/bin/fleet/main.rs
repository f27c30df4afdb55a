//! The fleet suite: what many nodes cost one API server, and how long they take to follow it.

use std::{env, process::ExitCode};

use mcs_tests::suite::Suite;

mod cases;
mod crowd;
mod followers;
mod world;

use self::world::World;

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some(crowd::VERB) {
        return followers::main();
    }
    let mut suite = Suite::default();
    cases::cases(&mut suite);
    suite.main("mcs-fleet", World::begin)
}
