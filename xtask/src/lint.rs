//! `cargo xtask lint`: static checks of the source.

use std::{
    fs,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use crate::{
    deploy, process, release,
    setup::{self, CARGO_DENY, Purpose},
    workspace::Workspace,
};

mod boundaries;
mod circles;
mod features;
#[cfg(test)]
mod links;
mod reasons;

/// The crates that are compiled for BPF: the programs, and what they share with user space.
const BPF_CRATES: &[&str] = &["--package", "mcs-ebpf", "--package", "mcs-common"];
const HOST_CRATES: &[&str] = &["--workspace", "--exclude", "mcs-ebpf"];

/// Check format, lints, dependencies and documentation
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to check; by default everything but the advisories
    #[arg(value_enum)]
    checks: Vec<Check>,
    /// With features: take each out of a copy of the tree, in target/lint-features, and check that the rest compiles; one
    /// by its NAME, or those that have `changed`
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "all")]
    delete: Option<String>,
    /// What `--delete changed` compares with [default: origin/main, main, or the commit before]
    #[arg(long, value_name = "REF", requires = "delete")]
    base: Option<String>,
    /// With reasons: write deploy/reasons.md
    #[arg(long)]
    write: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Check {
    /// rustfmt
    Fmt,
    /// Which part of a program may use what: aya, the map ABI, Kubernetes types, unsafe code, clocks; and that no files name each other in imports
    Boundaries,
    /// That no core names a feature, no feature names another, and few lines outside of a feature know it
    Features,
    /// That each code in the table of reasons is raised, seen by a test and explained by a page, and that deploy/reasons.md is current
    Reasons,
    /// Clippy for user space and for BPF, warnings denied
    Clippy,
    /// Licences, sources and bans of the dependencies
    Deny,
    /// Documentation of all crates, warnings denied
    Docs,
    /// Shell scripts, workflows, the manifest for krew, and the charts with the manifests that are made from them
    Deploy,
    /// Known vulnerabilities of the dependencies, from a database that is fetched
    Advisories,
}

const DEFAULT: &[Check] = &[
    Check::Fmt,
    Check::Boundaries,
    Check::Features,
    Check::Reasons,
    Check::Clippy,
    Check::Deny,
    Check::Docs,
    Check::Deploy,
];

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let checks = if args.checks.is_empty() { DEFAULT } else { &args.checks };
    ensure!(
        args.delete.is_none() || checks.contains(&Check::Features),
        "--delete is for features: cargo xtask lint features --delete"
    );
    if checks
        .iter()
        .any(|check| !matches!(check, Check::Boundaries | Check::Features | Check::Reasons))
    {
        setup::ensure(workspace, &[Purpose::Build, Purpose::Lint])?;
    }
    for check in checks {
        match check {
            Check::Fmt => process::run(workspace.cargo().args(["fmt", "--all", "--check"]))?,
            Check::Boundaries => {
                boundaries::check(&workspace.root)?;
                circles::check(&workspace.root)?;
            }
            Check::Features => {
                let features = features::check(&workspace.root)?;
                if let Some(which) = &args.delete {
                    setup::ensure(workspace, &[Purpose::Build])?;
                    features::delete::check(workspace, &features, which, args.base.as_deref())?;
                }
            }
            Check::Reasons => reasons::check(&workspace.root, args.write)?,
            Check::Clippy => clippy(workspace)?,
            Check::Deny => deny(workspace, &["bans", "licenses", "sources"])?,
            Check::Docs => docs(workspace)?,
            Check::Deploy => deployment(workspace)?,
            Check::Advisories => deny(workspace, &["advisories"])?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn clippy(workspace: &Workspace) -> Result<()> {
    let denied = ["--", "--deny", "warnings"];
    let mut host = workspace.cargo();
    // `--all-targets` would check each suite twice: once more as a test, which it does not have.
    let targets = ["--lib", "--bins", "--tests"];
    process::run(host.arg("clippy").args(HOST_CRATES).args(targets).args(denied))?;
    let mut bpf = setup::toolchain(workspace)?.cargo(workspace, "clippy");
    process::run(bpf.args(BPF_CRATES).args(denied))
}

fn deny(workspace: &Workspace, checks: &[&str]) -> Result<()> {
    let program = CARGO_DENY.find(workspace).context("cargo-deny is gone since setup")?;
    process::run(Command::new(program).current_dir(&workspace.root).arg("check").args(checks))
}

fn deployment(workspace: &Workspace) -> Result<()> {
    let mut scripts = Command::new("git");
    scripts.current_dir(&workspace.root).args(["ls-files", "-z", "*.sh", ".ci/run"]);
    let scripts = String::from_utf8(scripts.output().context("cannot start git")?.stdout)?;
    let mut shellcheck = Command::new("shellcheck");
    process::run(shellcheck.current_dir(&workspace.root).args(scripts.split_terminator('\0')))?;
    // It checks the scripts in workflows too, by the shellcheck on PATH.
    let mut actionlint = Command::new(setup::go_program(workspace, "actionlint")?);
    process::run(actionlint.current_dir(&workspace.root))?;
    pinned_actions(workspace)?;
    release::krew::lint(workspace)?;
    deploy::check(workspace)
}

/// Fails if a workflow uses an action by a tag: its owner can move a tag, and not a commit.
fn pinned_actions(workspace: &Workspace) -> Result<()> {
    let directory = workspace.root.join(".github/workflows");
    for entry in fs::read_dir(&directory).context("cannot read .github/workflows")? {
        let path = entry?.path();
        for line in fs::read_to_string(&path)?.lines() {
            let Some((_, action)) = line.split_once("uses: ") else { continue };
            let commit = action.split(' ').next().and_then(|action| action.split('@').nth(1));
            let is_pinned = commit.is_some_and(|commit| {
                commit.len() == 40 && commit.chars().all(|digit| digit.is_ascii_hexdigit())
            });
            ensure!(is_pinned, "{}: name the commit of {action}", path.display());
        }
    }
    Ok(())
}

fn docs(workspace: &Workspace) -> Result<()> {
    let mut host = workspace.cargo();
    let mut bpf = setup::toolchain(workspace)?.cargo(workspace, "doc");
    host.arg("doc").args(HOST_CRATES);
    bpf.args(BPF_CRATES);
    for doc in [&mut host, &mut bpf] {
        process::run(doc.arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(())
}
