//! Situations: manifests in, what clients find and what `status` says out.
//!
//! A file of `tests/scenarios` tells one, step by step:
//!
//! ```text
//! # What it is about.
//!
//! -- node --
//! flags of `mcs-agent run`, and addresses of the node, as YAML
//!
//! -- write web.yaml --
//! a manifest
//!
//! -- delete web.yaml --
//!
//! # Flows use these VIPs from now on, and no others: none at first.
//! -- flows 10.96.0.1 --
//!
//! # So many seconds pass.
//! -- wait 300 --
//!
//! # The agent ends, or dies halfway; another takes over.
//! -- restart --
//! -- crash --
//!
//! # The agent reads and writes; what fails is left to the next step.
//! -- try once --
//!
//! # The agent reads and writes until all is done. Then there is this, and nothing else:
//! -- expect --
//! what clients find, and what `status` says
//!
//! # It does the same, and all is as it was.
//! -- expect no change --
//! ```
//!
//! What is written between two of the last four is one burst. Each scenario is played once as it is,
//! once with maps that are small at first, and again with writes to the maps that fail, at random
//! places that follow from a seed.
//! After every single write all that clients may look up is looked up, by the code of the programs.
//!
//! `MCS_BLESS=1 cargo run --package mcs-tests --bin scenario` writes what comes out into the files.

mod agent;
mod file;
mod messages;
mod node;
mod objects;
mod play;
mod watched;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Parser as _;
use mcs_agent::core::model::Capacity;
use tempfile::TempDir;

pub use self::watched::Backing;
use self::{file::Scenario, messages::Answer, objects::Story, play::play};
use crate::{
    fuzz::{Regressions, fuzz},
    script::{Outcomes, files},
    suite::{Args, Suite, tell},
};

/// Of 1000 writes to the maps, how many fail when some are to fail.
const FAULTS_PER_MILLE: u16 = 100;

/// How many answers of an API server are tried, unless [`fuzz`] is given time.
const MESSAGES: u32 = 2_000;

/// Which writes to the maps fail, and how large these are at first.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    per_mille: u16,
    seed: u64,
    /// They grow from here. `None`: they are as large as they may become.
    first: Option<Capacity>,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Each scenario is played once without faults, and once with each of so many seeds.
    pub seeds: u64,
    /// How often random objects come and go, unless [`fuzz`] is given time.
    pub stories: u32,
    /// Every second play begins with maps of this capacity, which grow.
    pub first: Capacity,
}

/// Plays every scenario of `tests/scenarios`, and random ones besides. `begin` is that of
/// [`Suite::run`].
pub fn main<C: 'static, M: Backing + 'static>(
    effort: Effort,
    begin: impl FnOnce() -> anyhow::Result<(C, PathBuf)> + 'static,
    new_maps: fn(&C, Capacity) -> anyhow::Result<M>,
) -> ExitCode {
    let files = match files("scenarios") {
        Ok(files) => files,
        Err(error) => {
            println!("cannot begin: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let Effort { seeds, stories, first } = effort;
    let (count, plays) = (files.len(), seeds + 2);
    let mut suite = Suite::default();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        suite.case(name, move |context| {
            check(&path, effort, |capacity| new_maps(context, capacity))
        });
    }
    suite.case("fuzz: objects of every sort, in any order", move |context| {
        let story = |story: Story| story.play(&|capacity| new_maps(context, capacity), first);
        fuzz(Regressions::OBJECTS, stories, &Story::any(), story)
    });
    suite.case("fuzz: messages of an API server, whole and damaged", move |_| {
        fuzz(Regressions::MESSAGES, MESSAGES, &Answer::any(), Answer::check)
    });
    suite.run(Args::parse(), move || {
        tell(format!(
            "{count} scenarios, each played {plays} times: once as it is, once with maps that grow, then with 10 % faults"
        ));
        begin()
    })
}

fn check<M: Backing>(
    path: &Path,
    Effort { seeds, first, .. }: Effort,
    new_maps: impl Fn(Capacity) -> anyhow::Result<M>,
) -> anyhow::Result<()> {
    let mut scenario = Scenario::read(path)?;
    let outcomes = scenario.play(&new_maps, Faults::default())?;
    if env::var_os("MCS_BLESS").is_some() {
        scenario.bless(&outcomes)?;
        scenario = Scenario::read(path)?;
    }
    scenario.compare(&outcomes)?;
    let growing = Faults { first: Some(first), ..Faults::default() };
    scenario
        .play(&new_maps, growing)
        .and_then(|outcomes| scenario.compare(&outcomes))
        .context("with maps that grow")?;
    for seed in 1..=seeds {
        let first = (seed % 2 == 1).then_some(first);
        let faults = Faults { per_mille: FAULTS_PER_MILLE, seed, first };
        scenario
            .play(&new_maps, faults)
            .and_then(|outcomes| scenario.compare(&outcomes))
            .with_context(|| format!("with failing writes, seed {seed}"))?;
    }
    Ok(())
}

impl Scenario {
    fn play<M: Backing>(
        &self,
        new_maps: impl FnOnce(Capacity) -> anyhow::Result<M>,
        faults: Faults,
    ) -> anyhow::Result<Outcomes> {
        let directory = TempDir::with_prefix("mcs-play-")?;
        play(self, directory.path(), new_maps, faults)
    }
}
