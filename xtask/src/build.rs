//! `cargo xtask build`: the eBPF object, and the agent with the object inside.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};

use crate::{
    btf, dwarf, process,
    setup::{self, toolchain},
    workspace::Workspace,
};

/// The variable by which mcs-agent's build script learns of the object.
pub(crate) const OBJECT_VARIABLE: &str = "MCS_EBPF_OBJECT";

/// How cargo builds.
#[derive(Clone, Copy)]
pub(crate) struct Profile {
    name: &'static str,
    /// The directory below target/.
    output: &'static str,
}

pub(crate) const DEV: Profile = Profile { name: "dev", output: "debug" };
pub(crate) const RELEASE: Profile = Profile { name: "release", output: "release" };

/// Build target/release/mcs-agent, with the eBPF programs inside
///
/// The programs are compiled for BPF in target/ebpf, and embedded into the agent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the agent without optimisation, as target/debug/mcs-agent
    #[arg(long)]
    debug: bool,
    /// Build what stands for another version of the agent in tests, with longer values in the config maps, as
    /// mcs-agent-wide beside it
    #[arg(long)]
    wide: bool,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let profile = if args.debug { DEV } else { RELEASE };
    let agent = if args.wide {
        wide(workspace, profile)?
    } else {
        agent(workspace, &object(workspace)?, profile)?
    };
    println!("{}", agent.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the eBPF object and returns its path.
pub(crate) fn object(workspace: &Workspace) -> Result<PathBuf> {
    object_of(workspace, &[], "mcs-ebpf.o")
}

/// Builds an agent that stands for another version, with longer values in the config maps, and
/// returns its path. The usual one, which is built to the same place first, has to be built anew.
pub(crate) fn wide(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    const FEATURE: &[&str] = &["--features", "wide"];
    let object = object_of(workspace, FEATURE, "mcs-ebpf-wide.o")?;
    let built = agent_with(workspace, &object, profile, FEATURE)?;
    let wide = workspace.target.join(profile.output).join("mcs-agent-wide");
    fs::copy(&built, &wide).with_context(|| format!("cannot write {}", wide.display()))?;
    Ok(wide)
}

fn object_of(workspace: &Workspace, features: &[&str], name: &str) -> Result<PathBuf> {
    let toolchain = setup::toolchain(workspace)?;
    let mut build = toolchain.cargo(workspace, "build");
    build.args(["--package", "mcs-ebpf"]).args(features);
    process::run(&mut build).with_context(|| toolchain.suspicion())?;

    let linked = toolchain::output(workspace).join("mcs-ebpf");
    let mut bytes = read(&linked)
        .and_then(|bytes| dwarf::remove(&bytes))
        .with_context(|| linked.display().to_string())?;
    btf::mark_text(&mut bytes).with_context(|| linked.display().to_string())?;
    let object = toolchain::directory(workspace).join(name);
    write_if_changed(&object, &bytes)?;
    Ok(object)
}

/// Builds the agent around `object` and returns its path.
pub(crate) fn release(workspace: &Workspace, object: &Path) -> Result<PathBuf> {
    agent(workspace, object, RELEASE)
}

/// Builds the agent around `object` and returns its path.
pub(crate) fn agent(workspace: &Workspace, object: &Path, profile: Profile) -> Result<PathBuf> {
    agent_with(workspace, object, profile, &[])
}

/// Builds binaries of mcs-tests, or all if none is named. They lie beside the agent then.
pub(crate) fn suites(
    workspace: &Workspace,
    object: &Path,
    profile: Profile,
    binaries: &[&str],
) -> Result<()> {
    let mut build = workspace.cargo();
    build.args(["build", "--package", "mcs-tests", "--profile", profile.name]);
    build.args(binaries.is_empty().then_some("--bins"));
    build.args(binaries.iter().flat_map(|binary| ["--bin", binary]));
    process::run(build.env(OBJECT_VARIABLE, object))
}

fn agent_with(
    workspace: &Workspace,
    object: &Path,
    profile: Profile,
    features: &[&str],
) -> Result<PathBuf> {
    let mut build = workspace.cargo();
    build.args(["build", "--package", "mcs-agent", "--profile", profile.name]).args(features);
    process::run(build.env(OBJECT_VARIABLE, object))?;
    Ok(workspace.target.join(profile.output).join("mcs-agent"))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Keeps the file's time where its content stays, so that cargo does not rebuild the agent.
fn write_if_changed(file: &Path, content: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_file_is_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("object");
        let time = || file.metadata().unwrap().modified().unwrap();
        write_if_changed(&file, b"one").unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH;
        fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();

        write_if_changed(&file, b"one").unwrap();
        assert_eq!(time(), old);
        write_if_changed(&file, b"two").unwrap();
        assert_ne!(time(), old);
        assert_eq!(fs::read(&file).unwrap(), b"two");
    }
}
