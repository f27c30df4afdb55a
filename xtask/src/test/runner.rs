//! Prepares suites and runs one.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    path::PathBuf,
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result};
use mcs_tests::wait;

use super::{
    suites::{END_TO_END, Extra, SUITES, Suite, Work},
    summary::{Build, Outcome, Run},
};
use crate::{
    build::{self, OBJECT_VARIABLE, RELEASE},
    image, process,
    screen::say,
    setup::{self, CARGO_MUTANTS, Purpose},
    workspace::Workspace,
};

/// How many times longer limits are where suites run side by side.
const PATIENCE: &str = "3";

/// Runs suites on what has been built for all of them.
pub(super) struct Runner<'a> {
    pub(super) workspace: &'a Workspace,
    /// For each suite that takes arguments.
    pub(super) arguments: &'a [String],
    /// For the end-to-end suite too.
    pub(super) end_to_end: &'a [OsString],
    /// Whether the end-to-end suite runs on clusters that are not of this machine.
    pub(super) remote: bool,
    pub(super) full: bool,
    /// Whether a suite that takes three times its budget fails.
    pub(super) budgets: bool,
    /// How long each build has taken.
    pub(super) builds: Vec<Build>,
    built: Option<Result<Built>>,
    unit_tests: Option<Result<()>>,
    images: Option<Result<Variables>>,
    other_version: Option<Result<Variables>>,
    two_slots: Option<Result<Variables>>,
    controller: Option<Result<Variables>>,
}

