//! The programs of the architecture that this machine does not have.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::{
    build::{self, CROSS},
    cross, image, process,
    workspace::Workspace,
};

/// Builds the programs without symbols, and starts each. Returns the architecture and their directory.
pub(super) fn programs(workspace: &Workspace) -> Result<(String, PathBuf)> {
    let other = cross::other();
    other.ensure_tools()?;
    let object = build::object(workspace)?;
    let agent = build::agent(workspace, &object, CROSS)?;
    let controller = build::controller(workspace, &object, CROSS)?;
    let mcs = build::command_line(&controller);
    let directory = workspace.target.join("container").join(other.name);
    for (program, name) in [&agent, &controller, &mcs].into_iter().zip(image::RELEASED) {
        let stripped = directory.join(name);
        image::strip_by(&other.tool("strip"), program, &stripped)?;
        let said = process::printed(other.emulator().arg(&stripped).arg("--version"))?;
        ensure!(said.contains(env!("CARGO_PKG_VERSION")), "{}: {said}", stripped.display());
        println!("{}: {}", other.name, said.trim());
    }
    Ok((other.name.to_owned(), directory))
}
