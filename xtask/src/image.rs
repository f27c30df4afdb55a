//! `cargo xtask image`: the agent as a container image.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::{
    cluster,
    oci::{self, Content, Image},
};

use crate::{
    build::{self, OBJECT_VARIABLE},
    process,
    setup::{self, Purpose},
    workspace::{self, Workspace},
};

mod elf;
mod elsewhere;

/// What the archive may have, in bytes.
const LARGEST: u64 = 20_000_000;

/// The image's name, without tag.
const REPOSITORY: &str = "localhost/mcs-agent";

/// The flag of rustc for static programs.
const STATIC: &str = "-Ctarget-feature=+crt-static";
const NEEDS_LIBC: &str = "it does not build (a static program needs libc.a: libc6-dev)";

/// Variables that would make another program of the same source.
const CHANGES_THE_RESULT: &[&str] =
    &["CARGO_BUILD_", "CARGO_ENCODED_", "CARGO_INCREMENTAL", "CARGO_PROFILE_", "RUSTFLAGS"];

/// Write the container image, as an OCI archive that containerd, docker and kind load
///
/// No daemon is needed. The image has nothing but the agent, as a static program with the eBPF programs inside, and its
/// licence. The same source and compilers make the same bytes, wherever they lie. The last line is the archive's path.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write it [default: target/image/mcs-agent.tar]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The image's name; its tag is the version
    #[arg(long, value_name = "REPOSITORY", default_value = REPOSITORY)]
    name: String,
    /// Also write the image of the end-to-end suite's clients and servers, target/image/mcs-traffic.tar
    #[arg(long)]
    traffic: bool,
    /// Also build it from a copy of the source in another directory, and fail unless that makes the same bytes
    #[arg(long)]
    check: bool,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    setup::ensure(workspace, &[Purpose::Build])?;
    let archive = match &args.output {
        Some(file) => std::path::absolute(file)?,
        None => directory(workspace).join("mcs-agent.tar"),
    };
    write(workspace, &args.name, &archive)?;
    if args.check {
        elsewhere::compare(workspace, &args.name, &archive)?;
    }
    if args.traffic {
        cluster::write_traffic(
            &traffic(workspace)?,
            &directory(workspace).join("mcs-traffic.tar"),
        )?;
    }
    println!("{}", archive.display());
    Ok(ExitCode::SUCCESS)
}

/// Writes the archive as the verb does by itself, and returns its path.
pub(crate) fn archive(workspace: &Workspace) -> Result<PathBuf> {
    let archive = directory(workspace).join("mcs-agent.tar");
    write(workspace, REPOSITORY, &archive)?;
    Ok(archive)
}

/// Builds the program of the end-to-end suite's clients and servers, as static as the agent.
pub(crate) fn traffic(workspace: &Workspace) -> Result<PathBuf> {
    let target = target();
    let mut build = workspace.cargo();
    workspace::remove_env(&mut build, CHANGES_THE_RESULT);
    build.args(["build", "--locked", "--package", "mcs-tests", "--no-default-features"]);
    build.args(["--bin", "traffic", "--release", "--target", &target]);
    process::run(build.env("CARGO_ENCODED_RUSTFLAGS", STATIC)).context(NEEDS_LIBC)?;
    Ok(workspace.target.join(target).join("release/traffic"))
}

/// Builds the agent and writes the archive.
fn write(workspace: &Workspace, name: &str, archive: &Path) -> Result<()> {
    let program = program(workspace)?;
    elf::ensure_static(&program)?;
    let name = format!("{name}:{}", env!("CARGO_PKG_VERSION"));
    let labels = [
        ("title", "mcs-agent"),
        ("description", "A kube-proxy for ClusterSetIPs"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("licenses", "Apache-2.0 AND (MIT OR GPL-2.0-only)"),
    ];
    let labels: Vec<_> =
        labels.map(|(key, value)| (format!("org.opencontainers.image.{key}"), value)).into();
    let labels: BTreeMap<_, _> = labels.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let files = vec![
        ("usr".into(), Content::Directory),
        ("usr/bin".into(), Content::Directory),
        ("usr/bin/mcs-agent".into(), Content::Program(program)),
        ("usr/share".into(), Content::Directory),
        ("usr/share/doc".into(), Content::Directory),
        ("usr/share/doc/mcs-agent".into(), Content::Directory),
        ("usr/share/doc/mcs-agent/LICENSE".into(), Content::Text(workspace.root.join("LICENSE"))),
    ];
    let image = Image { name: &name, entrypoint: &["mcs-agent"], labels, files };
    let parent = archive.parent().context("an archive lies in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    oci::write(archive, &[image])?;
    let size = archive.metadata()?.len();
    ensure!(size <= LARGEST, "{} has {size} bytes, more than {LARGEST}", archive.display());
    Ok(())
}

/// Builds the agent as it is in the image: static, with no trace of where it was built.
fn program(workspace: &Workspace) -> Result<PathBuf> {
    let object = build::object(workspace)?;
    let target = target();
    let flags = [STATIC.to_owned()];
    let flags: Vec<_> = flags.into_iter().chain(workspace.remapping()).collect();

    let mut build = workspace.cargo();
    workspace::remove_env(&mut build, CHANGES_THE_RESULT);
    build.args(["build", "--locked", "--package", "mcs-agent", "--profile", "image"]);
    build.args(["--target", &target]);
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env(OBJECT_VARIABLE, &object);
    process::run(&mut build).context(NEEDS_LIBC)?;

    // Where deploy/Dockerfile finds it.
    let program = directory(workspace).join("mcs-agent");
    fs::create_dir_all(directory(workspace))?;
    fs::copy(workspace.target.join(target).join("image/mcs-agent"), &program)?;
    Ok(program)
}

/// What it is built for. With a target, the flags are not for build scripts and macros.
fn target() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("image")
}
