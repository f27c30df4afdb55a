//! The API suite: agents with a real API server, which fails in every way.

use crate::prelude::*;

mod adoption;
mod away;
mod calls;
mod changes;
mod chart_mcs;
mod cleanup_nodes;
mod definitions;
mod deployment;
mod faults;
mod forms;
mod garbage;
mod place;
mod plugin;
mod prelude;
mod rights;
mod scale;
mod stall;
mod swing;
mod traffic;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    changes::cases(&mut suite);
    calls::cases(&mut suite);
    place::cases(&mut suite);
    traffic::cases(&mut suite);
    faults::cases(&mut suite);
    away::cases(&mut suite);
    definitions::cases(&mut suite);
    rights::cases(&mut suite);
    adoption::cases(&mut suite);
    deployment::cases(&mut suite);
    chart_mcs::cases(&mut suite);
    cleanup_nodes::cases(&mut suite);
    plugin::cases(&mut suite);
    stall::cases(&mut suite);
    forms::cases(&mut suite);
    garbage::cases(&mut suite);
    scale::cases(&mut suite);
    suite.main("mcs-api", World::begin)
}
