//! Figures of imports for the metrics: the counts of the programs, and how many backends there are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    dataplane::{ByImport, Figures, ImportCounts},
    model::{ClusterRun, DesiredState, Ejection},
    passive::FailedConnects,
};

/// The figures, for the threads that serve metrics.
pub(super) struct ImportFigures {
    pub(super) programs: Arc<Figures>,
    backends: Mutex<ByImport<usize>>,
    failed: Mutex<BTreeMap<[Arc<str>; 2], u64>>,
}

impl ImportFigures {
    /// With those of the programs.
    pub(super) fn new(programs: Arc<Figures>) -> Self {
        Self { programs, backends: Mutex::default(), failed: Mutex::default() }
    }

    /// The backends of imports that have counts.
    pub(super) fn backends(&self, counts: &ImportCounts) -> ByImport<usize> {
        let used = counts.imports();
        let all = self.backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.into_iter().filter(|([import, _], _)| used.contains(&**import)).collect()
    }

    /// Notes the backends of all imports. Each counts once for each of its frontends.
    pub(super) fn note_backends(&self, desired: &DesiredState) {
        let labels = self.programs.labels();
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
        let backends = backends.into_iter().collect();
        *self.backends.lock().unwrap_or_else(PoisonError::into_inner) = backends;
    }

    /// Adds failed connects. What has no place of its own any more is forgotten.
    pub(super) fn note_failed(&self, failed: &[FailedConnects]) {
        if failed.is_empty() {
            return;
        }
        let labels = self.programs.labels();
        let mut counts = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|[import, cluster], _| labels.has(import, cluster));
        for FailedConnects { import, cluster, count } in failed {
            *counts.entry([labels.import(import), labels.cluster(cluster)]).or_default() += count;
        }
    }

    /// How many connects to watched backends have failed.
    pub(super) fn failed(&self) -> ByImport<u64> {
        let labels = self.programs.labels();
        let counts = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        counts.into_iter().filter(|([import, cluster], _)| labels.has(import, cluster)).collect()
    }

    /// How many backends are ejected. Series with the same labels add up.
    pub(super) fn ejected(&self, ejections: &[Ejection]) -> ByImport<usize> {
        let labels = self.programs.labels();
        let out = ejections.iter().filter(|one| one.is_out());
        out.map(|one| ([labels.import(&one.import), labels.cluster(&one.cluster)], 1)).collect()
    }
}
