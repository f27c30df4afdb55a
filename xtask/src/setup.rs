//! `cargo xtask setup`: finds what the other verbs need, installs what is missing, and says what it does.

use std::{
    env, fmt,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use mcs_tests::cluster::{self, OLDEST_KUBERNETES};

pub(crate) use self::{
    cargo_tool::{CARGO_DENY, CARGO_MUTANTS},
    toolchain::Toolchain,
};
use self::{go_module::GoModule, install::Remedy, lock::Lock};
use crate::{version::Version, workspace::Workspace};

mod cargo_tool;
mod compiler;
mod go;
mod go_module;
mod install;
pub(crate) mod kernel;
mod lock;
pub(crate) mod toolchain;
mod tools;

/// Find or install what the other verbs need
///
/// The eBPF programs are compiled by a rustup nightly that has rust-src (with `-Z build-std=core`) where one is
/// installed together with bpf-linker, and otherwise by Debian's rustc-web. Packages are installed with apt-get: on a
/// terminal after asking, elsewhere at once, through sudo for anybody but root. bpf-linker, cargo-deny and cargo-mutants come
/// from crates.io, Kubernetes and what belongs to it from the Go module proxy, in the versions that tests/programs pins; they
/// go to the cache directory, `$MCS_CACHE` (by default ~/.cache/mcs-agent).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to prepare for; by default everything but kind, bench, upstream, neighbours, cnis, mutants and browser
    #[arg(value_enum)]
    purposes: Vec<Purpose>,
    /// Only report, and exit with 1 if something is missing
    #[arg(long)]
    check: bool,
}

/// What something is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// The eBPF programs and the agent
    Build,
    /// The demonstration
    Demo,
    /// The suites that need root
    Test,
    /// API servers and kube-proxies of the newest Kubernetes with the types of the API, without a cluster
    Servers,
    /// The Kubernetes clusters
    Clusters,
    /// The end-to-end suite on clusters that run elsewhere
    Remote,
    /// The checks of the source
    Lint,
    /// The files of a release
    Release,
    /// Other kernels, in virtual machines
    Kernels,
    /// kind: Docker, and what the image of its nodes is made of
    Kind,
    /// The bench beside programs of others, which it compiles
    Bench,
    /// Kubernetes' own specs of its network
    Upstream,
    /// Multi-cluster controllers of others
    Neighbours,
    /// CNIs that run programs of their own, for the clusters
    Cnis,
    /// Mutants of the code
    Mutants,
    /// A real browser, which looks at pages with --full
    Browser,
}

/// One thing that is needed.
struct Item {
    name: &'static str,
    found: Option<PathBuf>,
    /// Arguments with which it prints its version; empty for what is no program.
    version: &'static [&'static str],
    remedy: Remedy,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<24}", self.name)?;
        let Some(path) = &self.found else {
            return write!(f, "missing; comes with {}", self.remedy);
        };
        write!(f, "{}", path.display())?;
        if self.version.is_empty() {
            return Ok(());
        }
        match Version::ask(Command::new(path).args(self.version)) {
            Some(version) => write!(f, "  {version}"),
            None => f.write_str("  (says no version)"),
        }
    }
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let mut purposes = args.purposes.clone();
    if purposes.is_empty() {
        // What takes minutes is installed for those who ask for it.
        let is_asked_for = |purpose: &&Purpose| {
            use Purpose::{Bench, Browser, Cnis, Kind, Mutants, Neighbours, Upstream};
            matches!(purpose, Kind | Bench | Upstream | Neighbours | Cnis | Mutants | Browser)
        };
        let all = Purpose::value_variants().iter().filter(|purpose| !is_asked_for(purpose));
        purposes.extend(all);
    }
    if !args.check {
        ensure(workspace, &purposes)?;
    }
    let items = items(workspace, &purposes);
    for item in &items {
        println!("{item}");
    }
    let complete = items.iter().all(|item| item.found.is_some());
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Installs what `purposes` lack; quick and silent when nothing is missing.
pub(crate) fn ensure(workspace: &Workspace, purposes: &[Purpose]) -> Result<()> {
    ensure_all(workspace, &|| missing(workspace, purposes))
}

/// Installs what clusters of the newest Kubernetes lack. Building another version takes minutes.
pub(crate) fn ensure_newest(workspace: &Workspace) -> Result<()> {
    ensure_all(workspace, &|| {
        let mut missing = missing(workspace, &[Purpose::Clusters]);
        missing.retain(|item| item.name != OLDEST_KUBERNETES);
        missing
    })
}

fn ensure_all(workspace: &Workspace, missing: &dyn Fn() -> Vec<Item>) -> Result<()> {
    if missing().is_empty() {
        return Ok(());
    }
    // Another setup may install the same.
    let _lock = Lock::take(&workspace.cache, &mut |holder| {
        eprintln!("setup: waiting for another setup, {holder}");
    })?;
    let lacking = missing();
    if lacking.is_empty() {
        return Ok(());
    }
    let remedies: Vec<_> = lacking.iter().map(|item| &item.remedy).collect();
    install::apply(workspace, &remedies)?;
    let left = missing();
    let left: Vec<_> = left.iter().map(|item| format!("{} ({})", item.name, item.remedy)).collect();
    ensure!(
        left.is_empty(),
        "installed, but still not found in a usable version: {}",
        left.join(", ")
    );
    Ok(())
}

