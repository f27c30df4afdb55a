use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::fs::statfs;
use thiserror::Error;

/// `BPF_FS_MAGIC` of `include/uapi/linux/magic.h`.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;

/// Why `--bpffs` cannot be used.
#[derive(Debug, Error)]
pub enum BpffsError {
    /// It is not there, or cannot be looked at.
    #[error("cannot use --bpffs {path}: {source}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is there, on another file system.
    #[error("--bpffs {path} is not on a BPF file system: mount one with `mount -t bpf bpf {path}`")]
    NotBpffs {
        /// The directory.
        path: PathBuf,
    },
}

/// Checks that a directory is on a BPF file system.
pub(crate) fn check(path: &Path) -> Result<(), BpffsError> {
    let stat = statfs(path)
        .map_err(|error| BpffsError::Unusable { path: path.to_owned(), source: error.into() })?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "magic numbers are 32 bits; the field is a long"
    )]
    let magic = stat.f_type as u32;
    if magic == BPF_FS_MAGIC { Ok(()) } else { Err(BpffsError::NotBpffs { path: path.to_owned() }) }
}
