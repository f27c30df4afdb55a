//! The scenario suite, on maps in memory: without root and kernel.

use std::{env, process::ExitCode};

use mcs_agent::reconcile::MemoryMaps;
use mcs_tests::scenario;

const SEEDS: u64 = 20;

fn main() -> ExitCode {
    scenario::main(
        SEEDS,
        || Ok(((), env::temp_dir())),
        |(), capacity| Ok(MemoryMaps::new(capacity)),
    )
}
