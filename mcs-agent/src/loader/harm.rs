use std::fmt;

use serde::{Deserialize, Serialize};

/// What others can do to what is ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Harm {
    /// A pin was removed, or something else is there.
    Pin,
    /// The file system with the pins was unmounted, or our directory in it removed.
    Bpffs,
    /// A program was detached from the cgroup.
    Hook,
    /// The cgroup is another one.
    Cgroup,
    /// A program was detached from a network device.
    Device,
}

impl Harm {
    /// Every harm.
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

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Harm that was found, and is repaired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// Of which sort.
    pub harm: Harm,
    /// What was found, and what was done: `the pin X was removed; pinned again`.
    pub what: String,
}
