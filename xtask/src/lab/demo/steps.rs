//! The steps of the demonstration. Each checks what it shows.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use super::{
    example::{BACKENDS, Host},
    world::World,
};
use crate::{interrupt::Interrupt, screen::Screen};

mod bypass;
mod departure;
mod inside;
mod refusal;
mod spread;
mod tool;

/// What every step works with.
pub(super) struct Stage<'a> {
    pub(super) screen: &'a Screen,
    pub(super) interrupt: &'a Interrupt,
    pub(super) world: &'a World,
}

type Step = fn(&Stage<'_>) -> Result<()>;

const STEPS: [(&str, Step); 7] = [
    ("Requests to the ClusterSetIP reach the pods of both clusters", spread::show),
    ("A pod whose sockets the agent does not see: its packets are translated", bypass::show),
    ("What the agent has made of the manifests", inside::frontends),
    ("A pod of west goes away while clients keep asking", departure::show),
    ("The last pod goes away: clients are refused at once", refusal::show),
    ("The pods come back", spread::again),
    ("How to look inside", inside::status),
];

impl Stage<'_> {
    /// Shows every step, and stops at the first that does not show what it should.
    pub(super) fn play(&self) -> Result<()> {
        for (index, (title, step)) in STEPS.into_iter().enumerate() {
            self.interrupt.check()?;
            let number = index + 1;
            self.screen.title(&format!("{number}. {title}"));
            step(self).with_context(|| format!("step {number} ({title})"))?;
        }
        self.interrupt.check()
    }
}

/// All pods behind the service but those `gone`.
fn all_but(gone: &[Host]) -> BTreeSet<Host> {
    BACKENDS.into_iter().filter(|pod| !gone.contains(pod)).collect()
}