/// Names of variables, and paths.
type Variables = Vec<(&'static str, PathBuf)>;

struct Built {
    object: PathBuf,
    agent: PathBuf,
}

/// A suite that can run, or the reason why not.
pub(super) type Prepared = Result<Command, Outcome>;

/// The outcome of a suite, and its output unless that went to the terminal.
pub(super) struct Finished {
    pub(super) run: Run,
    pub(super) output: Option<PathBuf>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        workspace: &'a Workspace,
        arguments: &'a [String],
        end_to_end: &'a [OsString],
    ) -> Self {
        Self {
            workspace,
            arguments,
            end_to_end,
            remote: false,
            full: false,
            budgets: true,
            builds: Vec::new(),
            built: None,
            unit_tests: None,
            images: None,
            other_version: None,
            two_slots: None,
            controller: None,
        }
    }

    /// Installs and builds what `suite` needs, and returns its command.
    pub(super) fn prepare(&mut self, suite: &Suite) -> Prepared {
        if suite.root && !rustix::process::geteuid().is_root() {
            return Err(Outcome::Skipped(format!(
                "takes root: sudo --preserve-env env \"PATH=$PATH\" cargo xtask test {}",
                suite.name
            )));
        }
        setup::ensure(self.workspace, self.needs(suite))
            .map_err(|error| Outcome::Skipped(format!("{error:#}")))?;
        self.build(suite).map_err(|error| Outcome::Failed(format!("not built: {error}")))?;
        self.command(suite).map_err(|error| Outcome::Failed(format!("{error:#}")))
    }

    /// What setup has to provide.
    fn needs(&self, suite: &Suite) -> &'static [Purpose] {
        if self.remote && suite.name == END_TO_END {
            // It runs nothing on their nodes.
            return &[Purpose::Build, Purpose::Remote];
        }
        suite.needs
    }

    /// Builds what `suite` needs and no suite before it has needed.
    fn build(&mut self, suite: &Suite) -> Result<(), String> {
        let Self {
            workspace,
            builds,
            built,
            unit_tests,
            images,
            other_version,
            two_slots,
            controller,
            ..
        } = self;
        let workspace = *workspace;
        if matches!(suite.work(self.full), Work::UnitTests | Work::Debug(_)) {
            once(unit_tests, builds, "unit tests", || unit(workspace))?;
        }
        if suite.needs.contains(&Purpose::Build) {
            once(built, builds, "agent, suites", || agent(workspace))?;
        }
        for extra in suite.extras {
            match extra {
                Extra::Images => once(images, builds, "images", || {
                    let agent = ("MCS_IMAGE", image::agent(workspace)?);
                    Ok(vec![agent, ("MCS_TRAFFIC", image::traffic(workspace)?)])
                })?,
                Extra::OtherVersion => once(other_version, builds, "other version", || {
                    Ok(vec![("MCS_AGENT_WIDE", build::wide(workspace, RELEASE)?)])
                })?,
                Extra::TwoSlots => once(two_slots, builds, "agent with two slots", || {
                    Ok(vec![("MCS_AGENT_TWO_SLOTS", build::two_slots(workspace, RELEASE)?)])
                })?,
                Extra::Controller => once(controller, builds, "controller", || {
                    let object = build::object(workspace)?;
                    let next = build::next_controller(workspace, &object, RELEASE)?;
                    let controller = build::controller(workspace, &object, RELEASE)?;
                    let mcs = build::command_line(&controller);
                    Ok(vec![
                        ("MCS_CONTROLLER", controller),
                        ("MCS_CONTROLLER_NEXT", next),
                        ("MCS_CLI", mcs),
                    ])
                })?,
            }
        }
        Ok(())
    }

    fn command(&self, suite: &Suite) -> Result<Command> {
        let mut command = match suite.work(self.full) {
            Work::UnitTests => {
                let mut command = self.workspace.cargo();
                command.args(["test", "--"]).args(self.arguments);
                command
            }
            Work::Debug(binary) => self.binary(self.workspace.target.join("debug").join(binary)),
            Work::Binary(binary) => {
                let mut command = self.binary(build::suite(self.workspace, RELEASE, binary));
                command.args((self.full && suite.full.is_some()).then_some("--full"));
                command
            }
            Work::Mutants => self.mutants()?,
            Work::Verb(arguments) => {
                // Unit tests may have built this program again meanwhile.
                let mut command = self.workspace.cargo();
                command.args(["run", "--quiet", "--package", "xtask", "--"]).args(arguments);
                command
            }
        };
        if suite.name == END_TO_END {
            command.args(self.end_to_end);
        }
        if suite.needs.contains(&Purpose::Build)
            && let Some(Ok(built)) = &self.built
        {
            command.env(OBJECT_VARIABLE, &built.object).env("MCS_AGENT", &built.agent);
        }
        for extra in suite.extras {
            let variables = match extra {
                Extra::Images => &self.images,
                Extra::OtherVersion => &self.other_version,
                Extra::TwoSlots => &self.two_slots,
                Extra::Controller => &self.controller,
            };
            let variables = variables.iter().flatten().flatten();
            command.envs(variables.map(|(name, path)| (name, path)));
        }
        let needs = self.needs(suite);
        if needs.contains(&Purpose::Upstream) {
            command.env("MCS_UPSTREAM", setup::upstream_programs(self.workspace)?);
        }
        let has_programs = |purpose: &Purpose| {
            use Purpose::{Clusters, Cnis, Neighbours, Remote, Servers};
            matches!(purpose, Clusters | Servers | Neighbours | Cnis | Remote)
        };
        let purposes: Vec<_> = needs.iter().copied().filter(has_programs).collect();
        if !purposes.is_empty() {
            setup::name_cluster_programs(self.workspace, &purposes, &mut command)?;
            command.envs(setup::sources(self.workspace, &purposes)?);
        }
        Ok(command)
    }

    fn binary(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        self.workspace.enter(&mut command);
        command.args(self.arguments);
        command
    }

    fn mutants(&self) -> Result<Command> {
        let program =
            CARGO_MUTANTS.find(self.workspace).context("cargo-mutants is gone since setup")?;
        // Mutants that never end are noticed. They end it with 3, whether others are missed or not.
        let mut command = Command::new("sh");
        let noticed = r#"missed=$1; shift; "$@" || { test $? = 3 && test ! -s "$missed"; }"#;
        command
            .args(["-c", noticed, "sh"])
            .arg(self.workspace.target.join("mutants.out/missed.txt"))
            .arg(program);
        self.workspace.enter(&mut command);
        // It works in a copy, with a target directory of its own. Nobody looks at the lines of a backtrace, or at inputs
        // that fail: making them smaller can take longer than a test may.
        command.env_remove("CARGO_TARGET_DIR").env("CARGO_PROFILE_DEV_DEBUG", "false");
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.args(["mutants", "--output"]).arg(&self.workspace.target);
        // One in forty, from everywhere.
        let sample = ["--sharding", "round-robin", "--shard", "39/40"];
        command.args(self.arguments.is_empty().then_some(sample).iter().flatten());
        command.args(self.arguments);
        Ok(command)
    }

    /// Runs a suite. In a crowd its output goes to a file, to be shown as a block in the end.
    pub(super) fn run(&self, suite: &'static Suite, prepared: Prepared, crowd: bool) -> Finished {
        let start = Instant::now();
        let (outcome, output) = match prepared {
            Ok(mut command) => self.execute(suite, &mut command, crowd),
            Err(outcome) => (outcome, None),
        };
        let has_budget = self.budgets && !matches!(outcome, Outcome::Skipped(_));
        let budget = has_budget.then(|| suite.budget());
        let run = Run { suite: suite.name, outcome, time: start.elapsed(), budget };
        Finished { run: run.with_budget_enforced(), output }
    }

    fn execute(
        &self,
        suite: &Suite,
        command: &mut Command,
        crowd: bool,
    ) -> (Outcome, Option<PathBuf>) {
        let file = crowd.then(|| self.workspace.target.join("suites").join(suite.name));
        let file = file.map(|file| file.with_added_extension("log"));
        let directed = match &file {
            None => Ok(()),
            Some(file) => {
                if env::var_os(wait::VARIABLE).is_none() {
                    command.env(wait::VARIABLE, PATIENCE);
                }
                direct(command, file)
            }
        };
        match directed.and_then(|()| process::run(command)) {
            Ok(()) => (Outcome::Passed, file),
            Err(error) => (Outcome::Failed(format!("{error:#}")), file),
        }
    }
}

