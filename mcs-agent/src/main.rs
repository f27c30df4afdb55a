//! The command line of mcs-agent; everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_agent::core::cli::main(mcs_agent::features::LIST)
}
