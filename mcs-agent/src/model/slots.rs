//! How many slots each backend of a frontend has.

use std::iter;

/// The number of slots of each backend of a frontend, in the order of the backends. A new client gets each slot of the
/// frontend equally often.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots(Option<Box<[u32]>>);

impl Slots {
    /// One slot for each backend.
    pub const ONE_EACH: Self = Self(None);

    /// So many slots for each backend.
    pub fn new(counts: impl IntoIterator<Item = u32>) -> Self {
        let counts: Box<[u32]> = counts.into_iter().collect();
        Self(counts.iter().any(|count| *count != 1).then_some(counts))
    }

    /// Those of so many backends.
    pub fn counts(&self, backends: usize) -> impl Iterator<Item = u32> {
        let given = self.0.as_deref().unwrap_or_default();
        given.iter().copied().chain(iter::repeat(1)).take(backends)
    }

    /// All slots of so many backends.
    pub fn total(&self, backends: usize) -> usize {
        match &self.0 {
            None => backends,
            Some(counts) => counts.iter().map(|count| *count as usize).sum(),
        }
    }
}
