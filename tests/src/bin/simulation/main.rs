//! Bad days of clustersets, drawn from seeds: without root, API servers and waiting.

#[expect(dead_code, reason = "the suite cost asks for more")]
#[path = "../cost/allocator.rs"]
mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_tests::clustersets::simulate(allocator::begin_peak)
}
