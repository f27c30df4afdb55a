//! Whether pods of other clusters are reached: which of them to connect to, the connections, and what follows from several
//! rounds of them.
//!
//! A connection is opened and closed. Nothing is sent over it.

mod choice;
mod connect;
mod way;

use clap::ValueEnum;

pub use self::{
    choice::Sample,
    connect::{Attempt, Outcome, TIMEOUT, connect, connect_all},
    way::{REACHED_ROUNDS, SILENT_ROUNDS, Way},
};

/// Whether pods of other clusters are connected to: `--probe-peers` of every program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProbePeers {
    /// A few, again and again
    On,
    /// None
    Off,
}
