//! The controllers suite: multi-cluster controllers of others, as they are released, with the agent and the controller beside them.

use crate::prelude::*;

mod beside;
mod changes;
mod cilium;
mod cluster;
mod karmada;
mod prelude;
mod service;
mod stage;
mod table;
mod view;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    cilium::cases(&mut suite);
    karmada::cases(&mut suite);
    table::cases(&mut suite);
    suite.main("mcs-ctl", World::begin)
}
