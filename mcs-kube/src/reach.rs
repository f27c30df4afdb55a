//! Every probe of the programs: connections to an address or a name, questions to DNS servers, the source address that the other
//! end sees, a large answer, full packets; and of pods of other clusters the choice of endpoints, and the judgement of several rounds.
//!
//! A connection is opened and closed; nothing is sent, but to a controller that is asked for the source address.
//! Echo requests go to the kernel of a pod.

mod choice;
mod connect;
pub mod dns;
mod echo;
pub mod source;
mod targets;
mod way;

use clap::ValueEnum;

pub use self::{
    choice::Sample,
    connect::{Attempt, Outcome, TIMEOUT, connect, connect_all},
    targets::{Found, Target, Targets},
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
