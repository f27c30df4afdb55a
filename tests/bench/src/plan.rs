//! The amount of work of a run: services, rounds, operations.

use crate::prelude::*;

/// Endpoints of each service.
pub(crate) const ENDPOINTS: u32 = 10;

/// How much is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// Numbers of services, ascending.
    pub(crate) sizes: Vec<u32>,
    /// How often each contender has its turn.
    pub(crate) rounds: u32,
    /// Operations that are timed in a turn, where they take microseconds.
    pub(crate) operations: u32,
    /// A turn that counts bytes.
    pub(crate) bulk: Duration,
    /// Changes that are waited for one by one.
    pub(crate) changes: u32,
    /// How long changes come at a rate.
    pub(crate) rate_span: Duration,
}

impl Plan {
    /// The plan of a complete run.
    pub(crate) fn full() -> Self {
        Self {
            sizes: vec![10, 1000, 10_000],
            rounds: 21,
            operations: 2000,
            bulk: Duration::from_millis(500),
            changes: 300,
            rate_span: Duration::from_secs(30),
        }
    }

    /// What takes less than ten minutes.
    pub(crate) fn quick() -> Self {
        Self {
            sizes: vec![10, 1000],
            rounds: 3,
            operations: 500,
            bulk: Duration::from_millis(200),
            changes: 100,
            rate_span: Duration::from_secs(4),
        }
    }
}
