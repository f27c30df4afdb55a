//! Why a load fails.

use std::{
    io,
    path::{Path, PathBuf},
};

use aya::{EbpfError, programs::ProgramError};
use thiserror::Error;

use super::{BpffsError, attach::AttachError, program_log::ProgramLogError};

/// Why the programs are not in the kernel.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Built by plain cargo.
    #[error(
        "this binary was built without its eBPF programs: run `cargo xtask setup`, then \
         `cargo xtask build`, and use target/release/mcs-agent"
    )]
    NoObject,
    /// There is no place to pin.
    #[error(transparent)]
    Bpffs(#[from] BpffsError),
    /// A directory or pin cannot be made or removed.
    #[error("cannot {action} {path}")]
    Pin {
        /// What was tried.
        action: &'static str,
        /// The directory or pin.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Maps could not be made.
    #[error("cannot make the maps under {path}")]
    Maps {
        /// Their directory.
        path: PathBuf,
        /// The error of aya.
        source: Box<EbpfError>,
    },
    /// The kernel rejects a program.
    #[error("the kernel does not take the program {program}")]
    Program {
        /// The program's name.
        program: &'static str,
        /// The error of aya, with the verifier's log.
        source: ProgramError,
    },
    /// A hook could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The log of the programs cannot be followed.
    #[error(transparent)]
    Log(#[from] ProgramLogError),
}

pub(super) fn pin_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> LoadError + use<> {
    let path = path.to_owned();
    move |source| LoadError::Pin { action, path, source }
}
