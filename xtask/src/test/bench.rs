//! Running one suite after the other.

use std::{
    cell::OnceCell,
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    suites::{END_TO_END, Extra, Suite},
    summary::{Outcome, Run},
};
use crate::{
    build::{self, OBJECT_VARIABLE, RELEASE},
    image, process,
    setup::{self, Purpose},
    workspace::Workspace,
};

/// Runs suites, and builds what they share once.
pub(super) struct Bench<'a> {
    workspace: &'a Workspace,
    arguments: &'a [String],
    end_to_end: &'a [OsString],
    built: OnceCell<Result<Built>>,
    images: OnceCell<Result<Variables>>,
    other_version: OnceCell<Result<Variables>>,
}

/// Names of variables, and paths.
type Variables = Vec<(&'static str, PathBuf)>;

struct Built {
    object: PathBuf,
    agent: PathBuf,
}

impl<'a> Bench<'a> {
    /// A bench that hands `arguments` to each suite, and `end_to_end` too to the end-to-end suite.
    pub(super) fn new(
        workspace: &'a Workspace,
        arguments: &'a [String],
        end_to_end: &'a [OsString],
    ) -> Self {
        Self {
            workspace,
            arguments,
            end_to_end,
            built: OnceCell::new(),
            images: OnceCell::new(),
            other_version: OnceCell::new(),
        }
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
        let mut extras = suite.extras.iter();
        let error = self.built(suite).and_then(|built| built.as_ref().err());
        let error = error.or_else(|| extras.find_map(|extra| self.extra(*extra).as_ref().err()))?;
        Some(Outcome::Failed(format!("not built: {error:#}")))
    }

    fn execute(&self, suite: &Suite) -> (Outcome, Duration) {
        let mut command = self.workspace.cargo();
        if let Some(Ok(built)) = self.built(suite) {
            command.env(OBJECT_VARIABLE, &built.object).env("MCS_AGENT", &built.agent);
        }
        for variables in suite.extras.iter().flat_map(|extra| self.extra(*extra)) {
            command.envs(variables.iter().map(|(name, path)| (name, path)));
        }
        if suite.needs.contains(&Purpose::Clusters)
            && let Err(error) = setup::name_cluster_programs(self.workspace, &mut command)
        {
            return (Outcome::Failed(format!("{error:#}")), Duration::ZERO);
        }
        command.args(suite.cargo);
        let more = if suite.name == END_TO_END { self.end_to_end } else { &[] };
        if !suite.cargo.contains(&"--") {
            command.arg("--").args(self.arguments).args(more);
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

    /// Where the suite's command finds it, built once.
    fn extra(&self, extra: Extra) -> &Result<Variables> {
        match extra {
            Extra::Images => self.images.get_or_init(|| {
                let agent = ("MCS_IMAGE", image::agent(self.workspace)?);
                Ok(vec![agent, ("MCS_TRAFFIC", image::traffic(self.workspace)?)])
            }),
            Extra::OtherVersion => self.other_version.get_or_init(|| {
                let wide = build::wide(self.workspace, RELEASE);
                // Both are built to the same place.
                build::release(self.workspace, &build::object(self.workspace)?)?;
                Ok(vec![("MCS_AGENT_WIDE", wide?)])
            }),
        }
    }

    fn build(&self) -> Result<Built> {
        let object = build::object(self.workspace)?;
        let agent = build::release(self.workspace, &object)?;
        build::suites(self.workspace, &object, RELEASE, &[])?;
        Ok(Built { object, agent })
    }
}
