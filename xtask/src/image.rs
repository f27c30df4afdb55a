//! `cargo xtask image`: the agent and the controller as a container image.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::{
    cluster,
    oci::{self, Content, Image},
};

use crate::{
    build::{self, RELEASE},
    process,
    setup::{self, Purpose},
    workspace::Workspace,
};

mod architectures;
mod elf;
mod elsewhere;

const NAME: &str = "localhost/mcs-agent";
/// The largest size of the archive, in bytes: 26.5 MB for the agent and 21.5 MB for the controller.
const LARGEST: u64 = 48_000_000;

/// Write the container image, as an OCI archive that containerd, docker and kind load
///
/// No daemon is needed. The image has nothing but two static programs and their licence: the agent, with the eBPF programs
/// inside, and the controller. The same source and compilers make the same bytes, wherever they lie. The last line is the archive's path.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write it [default: target/container/mcs-agent.tar]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The image's name; its tag is the version
    #[arg(long, value_name = "REPOSITORY", default_value = NAME)]
    name: String,
    /// Also build it from a copy of the source in another directory, and fail unless that makes the same bytes; and
    /// fail unless the eBPF programs are the same for kernels of both architectures
    #[arg(long)]
    check: bool,
    /// Write the image of the end-to-end suite's clients and servers instead
    #[arg(long, conflicts_with_all = ["name", "check"])]
    traffic: bool,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    setup::ensure(workspace, &[Purpose::Build])?;
    let file = if args.traffic { "mcs-traffic.tar" } else { "mcs-agent.tar" };
    let archive = match &args.output {
        Some(file) => std::path::absolute(file)?,
        None => directory(workspace).join(file),
    };
    if args.traffic {
        make_parent(&archive)?;
        cluster::write_traffic(&traffic(workspace)?, &archive)?;
    } else {
        write(workspace, &args.name, &archive)?;
    }
    if args.check {
        architectures::compare(workspace)?;
        elsewhere::compare(workspace, &args.name, &archive)?;
    }
    println!("{}", archive.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the program of the end-to-end suite's clients and servers, and returns its path.
pub(crate) fn traffic(workspace: &Workspace) -> Result<PathBuf> {
    let object = build::object(workspace)?;
    build::suites(workspace, &object, RELEASE, &["traffic"])?;
    strip(workspace, &build::suite(workspace, RELEASE, "traffic"))
}

/// Builds both programs, writes their image, and returns the archive's path.
pub(crate) fn agent(workspace: &Workspace) -> Result<PathBuf> {
    let archive = directory(workspace).join("mcs-agent.tar");
    write(workspace, NAME, &archive)?;
    Ok(archive)
}

/// Builds the programs of a release without symbols, and returns their directory.
pub(crate) fn programs(workspace: &Workspace) -> Result<PathBuf> {
    let object = build::object(workspace)?;
    strip(workspace, &build::release(workspace, &object)?)?;
    let controller = build::controller(workspace, &object, RELEASE)?;
    strip(workspace, &controller)?;
    strip(workspace, &build::command_line(&controller))?;
    Ok(directory(workspace))
}

/// Writes an archive with the image for each of these directories of programs, by architecture, under one index. Returns
/// the index's digest.
pub(crate) fn write_index(
    workspace: &Workspace,
    name: &str,
    programs: &[(String, PathBuf)],
    archive: &Path,
) -> Result<String> {
    let images: Vec<_> = programs
        .iter()
        .map(|(architecture, programs)| (architecture.as_str(), image(workspace, name, programs)))
        .collect();
    oci::write_index(archive, name, &images)
}

/// Builds both programs and writes the archive.
fn write(workspace: &Workspace, name: &str, archive: &Path) -> Result<()> {
    let programs = programs(workspace)?;
    let name = format!("{name}:{}", env!("CARGO_PKG_VERSION"));
    make_parent(archive)?;
    oci::write(archive, &[image(workspace, &name, &programs)])?;
    let size = archive.metadata()?.len();
    ensure!(size <= LARGEST, "{} has {size} bytes, more than {LARGEST}", archive.display());
    Ok(())
}

/// The programs of the image.
const PROGRAMS: [&str; 2] = ["mcs-agent", "mcs-controller"];
/// The programs of a release. People run the last one on their machines.
pub(crate) const RELEASED: [&str; 3] = ["mcs-agent", "mcs-controller", "mcs"];

/// The image of the programs in a directory.
fn image<'a>(workspace: &Workspace, name: &'a str, programs: &Path) -> Image<'a> {
    let labels = BTreeMap::from([
        ("org.opencontainers.image.title", "mcs-agent"),
        (
            "org.opencontainers.image.description",
            "A kube-proxy for ClusterSetIPs, and a controller that makes them",
        ),
        ("org.opencontainers.image.version", env!("CARGO_PKG_VERSION")),
        ("org.opencontainers.image.licenses", "Apache-2.0 AND (MIT OR GPL-2.0-only)"),
    ]);
    let mut files = vec![
        ("usr".into(), Content::Directory),
        ("usr/bin".into(), Content::Directory),
        ("usr/share".into(), Content::Directory),
        ("usr/share/doc".into(), Content::Directory),
        ("usr/share/doc/mcs-agent".into(), Content::Directory),
        ("usr/share/doc/mcs-agent/LICENSE".into(), Content::Text(workspace.root.join("LICENSE"))),
    ];
    files.extend(
        PROGRAMS
            .map(|name| (Path::new("usr/bin").join(name), Content::Program(programs.join(name)))),
    );
    Image { name, entrypoint: &["mcs-agent"], labels, files, ..Image::default() }
}

fn make_parent(file: &Path) -> Result<()> {
    let parent = file.parent().context("a file lies in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

/// Strips a program of its symbols, as in an image, and returns its path.
fn strip(workspace: &Workspace, program: &Path) -> Result<PathBuf> {
    // Where deploy/Dockerfile finds it.
    let stripped =
        directory(workspace).join(program.file_name().context("a program without a name")?);
    strip_by("strip", program, &stripped)?;
    Ok(stripped)
}

/// Makes a copy of a static program without symbols, by the `strip` of its architecture.
pub(crate) fn strip_by(strip: &str, program: &Path, stripped: &Path) -> Result<()> {
    make_parent(stripped)?;
    // A suite beside this one may read it.
    let fresh = stripped.with_extension(std::process::id().to_string());
    process::run(Command::new(strip).arg("--strip-all").arg("-o").args([&fresh, program]))?;
    elf::ensure_static(&fresh)?;
    fs::rename(&fresh, stripped).with_context(|| format!("cannot write {}", stripped.display()))
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("container")
}
