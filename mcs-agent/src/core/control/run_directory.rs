//! The run directory of an agent: its name, and how its files are written, read and removed.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::config::Config;
use crate::core::kernel::loader::Pins;

/// The status report.
pub(super) const STATUS_FILE: &str = "status.json";
/// The latest start.
pub(super) const START_FILE: &str = "start.json";

/// Why there is no report.
#[derive(Debug, Error)]
#[error("cannot {action} the status file {path}")]
pub struct ReportError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The end of the name of an agent's run directory: device and inode of its bpffs directory.
pub(crate) fn run_directory_mark(pins: &Pins) -> anyhow::Result<String> {
    let root = pins.root();
    let inode = fs::metadata(root).with_context(|| format!("cannot use {}", root.display()))?;
    Ok(format!("-{:x}-{:x}", inode.dev(), inode.ino()))
}

/// The run directory of this agent alone, named after its bpffs directory. The inode tells it from directories of
/// the same name in other mount namespaces.
pub(super) fn run_directory(config: &Config, pins: &Pins) -> anyhow::Result<PathBuf> {
    let mark = run_directory_mark(pins)?;
    let bpffs = config.bpffs.canonicalize().unwrap_or_else(|_| config.bpffs.clone());
    let name = bpffs.to_string_lossy().trim_matches('/').replace('/', "-");
    let directory = config.run_dir.join(name + &mark);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create the run directory {}", directory.display()))?;
    directory.canonicalize().with_context(|| format!("cannot use {}", directory.display()))
}

/// Replaces a file in `directory` at once.
pub(super) fn replace_file(
    directory: &Path,
    name: &str,
    content: &impl Serialize,
) -> Result<(), ReportError> {
    let path = directory.join(name);
    let fresh = fresh_file(directory, name);
    let error = |source| ReportError { action: "write", path: path.clone(), source };
    let text = serde_json::to_vec(content).map_err(|source| error(source.into()))?;
    fs::create_dir_all(directory).map_err(error)?;
    fs::write(&fresh, text).map_err(error)?;
    fs::rename(&fresh, &path).map_err(error)
}

/// Reads a file in `directory`.
pub(super) fn read_file<T: DeserializeOwned>(
    directory: &Path,
    name: &str,
) -> Result<T, ReportError> {
    let path = directory.join(name);
    let error = |source| ReportError { action: "read", path: path.clone(), source };
    let text = fs::read(&path).map_err(error)?;
    serde_json::from_slice(&text).map_err(|source| error(source.into()))
}

/// Removes all files of an agent in `directory`, and the directory if nothing else is in it.
pub(crate) fn remove_files(directory: &Path) {
    for name in [STATUS_FILE, START_FILE] {
        // What cannot be removed is a stale file at worst.
        let _ = fs::remove_file(fresh_file(directory, name));
        let _ = fs::remove_file(directory.join(name));
    }
    // Features listen there.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(directory);
}

/// What is being written, to take the place of a file.
fn fresh_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.new"))
}
