//! `cargo xtask kernels`: the suites on the kernels that the agent is for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::{ValueEnum, builder::PossibleValuesParser};

use self::{
    image::Image,
    machine::{boot, here, plan},
    matrix::{Matrix, Row},
    outcome::Outcomes,
    package::{SOURCES, Source},
    suites::Suite,
};
use crate::{
    build,
    setup::{self, Purpose},
    workspace::Workspace,
};

mod image;
mod machine;
mod matrix;
mod outcome;
mod package;
mod suites;

/// This machine's own kernel.
const HERE: &str = "here";

/// Run the suites on other kernels, and print the matrix
///
/// Debian's kernels are fetched into the cache, and booted by qemu with two CPUs and no network.
/// A cell shows cases passed, skipped and failed; a skip is what a kernel lacks, which is told below.
/// Fails unless every suite passes on every kernel.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernels; by default all, and this machine's own
    #[arg(
        long = "kernel", value_name = "KERNEL", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(
            SOURCES.iter().map(|source| source.name).chain([HERE])
        ),
    )]
    kernels: Vec<String>,
    /// The suites; by default all
    #[arg(long = "suite", value_name = "SUITE", value_enum, value_delimiter = ',')]
    suites: Vec<Suite>,
    /// Fetch the newest kernels of their suites again
    #[arg(long)]
    renew: bool,
    /// Minutes until a machine that is not done is stopped
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    patience: u64,
    /// How the matrix is printed
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the machines run this machine's programs, and the kernels are those for x86-64"
    );
    setup::ensure(workspace, &[Purpose::Build, Purpose::Test, Purpose::Kernels])?;
    let suites = match args.suites.as_slice() {
        [] => Suite::value_variants(),
        some => some,
    };
    let lab = Lab::build(workspace, suites, Duration::from_mins(args.patience))?;
    let chosen = |name: &str| args.kernels.is_empty() || args.kernels.iter().any(|k| k == name);
    let mut rows = Vec::new();
    for source in SOURCES.iter().filter(|source| chosen(source.name)) {
        rows.push(lab.boot(source, args.renew));
    }
    if chosen(HERE) {
        rows.push(lab.here());
    }
    let matrix = Matrix { rows: &rows, suites };
    match args.output {
        Format::Table => println!("\n{matrix}"),
        Format::Json => println!("{:#}", matrix.json()),
    }
    Ok(if matrix.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What every kernel is given.
struct Lab<'a> {
    workspace: &'a Workspace,
    suites: &'a [Suite],
    patience: Duration,
    object: PathBuf,
    agent: PathBuf,
}

impl<'a> Lab<'a> {
    fn build(workspace: &'a Workspace, suites: &'a [Suite], patience: Duration) -> Result<Self> {
        let object = build::object(workspace)?;
        let agent = build::release(workspace, &object)?;
        build::suites(workspace, &object)?;
        Ok(Self { workspace, suites, patience, object, agent })
    }

    fn binaries(&self) -> &Path {
        self.agent.parent().unwrap_or(&self.workspace.target)
    }

    fn boot(&self, source: &Source, renew: bool) -> Row {
        let outcomes = self.try_to_boot(source, renew);
        let outcomes = outcomes.unwrap_or_else(|error| Outcomes::prevented(&error));
        Row { name: source.name.to_owned(), outcomes }
    }

    fn try_to_boot(&self, source: &Source, renew: bool) -> Result<Outcomes> {
        let kernel = source.fetch(self.workspace, renew)?;
        let mut image = Image::new()?;
        image.modules(&kernel)?;
        for binary in Suite::binaries() {
            image.suite(&self.binaries().join(binary))?;
        }
        image.suite(&self.agent)?;
        image.suite(&self.object)?;
        image.plan(plan(self.suites));
        let directory = self.workspace.target.join("kernels");
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let file = directory.join(format!("{}.cpio", source.name));
        image.write(&file)?;
        eprintln!("kernels: booting {}", kernel.release);
        let outcomes = boot(&kernel, &file, self.patience, &mut |line| show(source.name, line));
        fs::remove_file(&file)?;
        Ok(outcomes)
    }

    fn here(&self) -> Row {
        let outcomes = here(
            self.binaries(),
            &self.agent,
            &self.object,
            self.suites,
            self.patience,
            &mut |line| show(HERE, line),
        );
        Row { name: HERE.to_owned(), outcomes }
    }
}

/// The progress of a kernel; the matrix alone goes to standard output.
fn show(kernel: &str, line: &str) {
    if !line.starts_with("@mcs ") {
        eprintln!("{kernel:<5}| {line}");
    }
}
