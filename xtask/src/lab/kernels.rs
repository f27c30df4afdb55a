//! `cargo xtask kernels`: the suites on the kernels that the agent is for.

use std::{
    fs,
    num::NonZero,
    panic,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{ValueEnum, builder::PossibleValuesParser};

use self::{
    image::Image,
    machine::{boot, here, plan},
    matrix::{Matrix, Row},
    outcome::Outcomes,
    suites::Suite,
};
use crate::{
    build::{self, Profile},
    cross, process,
    screen::say,
    setup::{
        self, Purpose,
        kernel::{ARM64_SOURCES, SOURCES, Source},
    },
    workspace::Workspace,
};

mod image;
mod machine;
mod matrix;
mod outcome;
mod suites;

/// This machine's own kernel.
const HERE: &str = "here";
/// What `--quick` runs on the oldest kernel. Its verifier is the strictest, and it lacks the most features.
const QUICK_ON_OLDEST: &[Suite] = &[Suite::Load, Suite::Packet];
/// What `--arch arm64` runs by default: the suites whose programs Debian's packages have, in an hour of emulation.
const CROSS_SUITES: &[Suite] = &[Suite::Load, Suite::Socket, Suite::Packet];
/// What `--quick` runs on the newest one: whether its verifier takes the programs.
const QUICK_ON_NEWEST: &[Suite] = &[Suite::Load];
/// Ubuntu 22.04's newest kernel is in the matrix for its verifier, beside the first one.
const LOADED_ALONE: &str = "5.15-fixed";

/// Run the suites on other kernels, and print the matrix
///
/// Kernels of Debian and Ubuntu are fetched into the cache. qemu boots as many at a time as this machine has CPUs, each with
/// two emulated CPUs, 2 GiB of memory and no network.
/// A cell shows cases passed, skipped and failed. The reasons of skips, which are what a kernel lacks, are printed below.
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
    /// The suites; by default all, and on 5.15-fixed, which is there for its verifier, `load` alone
    #[arg(long = "suite", value_name = "SUITE", value_enum, value_delimiter = ',')]
    suites: Vec<Suite>,
    /// Only load every program on the oldest and the newest kernel, and run the packet suite on the oldest, as a run of
    /// all suites does
    #[arg(long, conflicts_with_all = ["kernels", "suites"])]
    quick: bool,
    /// The kernels' architecture; the agent and the suites are built for it
    #[arg(long = "arch", value_enum, default_value_t = Kind::Amd64, conflicts_with_all = ["quick", "debug"])]
    kind: Kind,
    /// Fetch the newest kernels of their suites again
    #[arg(long)]
    renew: bool,
    /// Stop a machine that has not finished after this many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    patience: u64,
    /// Use programs that are built without optimisation
    #[arg(long)]
    debug: bool,
    /// How the matrix is printed
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Amd64,
    Arm64,
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
        [] if args.kind == Kind::Arm64 => CROSS_SUITES,
        [] if args.quick => &[Suite::Load, Suite::Packet],
        [] => Suite::value_variants(),
        some => some,
    };
    let profile = match args {
        Args { kind: Kind::Arm64, .. } => build::CROSS,
        Args { debug: true, .. } => build::DEV,
        _ => build::RELEASE,
    };
    if args.kind == Kind::Arm64 {
        cross::ARM64.ensure_tools()?;
        ensure!(
            process::find("qemu-system-aarch64").is_some(),
            "qemu-system-aarch64 is missing: apt-get install qemu-system-arm"
        );
    }
    let built = Built::new(workspace, profile, suites)?;
    let runner = Runner { workspace, patience: Duration::from_mins(args.patience), built };
    let rows = if args.quick { runner.boot_quickly() } else { runner.boot_chosen(args, suites)? };
    let matrix = Matrix { rows: &rows, suites };
    match args.output {
        Format::Table => say(format_args!("\n{matrix}")),
        Format::Json => say(format_args!("{:#}", matrix.json())),
    }
    Ok(if matrix.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The built programs that the suites need.
struct Built {
    object: PathBuf,
    agent: PathBuf,
    /// The directory of the suites' binaries.
    suites: PathBuf,
    /// Other agents that suites need, by the variables that name them.
    others: Vec<(&'static str, PathBuf)>,
}

impl Built {
    fn new(workspace: &Workspace, profile: Profile, suites: &[Suite]) -> Result<Self> {
        let object = build::object(workspace)?;
        let mut others = Vec::new();
        if suites.contains(&Suite::Restart) {
            others.push(("MCS_AGENT_WIDE", build::wide(workspace, profile)?));
        }
        if suites.contains(&Suite::Socket) {
            others.push(("MCS_AGENT_TWO_SLOTS", build::two_slots(workspace, profile)?));
        }
        let agent = build::agent(workspace, &object, profile)?;
        build::suites(
            workspace,
            &object,
            profile,
            &Suite::binaries(suites).into_iter().collect::<Vec<_>>(),
        )?;
        let suites = build::suite(workspace, profile, "");
        Ok(Self { object, agent, suites, others })
    }

    /// A binary of the suites.
    fn binary(&self, name: &str) -> PathBuf {
        self.suites.join(name)
    }
}

/// Runs suites on kernels.
struct Runner<'a> {
    workspace: &'a Workspace,
    patience: Duration,
    built: Built,
}

impl Runner<'_> {
    fn boot_quickly(&self) -> Vec<Row> {
        let oldest = SOURCES.iter().take(1).map(|source| (source, QUICK_ON_OLDEST));
        let newest = SOURCES.iter().skip(1).next_back().map(|source| (source, QUICK_ON_NEWEST));
        self.boot_all(&oldest.chain(newest).collect::<Vec<_>>())
    }

    /// Boots as many machines at a time as there are CPUs. More would be no faster: emulation takes all of a CPU.
    fn boot_all(&self, work: &[(&Source, &[Suite])]) -> Vec<Row> {
        let at_a_time = thread::available_parallelism().map_or(1, NonZero::get);
        work.chunks(at_a_time).flat_map(|some| self.boot_at_once(some)).collect()
    }

    fn boot_at_once(&self, work: &[(&Source, &[Suite])]) -> Vec<Row> {
        thread::scope(|scope| {
            let boot = |(source, suites)| scope.spawn(move || self.boot(source, suites));
            let machines: Vec<_> = work.iter().copied().map(boot).collect();
            let end = |machine: thread::ScopedJoinHandle<'_, Row>| {
                machine.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
            };
            machines.into_iter().map(end).collect()
        })
    }

    fn boot_chosen(&self, args: &Args, suites: &[Suite]) -> Result<Vec<Row>> {
        let Args { kernels, renew, kind, .. } = args;
        let chosen = |name: &str| kernels.is_empty() || kernels.iter().any(|k| k == name);
        let sources = if *kind == Kind::Arm64 { ARM64_SOURCES } else { SOURCES };
        let sources: Vec<_> = sources.iter().filter(|source| chosen(source.name)).collect();
        ensure!(
            *kind == Kind::Amd64 || !sources.is_empty(),
            "none of these kernels is fetched for arm64: {}",
            kernels.join(", ")
        );
        if *renew {
            sources.iter().try_for_each(|source| source.install(self.workspace).map(drop))?;
        }
        // One after the other: some are fetched by the same keys.
        sources.iter().try_for_each(|source| source.find_or_install(self.workspace).map(drop))?;
        let suites_of = |source: &Source| {
            let is_loaded_alone = args.suites.is_empty() && source.name == LOADED_ALONE;
            if is_loaded_alone { &[Suite::Load] } else { suites }
        };
        let work: Vec<_> = sources.into_iter().map(|source| (source, suites_of(source))).collect();
        let mut rows = self.boot_all(&work);
        if chosen(HERE) && *kind == Kind::Amd64 {
            rows.push(self.here(suites));
        }
        Ok(rows)
    }

    fn boot(&self, source: &Source, suites: &[Suite]) -> Row {
        let outcomes = self.try_to_boot(source, suites);
        let outcomes = outcomes.unwrap_or_else(|error| Outcomes::prevented(&error));
        Row { name: source.name.to_owned(), suites: suites.to_vec(), outcomes }
    }

    fn try_to_boot(&self, source: &Source, suites: &[Suite]) -> Result<Outcomes> {
        let kernel = source.find_or_install(self.workspace)?;
        let mut image = if kernel.architecture == &cross::ARM64 {
            Image::for_arm64(self.workspace)?
        } else {
            Image::new()?
        };
        image.modules(&kernel)?;
        for binary in Suite::binaries(suites) {
            image.suite(&self.built.binary(binary))?;
        }
        let others = self.built.others.iter().map(|(_, agent)| agent);
        for file in [&self.built.agent, &self.built.object].into_iter().chain(others) {
            image.suite(file)?;
        }
        image.plan(plan(suites));
        let directory = self.workspace.target.join("kernels");
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let file = directory.join(format!("{}.cpio", kernel.release));
        image.write(&file)?;
        eprintln!("kernels: booting {}", kernel.release);
        let progress = Progress::begin(source.name, self.patience);
        let outcomes = boot(&kernel, &file, self.patience, &mut |line| progress.show(line));
        // Another run with the same kernel may have removed it. The outcomes are valid either way.
        let _ = fs::remove_file(&file);
        Ok(outcomes)
    }

    fn here(&self, suites: &[Suite]) -> Row {
        let progress = Progress::begin(HERE, self.patience);
        let show = &mut |line: &str| progress.show(line);
        let outcomes = here(&self.built, suites, self.patience, show);
        Row { name: HERE.to_owned(), suites: suites.to_vec(), outcomes }
    }
}

/// The progress of a kernel; the matrix alone goes to standard output.
struct Progress<'a> {
    kernel: &'a str,
    start: Instant,
    patience: Duration,
}

impl<'a> Progress<'a> {
    fn begin(kernel: &'a str, patience: Duration) -> Self {
        Self { kernel, start: Instant::now(), patience }
    }

    /// Prints a line, after the minutes gone and those that are left. Panics once nobody reads standard error
    /// (`2>&1 | head`): unwinding stops the machine, and nobody sees the message.
    fn show(&self, line: &str) {
        if line.starts_with("@mcs ") {
            return;
        }
        let gone = self.start.elapsed();
        let left = self.patience.saturating_sub(gone);
        eprintln!("{:<11}{}/-{}| {line}", self.kernel, minutes(gone), minutes(left));
    }
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}
