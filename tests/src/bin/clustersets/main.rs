//! The suite of clustersets as text: without root, API servers and waiting.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_tests::clustersets::main()
}
