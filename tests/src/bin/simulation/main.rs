//! Bad days of clustersets, drawn from seeds: without root, API servers and waiting.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_tests::clustersets::simulate()
}
