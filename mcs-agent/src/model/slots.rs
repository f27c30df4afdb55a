//! How many slots each backend of a frontend has.

use std::iter;

/// The number of slots of each backend of a frontend, in the order of the backends. A new client gets each slot of the
/// frontend equally often.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots(Option<Box<[u32]>>);

impl Slots {
    /// One slot for each backend.
    pub const ONE_EACH: Self = Self(None);

    /// The number of slots of each backend, in their order.
    pub fn new(counts: impl IntoIterator<Item = u32>) -> Self {
        let counts: Box<[u32]> = counts.into_iter().collect();
        Self(counts.iter().any(|count| *count != 1).then_some(counts))
    }

    /// The number of slots of each of `backends` backends.
    pub fn counts(&self, backends: usize) -> impl Iterator<Item = u32> {
        let given = self.0.as_deref().unwrap_or_default();
        given.iter().copied().chain(iter::repeat(1)).take(backends)
    }

    /// The number of slots of all `backends` backends.
    pub fn total(&self, backends: usize) -> usize {
        match &self.0 {
            None => backends,
            Some(counts) => counts.iter().map(|count| *count as usize).sum(),
        }
    }
}
