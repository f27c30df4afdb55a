//! What is measured.

use crate::prelude::*;

pub(crate) mod cold;
pub(crate) mod connect;
pub(crate) mod exchange;
pub(crate) mod programming;
pub(crate) mod programs;
mod rolling;
mod tax;

/// With how many services something is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sizes {
    Each,
    /// With the most alone.
    Largest,
}

impl Case {
    /// Whether the case runs with this number of services.
    pub(crate) fn is_run_at(&self, plan: &Plan, services: u32) -> bool {
        self.sizes == Sizes::Each || plan.sizes.last() == Some(&services)
    }
}

/// Something to measure at each number of services.
pub(crate) struct Case {
    /// As it is written on the command line.
    pub(crate) name: &'static str,
    /// How to read what it measures.
    pub(crate) note: &'static str,
    pub(crate) sizes: Sizes,
    /// Whom it is about.
    pub(crate) contenders: &'static [Contender],
    /// The time that the case is expected to take with this number of services.
    pub(crate) time: fn(&Plan, u32) -> Duration,
    pub(crate) run: fn(&mut Session<'_>) -> Result,
}

pub(crate) const CASES: [&Case; 7] = [
    &connect::CASE,
    &exchange::CASE,
    &tax::CASE,
    &programs::CASE,
    &programming::CASE,
    &rolling::CASE,
    &cold::CASE,
];
