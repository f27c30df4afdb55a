//! Finds the programs that a cluster consists of.

use std::{
    env,
    ffi::OsString,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Directories, as in `PATH`, with the programs that `cargo xtask setup clusters` builds.
pub const VARIABLE: &str = "MCS_PROGRAMS";

/// Where the system's own programs lie.
const SYSTEM: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The programs, by name.
#[derive(Clone, Debug)]
pub struct Programs(Vec<PathBuf>);

impl Programs {
    /// Those in these directories and the system's.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(directories.into_iter().chain(SYSTEM.map(PathBuf::from)).collect())
    }

    /// Those in the directories of [`VARIABLE`] and the system's.
    pub fn from_env() -> Self {
        let directories = env::var_os(VARIABLE).unwrap_or_default();
        Self::new(env::split_paths(&directories).filter(|directory| directory.is_absolute()))
    }

    /// The file of this name.
    pub fn find(&self, name: &str) -> anyhow::Result<PathBuf> {
        let files = self.0.iter().map(|directory| directory.join(name));
        files.into_iter().find(|file| is_executable(file)).with_context(|| {
            format!("{name} is missing: run `cargo xtask setup clusters`, or set {VARIABLE}")
        })
    }

    /// `PATH` for programs that start others.
    pub(super) fn search_path(&self) -> anyhow::Result<OsString> {
        Ok(env::join_paths(&self.0)?)
    }
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
