//! Running one suite after the other.

use std::{
    cell::OnceCell,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    suites::Suite,
    summary::{Outcome, Run},
};
use crate::{
    build::{self, OBJECT_VARIABLE},
    process,
    setup::{self, Purpose},
    workspace::Workspace,
};

/// Runs suites, and builds what they share once.
pub(super) struct Bench<'a> {
    workspace: &'a Workspace,
    arguments: &'a [String],
    built: OnceCell<Result<Built>>,
}

struct Built {
    object: PathBuf,
    agent: PathBuf,
}

impl<'a> Bench<'a> {
    /// A bench that hands `arguments` to each suite.
    pub(super) fn new(workspace: &'a Workspace, arguments: &'a [String]) -> Self {
        Self { workspace, arguments, built: OnceCell::new() }
    }

    /// Runs `suite`, or says why not.
    pub(super) fn run(&self, suite: &'static Suite) -> Run {
        println!("== {}: {}", suite.name, suite.about);
        let (outcome, time) = match self.obstacle(suite) {
            Some(outcome) => (outcome, Duration::ZERO),
            None => self.execute(suite),
        };
        Run { suite: suite.name, outcome, time }
    }

    /// What keeps `suite` from running at all.
    fn obstacle(&self, suite: &Suite) -> Option<Outcome> {
        if suite.root && !rustix::process::geteuid().is_root() {
            return Some(Outcome::Skipped(format!(
                "takes root: sudo --preserve-env env \"PATH=$PATH\" cargo xtask test {}",
                suite.name
            )));
        }
        if let Err(error) = setup::ensure(self.workspace, suite.needs) {
            return Some(Outcome::Skipped(format!("{error:#}")));
        }
        let error = self.built(suite)?.as_ref().err()?;
        Some(Outcome::Failed(format!("not built: {error:#}")))
    }

    fn execute(&self, suite: &Suite) -> (Outcome, Duration) {
        let mut command = self.workspace.cargo();
        if let Some(Ok(built)) = self.built(suite) {
            command.env(OBJECT_VARIABLE, &built.object).env("MCS_AGENT", &built.agent);
        }
        command.args(suite.cargo);
        if !self.arguments.is_empty() && !suite.cargo.contains(&"--") {
            command.arg("--").args(self.arguments);
        }
        let start = Instant::now();
        let outcome = match process::run(&mut command) {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        (outcome, start.elapsed())
    }

    /// What the suite's command finds built, if it asks for that.
    fn built(&self, suite: &Suite) -> Option<&Result<Built>> {
        let asked = suite.needs.contains(&Purpose::Build);
        asked.then(|| self.built.get_or_init(|| self.build()))
    }

    fn build(&self) -> Result<Built> {
        let object = build::object(self.workspace)?;
        let agent = build::release(self.workspace, &object)?;
        build::suites(self.workspace, &object)?;
        Ok(Built { object, agent })
    }
}
