//! The shared part of the command lines of `mcs-agent trace` and `mcs trace`.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::duration;

/// The longest trace.
const LONGEST: Duration = Duration::from_hours(1);

/// How decisions are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TraceFormat {
    /// For people, in 80 columns
    Table,
    /// The same uncut, with pods
    Wide,
    /// A line for each, for programs; fields are added, never renamed
    Json,
}

/// What becomes of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It goes to a backend
    Translated,
    /// It fails at once
    Refused,
    /// Its packet is dropped without an answer
    Dropped,
    /// Its packets pass as they are: its connection is older than the agent's service of the VIP
    Passed,
}

/// Reads how long a trace lasts.
///
/// # Errors
/// It is no duration, or more than an hour.
pub fn trace_duration(text: &str) -> Result<Duration, &'static str> {
    let parsed = duration(text).filter(|one| *one <= LONGEST);
    parsed.ok_or("write a duration of at most 1h, such as 90s or 5m")
}
