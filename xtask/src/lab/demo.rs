//! `cargo xtask demo`: two clusters on this machine, and the agent at work between them.

use std::{
    env, fs, mem,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use mcs_tests::run::remove_leftovers;

use self::{
    steps::Stage,
    world::{PREFIX, World},
};
use crate::{
    build,
    interrupt::{INTERRUPTED, Interrupt},
    screen::{Screen, say},
    setup::{self, Purpose},
    workspace::Workspace,
};

mod client;
mod clusters;
mod example;
mod explore;
mod manifests;
pub(crate) mod pod;
mod record;
mod steps;
mod tally;
mod traffic;
mod world;

/// Lines of the agent's log to show after a failure.
const LOG_LINES: usize = 20;

/// Show the agent at work, on this machine alone
///
/// Makes two clusters of network namespaces with flat routing between their pods, runs the agent on deploy/examples,
/// and checks all that it shows. Takes root, and leaves nothing behind, also after Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave everything in place in the end, and print commands to try
    #[arg(long)]
    keep: bool,
    /// Write demo.cast and demo.svg to this directory
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    record: Option<PathBuf>,
    /// Remove what was left in place, and show nothing
    #[arg(long, conflicts_with = "keep")]
    clean: bool,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "error: cargo xtask demo takes root, to make network namespaces and load eBPF programs"
        );
        return Ok(ExitCode::from(2));
    }
    if args.clean {
        remove_leftovers(PREFIX)?;
        say("Nothing is left of earlier runs.");
        return Ok(ExitCode::SUCCESS);
    }
    setup::ensure(workspace, &[Purpose::Demo])?;
    let screen = Screen::new();
    let agent = if let Some(agent) = env::var_os("MCS_AGENT") {
        // The world runs that one.
        agent.into()
    } else {
        screen.progress("building the agent");
        build::release(workspace, &build::object(workspace)?)?
    };

    let interrupt = Interrupt::listen().context("cannot handle signals")?;
    let shown = match &args.record {
        Some(directory) => record(workspace, &interrupt, directory),
        None => show(workspace, &screen, &interrupt, args.keep.then_some(&agent)),
    };
    match shown {
        Err(_) if interrupt.came() => {
            screen.progress("interrupted; everything is removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        shown => shown.map(|()| ExitCode::SUCCESS),
    }
}

/// Plays the steps in a world of their own, which goes in the end unless `keep` tells where the
/// agent is.
fn show(
    workspace: &Workspace,
    screen: &Screen,
    interrupt: &Interrupt,
    keep: Option<&PathBuf>,
) -> Result<()> {
    let world = World::create(workspace, screen, interrupt)?;
    let played = Stage { screen, interrupt, world: &world }.play();
    if interrupt.came() {
        return played;
    }
    let outcome = if played.is_ok() {
        "every step has shown what it should"
    } else {
        screen.block(&format!("The agent's log ends so:\n{}", last_lines(&world.log())));
        "a step has failed"
    };
    if let Some(agent) = keep {
        screen.progress(format!("{outcome}; everything stays in place"));
        screen.title("To try");
        screen.block(&explore::commands(&world, agent));
        mem::forget(world);
    } else {
        screen.progress(format!("{outcome}; removing everything"));
    }
    played
}

/// Plays the steps, and writes what they print.
fn record(workspace: &Workspace, interrupt: &Interrupt, directory: &Path) -> Result<()> {
    let screen = Screen::new();
    let world = World::create(workspace, &screen, interrupt)?;
    let stage = Stage { screen: &screen, interrupt, world: &world };
    stage.play()?;
    record::write_terminal(&screen.take_printed(), directory)?;
    screen.progress(format!("{} has demo.cast and demo.svg", directory.display()));
    Ok(())
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_else(|error| error.to_string());
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
