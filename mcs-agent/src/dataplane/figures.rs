//! Figures of imports: what the programs count by import and source cluster.
//!
//! Each import has a row in the map of the programs, and each source cluster a column. Another import or cluster can get the
//! row or column later. The counts until then are subtracted.

mod kernel;
mod names;
mod places;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcs_common::FigureRow;

use self::{kernel::FigureMap, names::Names};
pub use self::{
    names::{Counts, Labels},
    places::FigurePlaces,
};

/// Figures by two labels, the first of which is an import.
pub type ByImport<T> = Vec<([Arc<str>; 2], T)>;

/// The figures, for threads that do not write the maps.
pub struct Figures {
    map: FigureMap,
    names: Mutex<Names>,
}

impl Figures {
    fn new(map: FigureMap, rows: u32, names: [&str; 2]) -> Self {
        Self { map, names: Mutex::new(Names::new(rows as usize, names)) }
    }

    /// Every count that is not zero.
    pub fn counts(&self) -> Counts {
        let indices = self.names().used();
        // Read before the names: a row that gets another name meanwhile has no count at all.
        let rows: Vec<_> =
            indices.into_iter().filter_map(|row| Some((row, self.map.row(row).ok()?))).collect();
        self.names().counts(&rows)
    }

    /// The imports and source clusters with figures of their own now.
    pub fn labels(&self) -> Labels {
        self.names().labels()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// If counts cannot be read, the row shows none for ever, instead of a wrong count.
    fn row(&self, index: u32) -> FigureRow {
        self.map.row(index).unwrap_or(FigureRow { counts: [u64::MAX; FigureRow::COLUMNS as usize] })
    }
}
