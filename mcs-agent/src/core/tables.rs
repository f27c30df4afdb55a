//! Plans and writes the config maps: from the desired state to the entries that the programs read.
//!
//! A hash map does not suit what changes: while a key is updated, look-ups miss it, and the kernel reuses
//! a deleted element while programs may still read it. So the key of a frontend leads to an index that
//! never changes, the index to one 64-bit word (the extent), and the extent to a block of backend ids.
//! A change writes a free block and then stores the word ([`Step::Flip`]). The agent overwrites released
//! entries only after a grace period ([`Step::WaitForReaders`]).
//!
//! Everything here is synchronous and pure, except [`Maps`]: the kernel implements it, and a model in
//! memory for tests.

mod allocations;
mod audit;
pub mod contents;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod invariants;
mod maps;
mod plan;
mod realized;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod view;

pub use audit::{Comparison, Entry, audited_maps, compare};
pub use contents::{MapContents, NameMap, NameRecord, OfNameMaps};
pub use maps::{ApplyError, MapError, MapReader, Maps, Step, apply};
pub use plan::{Deferred, Plan, Planned, Pruning, Shortage, plan, plan_within};
pub use realized::{Damage, DamagedFrontend, Realized};
pub use shared::{Pages, SharedMap};
pub use view::{BackendView, FrontendStatus, FrontendView, MapView, frontends_of};
