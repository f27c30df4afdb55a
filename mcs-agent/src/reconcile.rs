//! From what the rules want to what the maps hold: "index, block, flip, retire".
//!
//! A hash map is no place for what changes: while an existing key is updated, look-ups miss it, and
//! a deleted element is reused under those who still read it. So a frontend's key leads to an
//! index that stays, the index to one 64-bit word, and that word to a block of backend ids. A change
//! writes a free block and then stores the word. Whatever was let go is written again only after
//! every reader that may still hold it is through ([`Step::WaitForReaders`]).
//!
//! Everything here is synchronous and pure but for [`Maps`], behind which the kernel or a model of
//! it stands.

mod apply;
mod audit;
pub mod convert;
mod dump;
mod extents;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod invariants;
mod ledger;
mod listing;
mod maps;
mod memory;
mod names;
mod pages;
mod plan;
mod realized;
mod step;

pub use apply::{Applied, ApplyError, apply};
pub use audit::{Audit, Contents, Slice, pass_entries, repaired};
pub use dump::Dump;
pub use listing::Listing;
pub use maps::{MapError, Maps, Operation};
pub use memory::{Faulty, MemoryMaps};
pub use pages::Pages;
pub use plan::{Deferred, Plan, Shortage, Subject, plan, plan_within};
pub use realized::{Damage, Finding, Realized};
pub use step::Step;
