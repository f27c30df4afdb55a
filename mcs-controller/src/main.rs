//! The command line of mcs-controller; everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_controller::core::cli::main(mcs_controller::features::ALL)
}
