use std::{
    fs, io,
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

/// Checks that a directory is on a BPF file system, and makes it where its parent is on one.
pub(crate) fn prepare(path: &Path) -> Result<(), BpffsError> {
    let unusable = |source| BpffsError::Unusable { path: path.to_owned(), source };
    match path.parent() {
        Some(parent) if !path.exists() && is_bpffs(parent).unwrap_or(false) => {
            fs::create_dir(path).map_err(unusable)
        }
        _ if is_bpffs(path).map_err(unusable)? => Ok(()),
        _ => Err(BpffsError::NotBpffs { path: path.to_owned() }),
    }
}

fn is_bpffs(path: &Path) -> io::Result<bool> {
    let stat = statfs(path)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "magic numbers are 32 bits; the field is a long"
    )]
    let magic = stat.f_type as u32;
    Ok(magic == BPF_FS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_to_mount_one() {
        let directory = tempfile::tempdir().unwrap();
        let error = prepare(directory.path()).unwrap_err();
        assert!(error.to_string().contains("mount -t bpf"), "{error}");
        let error = prepare(&directory.path().join("missing")).unwrap_err();
        assert!(matches!(error, BpffsError::Unusable { .. }), "{error}");
    }
}
