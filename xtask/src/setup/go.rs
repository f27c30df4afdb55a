//! The Go toolchain, for programs that come from the Go module proxy.
//!
//! One on `PATH` is used where it is recent enough. Otherwise any Go, such as Debian's, fetches the one that is needed:
//! toolchains are modules too.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{Item, Remedy};
use crate::{process, version::Version, workspace::Workspace};

/// The one to fetch.
const VERSION: &str = "1.26.8";
/// The newest that a go.mod below tests/programs asks for.
const MINIMUM: &str = "1.26.6";

/// What makes a toolchain of the module's files, which have lost their modes.
const PROGRAMS: [&str; 2] = ["bin", "pkg/tool"];

/// A program `go` that is recent enough.
pub(super) fn find(workspace: &Workspace) -> Option<PathBuf> {
    let cached = directory(workspace).join("bin/go");
    if process::is_executable(&cached) {
        return Some(cached);
    }
    let program = process::find("go")?;
    let version = Version::ask(command(&program).arg("version"))?;
    (version >= Version::find(MINIMUM)?).then_some(program)
}

/// What building Go modules needs.
pub(super) fn items(workspace: &Workspace) -> Vec<Item> {
    let found = find(workspace);
    let version = &["version"];
    let any = found.is_none().then(|| Item {
        name: "go, of any version",
        found: process::find("go"),
        version,
        remedy: Remedy::Apt("golang-go"),
    });
    let recent = Item { name: "go", found, version, remedy: Remedy::GoToolchain };
    any.into_iter().chain([recent]).collect()
}

/// Fetches the toolchain into the cache.
pub(super) fn install(workspace: &Workspace) -> Result<()> {
    let directory = directory(workspace);
    eprintln!("setup: fetching Go {VERSION} into {}", directory.display());
    let program = process::find("go").context("there is no go to fetch another one with")?;
    let module = format!("golang.org/toolchain@v0.0.1-go{VERSION}.linux-{}", architecture());
    let download = command(&program).args(["mod", "download", "-json", &module]).output()?;
    let described: serde_json::Value = serde_json::from_slice(&download.stdout)
        .with_context(|| String::from_utf8_lossy(&download.stderr).trim().to_owned())?;
    let source = described["Dir"].as_str().with_context(|| {
        format!("go mod download {module}: {}", described["Error"].as_str().unwrap_or_default())
    })?;

    // Moved to its place last, so that an incomplete toolchain is never found.
    let unfinished = directory.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    fs::create_dir_all(&workspace.cache)?;
    let copy = ["--recursive", "--no-preserve=mode", "--no-target-directory", source];
    process::run(Command::new("cp").args(copy).arg(&unfinished))?;
    for programs in PROGRAMS {
        visit(&unfinished.join(programs), &|file| {
            Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
        })?;
    }
    // A module cannot contain another one's file.
    visit(&unfinished.join("src"), &|file| match file.file_name() {
        Some(name) if name == "_go.mod" => Ok(fs::rename(file, file.with_file_name("go.mod"))?),
        _ => Ok(()),
    })?;
    Ok(fs::rename(unfinished, directory)?)
}

/// `program` as it is, without what a user has set for work of their own.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.envs([
        ("CGO_ENABLED", "0"),
        ("GO111MODULE", "on"),
        ("GOFLAGS", ""),
        ("GOTOOLCHAIN", "local"),
        ("GOWORK", "off"),
    ]);
    command
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.cache.join(format!("go-{VERSION}"))
}

/// This machine's, as Go names it.
fn architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn visit(directory: &Path, act: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            visit(&entry.path(), act)?;
        } else {
            act(&entry.path())?;
        }
    }
    Ok(())
}
