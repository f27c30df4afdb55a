//! Shows the removal of a pod under load.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{Stage, all_but};
use crate::demo::{
    example::{BACKENDS, Host},
    tally::{Tally, table},
    traffic::{self, Sample},
};

/// The pod that goes.
pub(super) const LEAVER: Host = BACKENDS[3];

/// How long clients ask before and after.
const WHILE: Duration = Duration::from_secs(1);
/// What a pod gets to finish what it has begun.
const GRACE: Duration = Duration::from_millis(500);

/// When the slices lost the pod, and when the maps had.
struct Change {
    written: Instant,
    applied: Instant,
}

/// Clients in every way notice nothing.
pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    stage.screen.progress("clients of every kind above ask all the time");
    let (change, samples) = traffic::during(stage.world, || leave(stage))?;
    let milliseconds = (change.applied - change.written).as_millis();
    stage.screen.progress(format!(
        "{} requests; the maps had changed {milliseconds} ms after the slices",
        samples.len()
    ));
    let [before, between, after] = split(&change, samples);
    stage.screen.block(&table([
        ("before".to_owned(), &before),
        ("while it changes".to_owned(), &between),
        ("after".to_owned(), &after),
    ]));
    before.expect_spread_over(&BACKENDS.into()).context("before")?;
    between.expect_no_failure().context("while it changes")?;
    after.expect_spread_over(&rest()).context("after")
}

fn rest() -> BTreeSet<Host> {
    all_but(&[LEAVER])
}

fn leave(stage: &Stage<'_>) -> Result<Change> {
    let Stage { screen, interrupt, world } = stage;
    interrupt.sleep(WHILE)?;
    screen.progress(format!("{LEAVER} leaves the EndpointSlices imported from west"));
    let written = Instant::now();
    world.manifests.remove(LEAVER)?;
    world.wait_for(&rest())?;
    let applied = Instant::now();
    interrupt.sleep(GRACE)?;
    screen.progress(format!("{LEAVER} is killed"));
    world.clusters.pod(LEAVER)?.stop();
    interrupt.sleep(WHILE)?;
    Ok(Change { written, applied })
}

/// What was asked before the change, between and after.
fn split(change: &Change, samples: Vec<Sample>) -> [Tally; 3] {
    let mut tallies = [(); 3].map(|()| Tally::default());
    for Sample { began, ended, answer } in samples {
        let index = if ended <= change.written {
            0
        } else if began < change.applied {
            1
        } else {
            2
        };
        tallies[index].add(answer);
    }
    tallies
}
