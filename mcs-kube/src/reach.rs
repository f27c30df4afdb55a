//! Probes of pods of other clusters: the choice of endpoints, the connections, and the judgement of several rounds.
//!
//! A connection is opened and closed; nothing is sent, but to a controller that is asked for the source address.

mod choice;
mod connect;
pub mod dns;
pub mod source;
mod way;

use clap::ValueEnum;

pub use self::{
    choice::Sample,
    connect::{Attempt, Outcome, TIMEOUT, connect, connect_all},
    way::{REACHED_ROUNDS, SILENT_ROUNDS, Way},
};

/// `--probe-peers` of every program: whether it connects to pods of other clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProbePeers {
    /// A few, again and again
    On,
    /// None
    Off,
}
