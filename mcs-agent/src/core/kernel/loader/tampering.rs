//! What other processes can do to the agent's pins and attachments.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A change that another process made to a pin or an attachment of the agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tampering {
    /// A pin was removed, or something else is there.
    Pin,
    /// The file system with the pins was unmounted, or our directory in it removed.
    Bpffs,
    /// A program was detached from the cgroup.
    Hook,
    /// The cgroup was removed, and made again.
    Cgroup,
    /// A program was detached from a network device.
    Device,
}

impl Tampering {
    /// Every sort.
    pub const ALL: [Self; 5] = [Self::Pin, Self::Bpffs, Self::Hook, Self::Cgroup, Self::Device];

    /// As metrics and `status` write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::Bpffs => "bpffs",
            Self::Hook => "hook",
            Self::Cgroup => "cgroup",
            Self::Device => "device",
        }
    }
}

impl fmt::Display for Tampering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Tampering that the agent has found and repaired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// Its sort.
    pub tampering: Tampering,
    /// What was found, and what was done: `the pin X was removed; pinned again`.
    pub what: String,
}
