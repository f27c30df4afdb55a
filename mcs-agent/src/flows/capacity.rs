use serde::{Deserialize, Serialize};

/// `--max-flows`: how many flows are remembered at a time. The flow table is allocated whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowCapacity(pub u32);

impl Default for FlowCapacity {
    fn default() -> Self {
        Self(65_536)
    }
}

impl FlowCapacity {
    /// What a table with this many entries has room for.
    pub const fn of(entries: u32) -> Self {
        Self(entries / 2)
    }

    /// Entries of `flows`: one for each direction.
    pub const fn entries(self) -> u32 {
        self.0.saturating_mul(2)
    }
}
