//! The command line of mcs-controller; everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_controller::cli::main()
}
