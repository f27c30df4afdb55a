//! Finds the programs that a cluster consists of.

use std::{
    env,
    ffi::OsString,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::ValueEnum;

/// Directories, as in `PATH`, with the programs that `cargo xtask setup clusters` builds.
pub const VARIABLE: &str = "MCS_PROGRAMS";

/// Where the system's own programs lie.
const SYSTEM: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The variable with the directory of the source of a family of `tests/programs`.
pub fn source_variable(family: &str) -> String {
    format!("MCS_SOURCE_{}", family.to_uppercase().replace('-', "_"))
}

/// What the name of the directory above those of the oldest Kubernetes begins with.
pub const OLDEST_KUBERNETES: &str = "kubernetes-oldest";

/// A version of Kubernetes that `tests/programs` pins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Kubernetes {
    /// The newest one
    #[default]
    Newest,
    /// The oldest one that the charts accept
    Oldest,
}

/// The programs, by name.
#[derive(Clone, Debug)]
pub struct Programs {
    directories: Vec<PathBuf>,
    /// The sources of families, by their [`source_variable`].
    sources: Vec<(String, PathBuf)>,
}

impl Programs {
    /// Those in these directories and the system's.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        let directories = directories.into_iter().chain(SYSTEM.map(PathBuf::from)).collect();
        Self { directories, sources: Vec::new() }
    }

    /// The same, and the sources of families, by their [`source_variable`].
    #[must_use]
    pub fn with_sources(self, sources: Vec<(String, PathBuf)>) -> Self {
        Self { sources, ..self }
    }

    /// The directory of the source of a family.
    pub fn source(&self, family: &str) -> anyhow::Result<PathBuf> {
        let variable = source_variable(family);
        let known = self.sources.iter().find(|(name, _)| *name == variable);
        let source = known.map(|(_, source)| source.clone());
        source
            .or_else(|| env::var_os(&variable).map(PathBuf::from))
            .with_context(|| format!("{variable} names no source: run `cargo xtask test`"))
    }

    /// Those in the directories of [`VARIABLE`] and the system's.
    pub fn from_env() -> Self {
        let directories = env::var_os(VARIABLE).unwrap_or_default();
        Self::new(env::split_paths(&directories).filter(|directory| directory.is_absolute()))
    }

    /// The file of this name.
    pub fn find(&self, name: &str) -> anyhow::Result<PathBuf> {
        let newest = self.directories.iter().filter(|directory| !is_of_oldest(directory));
        find(newest, name).with_context(|| missing(name))
    }

    /// A program of a family of `tests/programs`, and the version of the family: the directory is `.../FAMILY-VERSION/bin`.
    pub fn of_family(&self, family: &str, name: &str) -> anyhow::Result<(PathBuf, String)> {
        let version = |directory: &PathBuf| {
            let above = directory.parent()?.file_name()?.to_str()?;
            let version = above.strip_prefix(family)?.strip_prefix('-')?;
            version.starts_with('v').then(|| (directory.join(name), version.to_owned()))
        };
        let found = self.directories.iter().find_map(version);
        found.filter(|(file, _)| is_executable(file)).with_context(|| {
            format!(
                "{name} of {family} is missing: run `cargo xtask setup neighbours`, or set {VARIABLE}"
            )
        })
    }

    /// The file of this name that belongs to a version of Kubernetes.
    pub(super) fn of_kubernetes(&self, version: Kubernetes, name: &str) -> anyhow::Result<PathBuf> {
        match version {
            Kubernetes::Newest => self.find(name),
            Kubernetes::Oldest => {
                let oldest = self.directories.iter().filter(|directory| is_of_oldest(directory));
                find(oldest, name)
                    .with_context(|| missing(&format!("{name} of {OLDEST_KUBERNETES}")))
            }
        }
    }

    /// `PATH` for programs that start others.
    pub(super) fn search_path(&self) -> anyhow::Result<OsString> {
        Ok(env::join_paths(&self.directories)?)
    }
}

fn find<'a>(directories: impl Iterator<Item = &'a PathBuf>, name: &str) -> Option<PathBuf> {
    directories.map(|directory| directory.join(name)).find(|file| is_executable(file))
}

fn missing(name: &str) -> String {
    format!("{name} is missing: run `cargo xtask setup clusters`, or set {VARIABLE}")
}

/// Whether a directory is `.../kubernetes-oldest-VERSION/bin`.
fn is_of_oldest(directory: &Path) -> bool {
    let above = directory.parent().and_then(Path::file_name);
    above.is_some_and(|name| name.to_string_lossy().starts_with(OLDEST_KUBERNETES))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
