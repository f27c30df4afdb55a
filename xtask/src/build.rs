//! `cargo xtask build`: the eBPF object, and the agent with the object inside.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};

use crate::{
    btf, cross, dwarf, process,
    setup::{self, toolchain},
    variant::{self, Variant, write_if_changed},
    workspace::{self, Workspace},
};

/// The variable that names the object for mcs-agent's build script.
pub(crate) const OBJECT_VARIABLE: &str = "MCS_EBPF_OBJECT";

/// How cargo builds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    /// The directory below target/ where the agent lies in the end.
    output: &'static str,
}

/// Without optimisation, as `cargo build` does.
pub(crate) const DEV: Profile = Profile { name: "dev", output: "debug" };
/// Static programs that name no directory of this machine: one build serves the suites and the image.
pub(crate) const RELEASE: Profile = Profile { name: "release", output: "release" };
/// The same for the architecture that this machine does not have.
pub(crate) const CROSS: Profile = Profile { name: "release", output: "release-cross" };

/// Variables that would change the built program.
const CHANGES_THE_RESULT: &[&str] =
    &["CARGO_BUILD_", "CARGO_ENCODED_", "CARGO_INCREMENTAL", "CARGO_PROFILE_", "RUSTFLAGS"];

/// Settings for what nobody measures: the crates of the workspace take longest to optimise.
const QUICK: &[&str] = &[
    "--config",
    "profile.release.package.mcs-agent.opt-level=0",
    "--config",
    "profile.release.package.mcs-controller.opt-level=0",
    "--config",
    "profile.release.package.mcs-kube.opt-level=0",
    "--config",
    "profile.release.package.mcs-tests.opt-level=1",
];

impl Profile {
    /// `cargo build` in this profile.
    fn cargo(self, workspace: &Workspace) -> Command {
        match self {
            RELEASE => cargo_for(workspace, &target()),
            CROSS => {
                let mut build = cargo_for(workspace, &cross::other().target());
                cross::other().link_with_its_compiler(&mut build);
                build
            }
            _ => {
                let mut build = workspace.cargo();
                build.args(["build", "--profile", self.name]);
                build
            }
        }
    }

    /// Where cargo leaves programs.
    fn directory(self, workspace: &Workspace) -> PathBuf {
        match self {
            RELEASE => workspace.target.join(target()).join(self.name),
            CROSS => workspace.target.join(cross::other().target()).join(self.name),
            _ => workspace.target.join(self.output),
        }
    }

    /// What may be missing if a build fails.
    fn advice(self) -> String {
        if self != CROSS {
            return "building failed (static programs need libc.a, of package libc6-dev)"
                .to_owned();
        }
        let target = cross::other().target();
        format!(
            "building failed (the library for {target} comes with `rustup target add {target}`)"
        )
    }
}

/// `cargo build` of static programs for a target.
fn cargo_for(workspace: &Workspace, target: &str) -> Command {
    let mut build = workspace.cargo();
    let flags = ["-Ctarget-feature=+crt-static".to_owned()];
    let flags: Vec<_> = flags.into_iter().chain(workspace.remapping()).collect();
    workspace::remove_env(&mut build, CHANGES_THE_RESULT);
    // With a target, the flags are not for build scripts and macros.
    build.args(["build", "--locked", "--target", target, "--profile", RELEASE.name]);
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    build
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// A binary that [`suites`] or [`binaries_of`] has built.
pub(crate) fn suite(workspace: &Workspace, profile: Profile, name: &str) -> PathBuf {
    profile.directory(workspace).join(name)
}

/// Build the agent, with the eBPF programs inside, and print its path
///
/// The programs are compiled for BPF in target/ebpf, and embedded into the agent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the agent without optimisation, as target/debug/mcs-agent
    #[arg(long)]
    debug: bool,
    /// Build an agent that acts as another version in tests, with longer values in the config maps, as
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
    object_in(workspace, &workspace.root, "mcs-ebpf.o")
}

/// Builds an agent that acts as another version in tests, with longer values in the config maps. Returns its path.
pub(crate) fn wide(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    let object = object_in(workspace, &variant::WIDE.write(workspace)?, "mcs-ebpf-wide.o")?;
    variant_agent(workspace, &variant::WIDE, &object, profile)
}

/// Builds an agent with two slots for connected sockets, for tests. Returns its path. The programs are those of every agent,
/// which tells them how many slots there are.
pub(crate) fn two_slots(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    variant_agent(workspace, &variant::TWO_SLOTS, &object(workspace)?, profile)
}

fn variant_agent(
    workspace: &Workspace,
    variant: &Variant,
    object: &Path,
    profile: Profile,
) -> Result<PathBuf> {
    let place = variant.write(workspace)?;
    let name = format!("mcs-agent-{}", variant.name);
    agent_in(workspace, &place, object, profile, QUICK, &name)
}

