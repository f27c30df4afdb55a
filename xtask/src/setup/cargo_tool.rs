//! Programs that come from crates.io.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{
    process,
    version::Version,
    workspace::{self, Workspace},
};

/// The LLVM release that bpf-linker is built with here: the one of Debian's rustc-web.
pub(super) const LLVM: u32 = 22;

/// A program that `cargo install` makes, in the version that this project is tried with.
pub(crate) struct CargoTool {
    pub(super) name: &'static str,
    version: &'static str,
    options: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

/// Links eBPF objects from LLVM bitcode.
pub(super) const BPF_LINKER: CargoTool = CargoTool {
    name: "bpf-linker",
    version: "0.13.0",
    options: &["--no-default-features", "--features", "llvm-22"],
    environment: &[("LLVM_PREFIX", "/usr/lib/llvm-22")],
};

/// Checks licences and sources of dependencies.
pub(crate) const CARGO_DENY: CargoTool =
    CargoTool { name: "cargo-deny", version: "0.20.2", options: &[], environment: &[] };

/// Changes the code in one place at a time, and runs the tests.
pub(crate) const CARGO_MUTANTS: CargoTool =
    CargoTool { name: "cargo-mutants", version: "27.1.0", options: &[], environment: &[] };

impl CargoTool {
    /// The program in the cache, or one on `PATH` that is no older.
    pub(crate) fn find(&self, workspace: &Workspace) -> Option<PathBuf> {
        self.cached(workspace).or_else(|| self.on_path())
    }

    /// The program in the cache.
    pub(super) fn cached(&self, workspace: &Workspace) -> Option<PathBuf> {
        let program = self.directory(workspace).join("bin").join(self.name);
        process::is_executable(&program).then_some(program)
    }

    /// A program on `PATH` that is no older than the one that would be installed.
    pub(super) fn on_path(&self) -> Option<PathBuf> {
        let program = process::find(self.name)?;
        let version = Version::ask(Command::new(&program).arg("--version"))?;
        (version >= Version::find(self.version)?).then_some(program)
    }

    /// Builds the program into the cache.
    pub(super) fn install(&self, workspace: &Workspace) -> Result<()> {
        let directory = self.directory(workspace);
        eprintln!("setup: building {} {} into {}", self.name, self.version, directory.display());
        let mut install = Command::new(workspace::cargo());
        workspace::remove_env(&mut install, &["CARGO_TARGET_DIR", "CARGO_BUILD_", "RUSTFLAGS"]);
        install.args(["install", "--locked", self.name, "--version", self.version]);
        install.args(self.options).arg("--root").arg(&directory);
        // Both do little by themselves: half the time to build, for milliseconds when they run.
        install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_LTO", "off");
        install.envs(self.environment.iter().copied());
        // Else cargo ends with the advice to put the directory there.
        install.env("PATH", workspace::path_with(directory.join("bin"))?);
        process::run(&mut install)
    }

    /// One directory per version, so that being there means being the right one.
    fn directory(&self, workspace: &Workspace) -> PathBuf {
        workspace.cache.join(format!("{}-{}", self.name, self.version))
    }
}
