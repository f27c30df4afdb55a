//! `cargo xtask fuzz`: random inputs, for longer than the suites try them.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use mcs_tests::wait::FUZZ_SECONDS;

use crate::{
    build,
    setup::{self, Purpose},
    workspace::Workspace,
};

/// Try random inputs for longer than the suites do
///
/// Failing inputs are shrunk and printed. Their seeds are saved in tests/proptest-regressions; commit them, because the
/// suites try these inputs first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to try; by default all, one after the other
    parts: Vec<Part>,
    /// How long to try each
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Objects, from the bytes of manifests to maps in memory
    Objects,
    /// Answers of an API server in protobuf, whole and damaged
    Messages,
    /// Packets, through the programs of the packet path (as root)
    Packets,
    /// Random contents of the pinned maps when an agent starts (as root)
    Restore,
}

impl Part {
    const ALL: [Self; 4] = [Self::Objects, Self::Messages, Self::Packets, Self::Restore];

    /// The suite, and how the names of its cases for it begin.
    const fn cases(self) -> (&'static str, &'static str) {
        match self {
            Self::Objects => ("scenario", "fuzz: objects"),
            Self::Messages => ("scenario", "fuzz: messages"),
            Self::Packets => ("packet", "fuzz: "),
            Self::Restore => ("lifecycle", "fuzz: "),
        }
    }

    const fn takes_root(self) -> bool {
        matches!(self, Self::Packets | Self::Restore)
    }
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let parts = if args.parts.is_empty() { Part::ALL.as_slice() } else { &args.parts };
    let takes_root = parts.iter().any(|part| part.takes_root());
    let is_root = rustix::process::geteuid().is_root();
    ensure!(
        is_root || !takes_root,
        "packets and restore take root: `cargo xtask fuzz objects messages` does not"
    );
    setup::ensure(workspace, &[Purpose::Build])?;
    let object = build::object(workspace)?;
    let agent = build::release(workspace, &object)?;
    for part in parts {
        let (suite, cases) = part.cases();
        build::run_suite(workspace, &object, suite, |suite| {
            suite.arg(cases).env("MCS_AGENT", &agent);
            suite.env(FUZZ_SECONDS, (args.minutes * 60).to_string());
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
