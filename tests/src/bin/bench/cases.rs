//! What is measured.

use std::time::Duration;

use crate::{plan::Plan, session::Session};

mod connect;

/// Something to measure at each number of services.
pub(crate) struct Case {
    /// As it is written on the command line.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// How long it is thought to take at so many services.
    pub(crate) time: fn(&Plan, u32) -> Duration,
    pub(crate) run: fn(&mut Session<'_>) -> anyhow::Result<()>,
}

pub(crate) const CASES: [&Case; 1] = [&connect::CASE];
