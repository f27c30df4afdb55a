//! `--max-flows`.

use serde::{Deserialize, Serialize};

/// `--max-flows`: the flows that the table has room for. The kernel allocates all of it at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowCapacity(pub u32);

impl Default for FlowCapacity {
    fn default() -> Self {
        Self(65_536)
    }
}

impl FlowCapacity {
    /// The capacity of a table with this many entries.
    pub const fn of(entries: u32) -> Self {
        Self(entries / 2)
    }

    /// Entries of the map `flows`: one for each direction.
    pub const fn entries(self) -> u32 {
        self.0.saturating_mul(2)
    }
}