/// The toolchain of the eBPF programs, installed first if it is missing.
pub(crate) fn toolchain(workspace: &Workspace) -> Result<Toolchain> {
    if let Some(toolchain) = Toolchain::find(workspace) {
        return Ok(toolchain);
    }
    ensure(workspace, &[Purpose::Build])?;
    Toolchain::find(workspace).context("setup found the eBPF toolchain, and then it was gone")
}

/// The directories with the programs of [`Purpose::Clusters`], [`Purpose::Servers`], [`Purpose::Neighbours`], [`Purpose::Cnis`] or
/// [`Purpose::Remote`], which are in the cache.
pub(crate) fn cluster_programs(
    workspace: &Workspace,
    purposes: &[Purpose],
) -> Result<Vec<PathBuf>> {
    let modules = go_module::of(purposes);
    // Clusters of the newest version do without.
    let needed = modules
        .filter(|module| module.name != OLDEST_KUBERNETES || module.find(workspace).is_some());
    needed.map(|module| built(workspace, module)).collect()
}

/// Tells a command where the programs of [`cluster_programs`] lie.
pub(crate) fn name_cluster_programs(
    workspace: &Workspace,
    purposes: &[Purpose],
    command: &mut Command,
) -> Result<()> {
    command.env(cluster::VARIABLE, env::join_paths(cluster_programs(workspace, purposes)?)?);
    Ok(())
}

/// A program of [`Purpose::Lint`] that comes from the Go module proxy.
pub(crate) fn go_program(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    Ok(family(workspace, Purpose::Lint, name)?.join(name))
}

/// The kube-proxy of [`Purpose::Bench`].
pub(crate) fn newest_kube_proxy(workspace: &Workspace) -> Result<PathBuf> {
    Ok(family(workspace, Purpose::Bench, go_module::NEWEST_KUBE_PROXY)?.join("kube-proxy"))
}

/// The directory with the programs of [`Purpose::Upstream`].
pub(crate) fn upstream_programs(workspace: &Workspace) -> Result<PathBuf> {
    family(workspace, Purpose::Upstream, go_module::UPSTREAM)
}

/// The directory with the programs of a family.
fn family(workspace: &Workspace, purpose: Purpose, name: &str) -> Result<PathBuf> {
    let purposes = [purpose];
    let module = go_module::of(&purposes).find(|module| module.name == name);
    built(workspace, module.with_context(|| format!("no family of programs is {name}"))?)
}

fn built(workspace: &Workspace, module: &GoModule) -> Result<PathBuf> {
    let name = module.name;
    module.find(workspace).with_context(|| format!("{name} is not built: run `cargo xtask setup`"))
}

/// Variables that tell a command where the sources of [`Purpose::Neighbours`] or [`Purpose::Cnis`] lie, which have definitions and
/// charts.
pub(crate) fn sources(
    workspace: &Workspace,
    purposes: &[Purpose],
) -> Result<Vec<(String, PathBuf)>> {
    let of_others = go_module::of(purposes).filter(|module| module.is_of_others());
    let source = |module: &GoModule| {
        let source = go_source(workspace, module.name, module.provider)?;
        Ok((cluster::source_variable(module.name), source))
    };
    of_others.map(source).collect()
}

/// The source of a Go module, in the version that a directory below tests/programs pins.
pub(crate) fn go_source(workspace: &Workspace, family: &str, module: &str) -> Result<PathBuf> {
    go_module::download(workspace, &workspace.root.join("tests/programs").join(family), module)
}

fn missing(workspace: &Workspace, purposes: &[Purpose]) -> Vec<Item> {
    let mut items = items(workspace, purposes);
    items.retain(|item| item.found.is_none());
    items
}

fn items(workspace: &Workspace, purposes: &[Purpose]) -> Vec<Item> {
    let wanted = |purpose| purposes.contains(&purpose);
    let mut items = Vec::new();
    if wanted(Purpose::Build) || wanted(Purpose::Lint) {
        items.extend(toolchain::items(workspace, wanted(Purpose::Lint)));
    }
    if wanted(Purpose::Lint) {
        items.extend(tools::lint(workspace));
    }
    items
        .extend(wanted(Purpose::Mutants).then(|| tools::from_crates_io(workspace, &CARGO_MUTANTS)));
    items.extend(tools::programs(purposes));
    if wanted(Purpose::Kernels) || wanted(Purpose::Kind) {
        items.push(tools::debian_keyring());
    }
    if wanted(Purpose::Kind) {
        items.push(tools::docker());
    }
    items.extend(kernel::items(workspace, purposes));
    items.extend(go_module::items(workspace, purposes));
    items
}
