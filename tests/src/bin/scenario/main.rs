//! The scenario suite, on maps in memory: without root and kernel.

use std::{env, process::ExitCode};

use mcs_agent::core::{model::Capacity, tables::testing::MemoryMaps};
use mcs_tests::scenario::{self, Effort};

const EFFORT: Effort = Effort {
    seeds: 20,
    stories: 256,
    first: Capacity { vips: 1, frontends: 1, endpoints: 1, clusters: 1, imports: 1 },
};

fn main() -> ExitCode {
    scenario::main(
        EFFORT,
        || Ok(((), env::temp_dir())),
        |(), capacity| Ok(MemoryMaps::new(capacity)),
    )
}