/// Builds the eBPF object of the workspace, or of the copy of it, in this place.
fn object_in(workspace: &Workspace, place: &Path, name: &str) -> Result<PathBuf> {
    let toolchain = setup::toolchain(workspace)?;
    let mut build = toolchain.cargo(workspace, "build");
    build.args(["--package", "mcs-ebpf"]).current_dir(place);
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
    agent_in(workspace, &workspace.root, object, profile, &[], "mcs-agent")
}

/// Builds a controller that acts as the next version in tests: its objects have fields that the types lack. Returns its
/// path. [`controller`] has to follow: cargo writes both programs to the same place.
pub(crate) fn next_controller(
    workspace: &Workspace,
    object: &Path,
    profile: Profile,
) -> Result<PathBuf> {
    let mut build = profile.cargo(workspace);
    build.current_dir(variant::NEXT.write(workspace)?);
    build.args(["--package", "mcs-agent", "--package", "mcs-controller"]);
    build.args(QUICK);
    process::run(build.env(OBJECT_VARIABLE, object)).context(profile.advice())?;
    let kept = workspace.target.join(profile.output).join("mcs-controller-next");
    let program = profile.directory(workspace).join("mcs-controller");
    replace(&program, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(kept)
}

/// Builds the controller, with `mcs` [beside it](command_line), and returns its path. [`agent`] builds the agent around
/// `object` before.
///
/// cargo is told to build all: with other features of their dependencies than the agent has, it would build these again.
pub(crate) fn controller(
    workspace: &Workspace,
    object: &Path,
    profile: Profile,
) -> Result<PathBuf> {
    announce(workspace, profile);
    let mut build = profile.cargo(workspace);
    build.args(["--package", "mcs-agent", "--package", "mcs-controller", "--package", "mcs-cli"]);
    process::run(build.env(OBJECT_VARIABLE, object)).context(profile.advice())?;
    Ok(profile.directory(workspace).join("mcs-controller"))
}

/// The program `mcs` that was built with a controller.
pub(crate) fn command_line(controller: &Path) -> PathBuf {
    controller.with_file_name("mcs")
}

/// Builds binaries of mcs-tests; [`suite`] says where they are.
pub(crate) fn suites(
    workspace: &Workspace,
    object: &Path,
    profile: Profile,
    binaries: &[&str],
) -> Result<()> {
    // Without the suite that pauses the time of tokio: cargo would build all that uses tokio once more.
    let package = ["mcs-tests", "--no-default-features", "--features", "suites"];
    // With what is for tests alone, cargo builds mcs-agent and mcs-kube once more.
    binaries_of(workspace, object, profile, &[&package, QUICK].concat(), binaries)
}

/// Builds binaries of a package that drives the agent, named with its features and settings; [`suite`] says where they are.
pub(crate) fn binaries_of(
    workspace: &Workspace,
    object: &Path,
    profile: Profile,
    package: &[&str],
    binaries: &[&str],
) -> Result<()> {
    announce(workspace, profile);
    let mut build = profile.cargo(workspace);
    build.arg("--package").args(package);
    build.args(binaries.iter().flat_map(|binary| ["--bin", binary]));
    process::run(build.env(OBJECT_VARIABLE, object)).context(profile.advice())
}

/// Runs a binary of mcs-tests on `object`, built first.
pub(crate) fn run_suite(
    workspace: &Workspace,
    object: &Path,
    name: &str,
    prepare: impl FnOnce(&mut Command),
) -> Result<()> {
    suites(workspace, object, RELEASE, &[name])?;
    let mut command = Command::new(suite(workspace, RELEASE, name));
    workspace.enter(&mut command);
    prepare(command.env(OBJECT_VARIABLE, object));
    process::run(&mut command)
}

fn agent_in(
    workspace: &Workspace,
    place: &Path,
    object: &Path,
    profile: Profile,
    options: &[&str],
    name: &str,
) -> Result<PathBuf> {
    announce(workspace, profile);
    let mut build = profile.cargo(workspace);
    build.args(["--package", "mcs-agent"]).args(options).current_dir(place);
    process::run(build.env(OBJECT_VARIABLE, object)).context(profile.advice())?;
    // Another version's program would be written to the same place.
    let program = profile.directory(workspace).join("mcs-agent");
    let kept = workspace.target.join(profile.output).join(name);
    if program != kept {
        replace(&program, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
    }
    Ok(kept)
}

/// Makes `to` a copy of `from`. A process that runs the old file keeps it.
fn replace(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file lies in a directory")?)?;
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh)?;
    Ok(fs::rename(fresh, to)?)
}

/// Says how long the first build takes, once.
fn announce(workspace: &Workspace, profile: Profile) {
    if !profile.directory(workspace).exists() {
        eprintln!(
            "The first build compiles about 350 crates: 4 to 10 minutes on two CPUs, 2 GB in {}. Later ones take seconds.",
            workspace.target.display()
        );
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
