//! What the engine needs of the config maps: writes, a copy of what they hold, and larger maps.

use crate::{model::Capacity, reconcile::Maps};

/// Config maps that can move to a larger capacity.
///
/// Programs read the maps while they are written. A move therefore has two parts: larger maps are
/// made with the same entries at the same indexes, and then every program is switched to them.
pub trait GrowableMaps: Maps {
    /// The capacity of the maps that are written now.
    fn capacity(&self) -> Capacity;

    /// Makes maps of this capacity with the same entries. [`GrowableMaps::finish_switch`] is due
    /// next. Until it returns true, each write goes to both the former and the new maps.
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()>;

    /// Continues a switch to larger maps. Returns whether none is under way any more: then
    /// [`GrowableMaps::capacity`] is that of the maps that all programs read.
    fn finish_switch(&mut self) -> anyhow::Result<bool>;

    /// The maps now contain everything that is desired, so programs may be switched to them.
    fn filled(&mut self) -> anyhow::Result<()>;
}
