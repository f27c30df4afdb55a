//! How long changes of endpoints take from their source cluster to the maps of this node.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus::{HistogramOpts, HistogramVec};

use super::{OTHER, UNKNOWN};

/// The most source clusters with their own series: the first that changed. Each has 15.
const CLUSTERS: usize = 50;
/// Those of the controller's part of the way.
const BUCKETS: [f64; 12] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The durations by source cluster.
pub(super) struct Propagation {
    seconds: HistogramVec,
    /// The clusters with their own series.
    known: Mutex<BTreeSet<Arc<str>>>,
}

impl Propagation {
    pub(super) fn new() -> prometheus::Result<Self> {
        let options = HistogramOpts::new(
            "mcs_propagation_duration_seconds",
            "Seconds from the change of endpoints, by the source cluster's clock, until it is in the maps",
        );
        let seconds = HistogramVec::new(options.buckets(BUCKETS.to_vec()), &["source_cluster"])?;
        Ok(Self { seconds, known: Mutex::default() })
    }

    /// For the registry.
    pub(super) const fn family(&self) -> &HistogramVec {
        &self.seconds
    }

    /// Counts a change of a slice of this cluster.
    pub(super) fn observe(&self, cluster: &Arc<str>, took: Duration) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.contains(cluster);
        let label = match &**cluster {
            "" => UNKNOWN,
            name if is_known || known.len() < CLUSTERS => {
                if !is_known {
                    known.insert(Arc::clone(cluster));
                }
                name
            }
            _ => OTHER,
        };
        self.seconds.with_label_values(&[label]).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_beyond_the_limit_are_one() {
        let propagation = Propagation::new().unwrap();
        for number in 0..CLUSTERS + 5 {
            propagation.observe(&format!("c{number}").into(), Duration::from_secs(1));
        }
        propagation.observe(&"c0".into(), Duration::from_secs(1));
        propagation.observe(&"".into(), Duration::from_secs(1));
        let count = |label| propagation.seconds.with_label_values(&[label]).get_sample_count();
        assert_eq!((count("c0"), count(OTHER), count(UNKNOWN)), (2, 5, 1));
    }
}
