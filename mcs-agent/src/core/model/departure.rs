//! VIPs that have departed: no import asks for them any more, and the maps keep them for a while.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the programs do with an address that was a VIP. Packets of its flows go on to their backends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// Another dataplane may serve the address: the programs leave everything else to it.
    HandedBack,
    /// The import was deleted, and nobody else can have the address: the programs refuse everything else.
    Gone,
}

impl Departure {
    /// What it means for clients.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::HandedBack => {
                "another dataplane may serve it; flows go on to their backends until they end"
            }
            Self::Gone => "its import was deleted; new connections are refused for five minutes",
        }
    }

    /// The name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HandedBack => "handed_back",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HandedBack => "handed back",
            Self::Gone => "gone",
        })
    }
}
