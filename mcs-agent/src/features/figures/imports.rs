//! Figures of imports for the metrics: the counts of the programs, and how many backends there are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{ByImport, Counts, Figures};
use crate::core::{
    control::{
        metrics::{Families, figure},
        report::Report,
    },
    feature::Collect,
    model::{ClusterRun, DesiredState, Ejection, FailedConnects},
};

/// The figures, for the threads that serve metrics.
pub(crate) struct ImportFigures {
    pub(crate) programs: Arc<Figures>,
    backends: Mutex<ByImport<usize>>,
    failed: Mutex<BTreeMap<[Arc<str>; 2], u64>>,
}

impl ImportFigures {
    /// With those of the programs.
    pub(crate) fn new(programs: Arc<Figures>) -> Self {
        Self { programs, backends: Mutex::default(), failed: Mutex::default() }
    }

    /// The backends of imports that have counts.
    pub(crate) fn backends(&self, counts: &Counts) -> ByImport<usize> {
        let used = counts.imports();
        let all = self.backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.into_iter().filter(|([import, _], _)| used.contains(&**import)).collect()
    }

    /// Notes the backends of all imports. Each counts once for each of its frontends.
    pub(crate) fn note_backends(&self, desired: &DesiredState) {
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

    /// How many connects to watched backends have failed.
    pub(crate) fn failed(&self) -> ByImport<u64> {
        let labels = self.programs.labels();
        let counts = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        counts.into_iter().filter(|([import, cluster], _)| labels.has(import, cluster)).collect()
    }

    /// How many backends are ejected. Series with the same labels add up.
    pub(crate) fn ejected(&self, ejections: &[Ejection]) -> ByImport<usize> {
        let labels = self.programs.labels();
        let out = ejections.iter().filter(|one| one.is_out());
        out.map(|one| ([labels.import(&one.import), labels.cluster(&one.cluster)], 1)).collect()
    }
}

impl Collect for ImportFigures {
    fn collect(&self, report: &Report, families: &mut Families) -> prometheus::Result<()> {
        families.gauge(
            "mcs_imports_without_series",
            "Imports beyond --metrics-imports, which the label `other` counts together",
            figure(self.programs.without_row()),
        )?;
        let counts = self.programs.counts();
        families.gauges(
            "mcs_import_backends",
            "Backends of all frontends of imports that clients of this node use, by import and source cluster",
            ["import", "source_cluster"],
            self.backends(&counts).into_iter().map(|(labels, count)| (labels, figure(count))),
        )?;
        families.gauges(
            "mcs_import_ejected_backends",
            "Backends that do not answer clients of this node and get no new ones, by import and source cluster",
            ["import", "source_cluster"],
            self.ejected(&report.ejections).into_iter().map(|(labels, count)| (labels, figure(count))),
        )?;
        families.counters(
            "mcs_import_failed_connects_total",
            "SYNs to backends with passive health that were reset or not answered, by import and source cluster",
            ["import", "source_cluster"],
            self.failed(),
        )?;
        families.counters(
            "mcs_import_connections_total",
            "New connections sent to a backend, of sockets and of packets, by import and source cluster",
            ["import", "source_cluster"],
            counts.connections,
        )?;
        families.counters(
            "mcs_import_refusals_total",
            "Sockets and packets to a ClusterSetIP that were refused, by import and reason",
            ["import", "reason"],
            counts.refusals,
        )
    }

    /// Adds failed connects. What has no place of its own any more is forgotten.
    fn note_failed(&self, failed: &[FailedConnects]) {
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
}
