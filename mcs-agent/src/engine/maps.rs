//! What the engine needs of the config maps: writes, a copy of what they hold, and larger maps.

use crate::{
    model::Capacity,
    reconcile::{MapContents, Maps},
};

/// Config maps that can move to a larger capacity.
///
/// Programs read the maps while they are written. A move therefore has two parts: larger maps are
/// made with the same entries at the same indexes, and then every program is switched to them. Writes go on during both.
pub trait GrowableMaps: Maps {
    /// The capacity of the maps that are written now.
    fn capacity(&self) -> Capacity;

    /// May begin to do what [`GrowableMaps::grow`] does, which follows with this or another capacity, or not at all. A write
    /// before that makes it void.
    fn prepare(&mut self, _capacity: Capacity, _contents: &MapContents) {}

    /// Begins to make maps of this capacity that hold `contents`, which is what the maps hold now, and every write
    /// from now on. [`GrowableMaps::finish_making`] is due next.
    fn grow(&mut self, capacity: Capacity, contents: &MapContents) -> anyhow::Result<()>;

    /// Whether no larger maps are being made; with `wait` this blocks until then. Once they are made,
    /// [`GrowableMaps::finish_switch`] is due. Until that returns true, each write goes to both the former and the new maps.
    ///
    /// # Errors
    ///
    /// Larger maps could not be made. The former maps are still right, and alone again.
    fn finish_making(&mut self, _wait: bool) -> anyhow::Result<bool> {
        Ok(true)
    }

    /// Continues a switch to larger maps. Returns whether none is under way any more: then
    /// [`GrowableMaps::capacity`] is that of the maps that all programs read.
    fn finish_switch(&mut self) -> anyhow::Result<bool>;

    /// The maps now contain everything that is desired, so programs may be switched to them.
    fn filled(&mut self) -> anyhow::Result<()>;
}
