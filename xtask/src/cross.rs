//! The two architectures of a release: how each tool calls them, and what builds and starts programs for the one that
//! this machine does not have.

use std::{env, process::Command};

use anyhow::{Result, ensure};

use crate::process;

/// An architecture, as each tool calls it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Architecture {
    /// In images, in files of a release and in Debian's packages.
    pub(crate) name: &'static str,
    /// In targets, and in the names of emulators.
    pub(crate) rust: &'static str,
}

pub(crate) const AMD64: Architecture = Architecture { name: "amd64", rust: "x86_64" };
pub(crate) const ARM64: Architecture = Architecture { name: "arm64", rust: "aarch64" };

/// The architecture that this machine does not have.
pub(crate) fn other() -> &'static Architecture {
    if env::consts::ARCH == ARM64.rust { &AMD64 } else { &ARM64 }
}

impl Architecture {
    /// As cargo calls it.
    pub(crate) fn target(&self) -> String {
        format!("{}-unknown-linux-gnu", self.rust)
    }

    /// A program of Debian's cross compiler, such as `gcc`.
    pub(crate) fn tool(&self, name: &str) -> String {
        format!("{}-linux-gnu-{name}", self.rust)
    }

    /// A command that runs a program of this architecture.
    pub(crate) fn emulator(&self) -> Command {
        Command::new(self.emulator_name())
    }

    /// Fails unless its compiler and its emulator are here.
    pub(crate) fn ensure_tools(&self) -> Result<()> {
        for program in [self.tool("gcc"), self.tool("strip"), self.emulator_name()] {
            ensure!(
                process::find(&program).is_some(),
                "{program} is missing: apt-get install gcc-{}-linux-gnu libc6-dev-{}-cross qemu-user",
                self.rust.replace('_', "-"),
                self.name
            );
        }
        Ok(())
    }

    /// Makes `cargo build` for this architecture link with its compiler. cargo's crate `cc` finds that by itself.
    pub(crate) fn link_with_its_compiler(&self, build: &mut Command) {
        let target = self.target().replace('-', "_").to_uppercase();
        build.env(format!("CARGO_TARGET_{target}_LINKER"), self.tool("gcc"));
    }

    fn emulator_name(&self) -> String {
        format!("qemu-{}", self.rust)
    }
}
