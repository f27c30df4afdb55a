//! How long a change of endpoints takes from its source cluster to the slice of this one.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use prometheus::{HistogramVec, register_histogram_vec_with_registry};

use crate::core::{
    clock,
    clusterset::{ImportedSlice, ServiceName},
    control::State,
    feature::{Entry, Feature},
    plan::Write,
    server::Metrics,
};

/// Bounds in seconds: from one write to an outage.
const BOUNDS: [f64; 12] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    start: |_, wiring| {
        let metrics = &wiring.published.metrics;
        Ok(Some(Box::new(Propagation::since(clock::time_of_day(), metrics)?)))
    },
    ..Entry::NONE
};

/// The latest measured change of each slice. A slice is rewritten for other reasons too.
struct Propagation {
    since: Timestamp,
    latest: HashMap<(Arc<str>, Arc<str>), Timestamp>,
    /// By source cluster.
    histogram: HistogramVec,
}

impl Propagation {
    /// Starts to measure. Earlier changes have waited for this replica.
    fn since(now: Timestamp, metrics: &Metrics) -> prometheus::Result<Self> {
        let histogram = register_histogram_vec_with_registry!(
            "mcs_controller_propagation_seconds",
            "From the change of endpoints, by the source cluster's clock, to the written slice",
            &["source_cluster"],
            BOUNDS.to_vec(),
            metrics.registry
        )?;
        Ok(Self { since: now, latest: HashMap::new(), histogram })
    }

    /// The delay of the change that this write made.
    fn measure(&mut self, write: &Write, now: Timestamp) -> Option<Duration> {
        match write {
            Write::ApplySlice(slice) => self.of_slice(slice, now),
            Write::DeleteSlice(service, _, slice) => {
                self.latest.remove(&key(service, slice));
                None
            }
            _ => None,
        }
    }

    fn of_slice(&mut self, slice: &ImportedSlice, now: Timestamp) -> Option<Duration> {
        let change: Timestamp = slice.trigger_time.as_deref()?.parse().ok()?;
        if change < self.since {
            return None;
        }
        let former = self.latest.insert(key(&slice.service, &slice.name), change);
        let is_new = former.is_none_or(|former| former < change);
        // Clocks of clusters differ.
        is_new.then(|| now.duration_since(change).try_into().unwrap_or(Duration::ZERO))
    }
}

fn key(service: &ServiceName, slice: &Arc<str>) -> (Arc<str>, Arc<str>) {
    (service.namespace().into(), Arc::clone(slice))
}

impl Feature for Propagation {
    fn lead(&mut self, is_leader: bool, _: &mut State, _: Instant) {
        if is_leader {
            (self.since, self.latest) = (clock::time_of_day(), HashMap::new());
        }
    }

    fn note_written(&mut self, write: &Write, _: Instant) {
        if let (Write::ApplySlice(slice), Some(took)) =
            (write, self.measure(write, clock::time_of_day()))
        {
            let labels = [slice.cluster.as_str()];
            self.histogram.with_label_values(&labels).observe(took.as_secs_f64());
        }
    }

    #[cfg(test)]
    fn fill_metrics(&self) {
        self.histogram.with_label_values(&["west"]).observe(0.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::{cluster, imported_slice, name};

    fn since(begin: Timestamp) -> Propagation {
        Propagation::since(begin, &Metrics::new().unwrap()).unwrap()
    }

    fn write(time: &str) -> Write {
        Write::ApplySlice(ImportedSlice {
            trigger_time: Some(time.into()),
            ..imported_slice("west")
        })
    }

    #[test]
    fn each_change_is_measured_once() {
        let at = |second: &str| format!("2026-01-02T03:04:{second}Z").parse::<Timestamp>().unwrap();
        let mut propagation = since(at("10"));
        let mut measure = |change: &str, now: &str| {
            let measured = propagation.measure(&write(&at(change).to_string()), at(now));
            measured.map(|took| took.as_millis())
        };
        assert_eq!(measure("09", "11"), None, "it has waited for this replica");
        assert_eq!(measure("10.5", "11"), Some(500));
        assert_eq!(measure("10.5", "12"), None, "written again for another reason");
        assert_eq!(measure("13", "12"), Some(0), "that cluster's clock is fast");
    }

    #[test]
    fn a_slice_that_is_gone_takes_no_memory() {
        let mut propagation = since(Timestamp::UNIX_EPOCH);
        propagation.measure(&write("2026-01-02T03:04:05Z"), Timestamp::now());
        assert_eq!(propagation.latest.len(), 1);
        let gone = Write::DeleteSlice(name("shop/web"), cluster("west"), "web".into());
        propagation.measure(&gone, Timestamp::now());
        assert!(propagation.latest.is_empty());
    }
}
