//! Figures of imports: what the programs count by import and source cluster, and how many backends there are.
//!
//! Each import has a row in the map of the programs, and each source cluster a column. Another import or cluster can get the
//! row or column later. The counts until then are subtracted.

mod keeper;
mod names;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcs_common::FigureRow;

use self::names::Names;
pub(super) use self::{keeper::FigureKeeper, names::Counts};
use crate::{
    dataplane::FigureMap,
    model::{ClusterRun, DesiredState, Ejection},
};

/// Figures by import and source cluster.
pub(super) type ByImport<T> = Vec<([Arc<str>; 2], T)>;

/// The figures, for the threads that serve metrics.
pub(super) struct Figures {
    map: FigureMap,
    names: Mutex<Names>,
    backends: Mutex<ByImport<usize>>,
}

impl Figures {
    fn new(map: FigureMap, rows: u32) -> Self {
        Self { map, names: Mutex::new(Names::new(rows as usize)), backends: Mutex::default() }
    }

    /// Every count that is not zero.
    pub(super) fn counts(&self) -> Counts {
        let indices = self.names().used();
        // Before the names: what gets another name meanwhile has no count at all.
        let rows: Vec<_> =
            indices.into_iter().filter_map(|row| Some((row, self.map.row(row).ok()?))).collect();
        self.names().counts(&rows)
    }

    /// The backends of imports that clients of this node use.
    pub(super) fn backends(&self, counts: &Counts) -> ByImport<usize> {
        let used = counts.imports();
        let all = lock(&self.backends).clone();
        all.into_iter().filter(|([import, _], _)| used.contains(&**import)).collect()
    }

    /// Notes the backends of all imports. Each counts once for each of its frontends.
    pub(super) fn note_backends(&self, desired: &DesiredState) {
        let labels = self.names().labels();
        let mut backends = BTreeMap::new();
        let frontends: Vec<_> = desired.frontends.values().collect();
        // Those of a VIP follow each other.
        for of_import in frontends.chunk_by(|one, next| one.import == next.import) {
            let import = labels.import(&of_import[0].import);
            let runs = of_import.iter().flat_map(|frontend| frontend.clusters());
            for ClusterRun { cluster, backends: count } in runs {
                let label = [Arc::clone(&import), labels.cluster(cluster)];
                *backends.entry(label).or_default() += count;
            }
        }
        *lock(&self.backends) = backends.into_iter().collect();
    }

    /// How many backends are ejected.
    pub(super) fn ejected(&self, ejections: &[Ejection]) -> ByImport<usize> {
        let labels = self.names().labels();
        let out = ejections.iter().filter(|one| one.is_out());
        out.map(|one| ([labels.import(&one.import), labels.cluster(&one.cluster)], 1)).collect()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Counts that cannot be read hide the place for ever: that is better than a wrong count.
    fn row(&self, index: u32) -> FigureRow {
        self.map.row(index).unwrap_or(FigureRow { counts: [u64::MAX; FigureRow::COLUMNS as usize] })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
