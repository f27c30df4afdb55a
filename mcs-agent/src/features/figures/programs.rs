//! Figures of imports: what the programs count by import and source cluster.
//!
//! An import has a row in the map of the programs as long as it exists. A source cluster that was seen keeps its column.

mod kernel;
mod names;
mod places;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::{kernel::FigureMap, names::Names};
pub(super) use self::{
    names::{Counts, Labels},
    places::FigurePlaces,
};

/// Figures by two labels, the first of which is an import.
pub(crate) type ByImport<T> = Vec<([Arc<str>; 2], T)>;

/// The figures, which threads that serve metrics read.
pub(crate) struct Figures(Mutex<NamedFigures>);

struct NamedFigures {
    map: FigureMap,
    names: Names,
}

impl Figures {
    /// Every count that is not zero.
    pub(crate) fn counts(&self) -> Counts {
        let NamedFigures { map, names } = &*self.lock();
        names.counts(|row| map.row(row).ok())
    }

    /// The imports and source clusters with figures of their own now.
    pub(crate) fn labels(&self) -> Labels {
        self.lock().names.labels()
    }

    /// How many imports have no figures of their own.
    pub(crate) fn without_row(&self) -> usize {
        self.lock().names.without_row
    }

    fn lock(&self) -> MutexGuard<'_, NamedFigures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
