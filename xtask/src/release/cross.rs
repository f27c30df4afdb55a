//! The programs of the architecture that this machine does not have.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::{build, image, process, workspace::Workspace};

/// An architecture, as each tool calls it.
struct Architecture {
    /// In the name of the image, and of a release's files.
    name: &'static str,
    /// In the names of targets, of Debian's tools and of the emulator.
    rust: &'static str,
    /// In the names of Debian's packages.
    debian: &'static str,
}

const ARM64: Architecture = Architecture { name: "arm64", rust: "aarch64", debian: "arm64" };
const AMD64: Architecture = Architecture { name: "amd64", rust: "x86_64", debian: "amd64" };

/// Builds both programs without symbols, and starts each. Returns the architecture and their directory.
pub(super) fn programs(workspace: &Workspace) -> Result<(String, PathBuf)> {
    let other = if env::consts::ARCH == ARM64.rust { AMD64 } else { ARM64 };
    let tool = |name: &str| format!("{}-linux-gnu-{name}", other.rust);
    let emulator = format!("qemu-{}", other.rust);
    let target = format!("{}-unknown-linux-gnu", other.rust);
    for program in [tool("gcc"), tool("strip"), emulator.clone()] {
        ensure!(
            process::find(&program).is_some(),
            "{program} is missing: apt-get install gcc-{}-linux-gnu libc6-dev-{}-cross qemu-user",
            other.rust.replace('_', "-"),
            other.debian
        );
    }
    let object = build::object(workspace)?;
    let linker = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
    let mut build = build::cargo_for(workspace, &target);
    build.args(image::PROGRAMS.iter().flat_map(|program| ["--package", program]));
    build.env(linker, tool("gcc")).env(build::OBJECT_VARIABLE, object);
    process::run(&mut build).with_context(|| {
        format!(
            "building for {target} failed (its library comes with `rustup target add {target}`)"
        )
    })?;
    let directory = workspace.target.join("container").join(other.name);
    for program in image::PROGRAMS {
        let stripped = directory.join(program);
        let program_file = workspace.target.join(&target).join("release").join(program);
        image::strip_by(&tool("strip"), &program_file, &stripped)?;
        let said = process::printed(Command::new(&emulator).arg(&stripped).arg("--version"))?;
        ensure!(said.contains(env!("CARGO_PKG_VERSION")), "{}: {said}", stripped.display());
        println!("{emulator}: {}", said.trim());
    }
    Ok((other.name.to_owned(), directory))
}