/// Makes `command` write both of its streams to a file.
fn direct(command: &mut Command, file: &PathBuf) -> Result<()> {
    let mut open = || -> Result<()> {
        fs::create_dir_all(file.parent().context("a file lies in a directory")?)?;
        let output = File::create(file)?;
        command.stderr(output.try_clone()?).stdout(output).stdin(std::process::Stdio::null());
        Ok(())
    };
    open().with_context(|| format!("cannot write {}", file.display()))
}

/// Builds something unless that has been tried, and notes how long it takes.
fn once<T>(
    place: &mut Option<Result<T>>,
    builds: &mut Vec<Build>,
    name: &'static str,
    build: impl FnOnce() -> Result<T>,
) -> Result<(), String> {
    if place.is_none() {
        say(format_args!("== building: {name}"));
        let start = Instant::now();
        *place = Some(build());
        builds.push(Build { name, time: start.elapsed() });
    }
    match place {
        Some(Err(error)) => Err(format!("{error:#}")),
        _ => Ok(()),
    }
}

/// Builds the unit tests and the debug binaries in one go: cargo would build part of the dependencies again for the
/// binaries alone, with fewer of their features.
fn unit(workspace: &Workspace) -> Result<()> {
    let mut build = workspace.cargo();
    build.args(["build", "--quiet", "--tests"]);
    for suite in SUITES {
        if let Work::Debug(binary) = suite.work {
            build.args(["--bin", binary]);
        }
    }
    process::run(&mut build)
}

fn agent(workspace: &Workspace) -> Result<Built> {
    let object = build::object(workspace)?;
    let agent = build::release(workspace, &object)?;
    let binaries = SUITES.iter().filter_map(|suite| match suite.work {
        Work::Binary(binary) => Some(binary),
        _ => None,
    });
    let binaries: Vec<_> = binaries.chain(["traffic"]).collect();
    build::suites(workspace, &object, RELEASE, &binaries)?;
    Ok(Built { object, agent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_elsewhere_take_no_programs_of_clusters() {
        let workspace = Workspace::discover().unwrap();
        let mut runner = Runner::new(&workspace, &[], &[]);
        let needs = |runner: &Runner<'_>, name| {
            runner.needs(SUITES.iter().find(|suite| suite.name == name).unwrap())
        };
        assert!(needs(&runner, END_TO_END).contains(&Purpose::Clusters));
        runner.remote = true;
        assert_eq!(needs(&runner, END_TO_END), [Purpose::Build, Purpose::Remote]);
        assert!(needs(&runner, "api").contains(&Purpose::Clusters));
    }
}
