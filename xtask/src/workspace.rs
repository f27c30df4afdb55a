//! The directories of the repository, its target directory and the cache, and how cargo is called there.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::process;

/// Variables that `cargo run` sets for xtask itself. Passed on, they make some build scripts
/// believe that their inputs changed.
const SET_BY_CARGO_RUN: &[&str] =
    &["CARGO_BIN_", "CARGO_CRATE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_PACKAGE"];

/// The directories that every verb works with.
pub(crate) struct Workspace {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Cargo's target directory for user space.
    pub(crate) target: PathBuf,
    /// What xtask installs outside of the system: `$MCS_CACHE`, by default `~/.cache/mcs-agent`.
    pub(crate) cache: PathBuf,
    /// Where cargo keeps the sources of dependencies.
    pub(crate) cargo_home: PathBuf,
}

/// The files below a directory that git has or would add, by their paths there.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let mut list = Command::new("git");
    list.arg("-C").arg(root);
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = list.output().context("cannot start git")?;
    ensure!(output.status.success(), "{}: {}", process::describe(&list), output.status);
    let files = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    // git still knows what was just deleted.
    let files = files.split_terminator('\0').filter(|file| root.join(file).is_file());
    Ok(files.map(str::to_owned).collect())
}

impl Workspace {
    /// Finds the workspace that this xtask was built from.
    pub(crate) fn discover() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in no workspace")?
            .to_owned();
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let cache = match env::var_os("MCS_CACHE") {
            Some(cache) => PathBuf::from(cache),
            None => env::home_dir()
                .context("no home directory: set MCS_CACHE")?
                .join(".cache/mcs-agent"),
        };
        let cargo_home = match env::var_os("CARGO_HOME") {
            Some(home) => PathBuf::from(home),
            None => env::home_dir().context("no home directory: set CARGO_HOME")?.join(".cargo"),
        };
        Ok(Self {
            root,
            target: std::path::absolute(target)?,
            cache: std::path::absolute(cache)?,
            cargo_home: std::path::absolute(cargo_home)?,
        })
    }

    /// The cargo that runs xtask, for user-space crates, in the root of the workspace.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(cargo());
        self.enter(&mut command);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Makes `command` run in the root of the workspace, as if xtask had not been started by cargo.
    pub(crate) fn enter(&self, command: &mut Command) {
        command.current_dir(&self.root);
        command.env("CARGO_HOME", &self.cargo_home);
        remove_env(command, SET_BY_CARGO_RUN);
    }

    /// Flags of rustc that keep these directories out of what it writes.
    pub(crate) fn remapping(&self) -> impl Iterator<Item = String> {
        // The last that matches counts, and one may lie in another.
        let directories =
            [(&self.root, "/mcs-agent"), (&self.target, "/target"), (&self.cargo_home, "/cargo")];
        directories
            .into_iter()
            .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
    }
}

/// The program of the cargo that runs xtask.
pub(crate) fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// `program` of the toolchain whose cargo runs xtask.
///
/// With rustup, `PATH` has a proxy for every component, also for one that is not installed.
pub(crate) fn beside_cargo(program: &str) -> Option<PathBuf> {
    let cargo = cargo();
    match cargo.parent().filter(|directory| directory.is_absolute()) {
        Some(directory) => {
            Some(directory.join(program)).filter(|file| process::is_executable(file))
        }
        None => process::find(program),
    }
}

/// `PATH`, with `directory` as its last entry.
pub(crate) fn path_with(directory: PathBuf) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(env::split_paths(&path).chain([directory]))?)
}

/// Where rustup keeps its toolchains.
pub(crate) fn rustup_home() -> Option<PathBuf> {
    env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".rustup")))
}

/// Takes the inherited variables whose names start with one of `prefixes` from `command`.
pub(crate) fn remove_env(command: &mut Command, prefixes: &[&str]) {
    let starts = |name: &OsString| {
        let name = name.to_string_lossy();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    for (name, _) in env::vars_os().filter(|(name, _)| starts(name)) {
        command.env_remove(name);
    }
}
