//! What the engine needs of the config maps: writes, a copy of what they hold, and how large they are.

use crate::{model::Capacity, reconcile::Maps};

/// Config maps of a known capacity.
pub trait SizedMaps: Maps {
    /// What they have room for.
    fn capacity(&self) -> Capacity;
}
