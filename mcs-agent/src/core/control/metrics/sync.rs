//! How long rounds take, and how long changes take from their source cluster to the maps of this node.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, core::Collector, exponential_buckets, proto::MetricFamily,
};

use super::{OTHER, UNKNOWN};
use crate::core::engine::PendingChanges;

/// Metrics of rounds and of health requests, with kube-proxy's names and buckets. Updates do not wait.
pub(in crate::core::control) struct SyncMetrics {
    registry: Registry,
    duration: Histogram,
    latency: Histogram,
    propagation: Propagation,
    queued: Gauge,
    synced: Gauge,
    endpoint_changes: IntCounter,
    endpoint_changes_pending: IntGauge,
    service_changes: IntCounter,
    service_changes_pending: IntGauge,
    failures: IntCounter,
    healthz: IntCounterVec,
    livez: IntCounterVec,
}

impl SyncMetrics {
    /// All metrics at zero.
    pub(in crate::core::control) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let of = Registrar { registry: &registry };
        let duration = HistogramOpts::new(
            "kubeproxy_sync_proxy_rules_duration_seconds",
            "Seconds from the first rule to the last write of a round",
        )
        .buckets(exponential_buckets(0.001, 2.0, 15)?);
        let latency = HistogramOpts::new(
            "kubeproxy_network_programming_duration_seconds",
            "Seconds from the last-change-trigger-time of a changed EndpointSlice until it is in the maps",
        )
        .buckets(latency_buckets());
        let propagation = Propagation::new()?;
        of.add(propagation.family().clone())?;
        Ok(Self {
            propagation,
            duration: of.add(Histogram::with_opts(duration)?)?,
            latency: of.add(Histogram::with_opts(latency)?)?,
            queued: of.add(Gauge::new(
                "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
                "Time of the last change, in seconds since the Unix epoch",
            )?)?,
            synced: of.add(Gauge::new(
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                "Time when the maps last reached the desired state, in seconds since the Unix epoch",
            )?)?,
            endpoint_changes: of.add(IntCounter::new(
                "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                "EndpointSlices added, changed or deleted",
            )?)?,
            endpoint_changes_pending: of.add(IntGauge::new(
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                "Changes of EndpointSlices that are not in the maps yet",
            )?)?,
            service_changes: of.add(IntCounter::new(
                "kubeproxy_sync_proxy_rules_service_changes_total",
                "ServiceImports added, changed or deleted",
            )?)?,
            service_changes_pending: of.add(IntGauge::new(
                "kubeproxy_sync_proxy_rules_service_changes_pending",
                "Changes of ServiceImports that are not in the maps yet",
            )?)?,
            failures: of.add(IntCounter::new(
                "mcs_sync_failures_total",
                "Rounds after which the maps did not contain the desired state; the agent tries again",
            )?)?,
            healthz: of.add(IntCounterVec::new(
                Opts::new("kubeproxy_proxy_healthz_total", "Answers to /healthz, by HTTP status"),
                &["code"],
            )?)?,
            livez: of.add(IntCounterVec::new(
                Opts::new("kubeproxy_proxy_livez_total", "Answers to /livez, by HTTP status"),
                &["code"],
            )?)?,
            registry,
        })
    }

    /// Counts new changes. `all` has every change that is not in the maps yet.
    pub(in crate::core::control) fn queue(
        &self,
        imports: usize,
        slices: usize,
        all: &PendingChanges,
    ) {
        self.service_changes.inc_by(imports as u64);
        self.endpoint_changes.inc_by(slices as u64);
        self.queued.set(seconds_since_epoch(SystemTime::now()));
        self.note_pending(all);
    }

    /// Counts a round after which the maps contain the desired state. It wrote these changes.
    pub(in crate::core::control) fn succeed(&self, took: Duration, written: &PendingChanges) {
        self.duration.observe(took.as_secs_f64());
        let now = SystemTime::now();
        for trigger in written.triggers() {
            // Zero if this clock is behind that of the API server's machine.
            let latency = now.duration_since(trigger.time).unwrap_or_default();
            self.latency.observe(latency.as_secs_f64());
            self.propagation.observe(&trigger.cluster, latency);
        }
        self.synced.set(seconds_since_epoch(now));
        self.note_pending(&PendingChanges::default());
    }

    /// Counts a round during growth: some changes wait for the programs to be switched.
    pub(in crate::core::control) fn grow(&self, took: Duration) {
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts a round after which the maps do not contain the desired state.
    pub(in crate::core::control) fn fail(&self, took: Duration) {
        self.duration.observe(took.as_secs_f64());
        self.failures.inc();
    }

    /// Counts an answer to `/healthz`.
    pub(in crate::core::control) fn count_healthz(&self, status: u16) {
        self.healthz.with_label_values(&[status.to_string()]).inc();
    }

    /// Counts an answer to `/livez`.
    pub(in crate::core::control) fn count_livez(&self, status: u16) {
        self.livez.with_label_values(&[status.to_string()]).inc();
    }

    /// The current values.
    pub(in crate::core::control) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    fn note_pending(&self, pending: &PendingChanges) {
        self.service_changes_pending.set(int(pending.imports()));
        self.endpoint_changes_pending.set(int(pending.slices()));
    }
}

struct Registrar<'a> {
    registry: &'a Registry,
}

impl Registrar<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> prometheus::Result<C> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}

/// kube-proxy's buckets: finer than a second below one second, and coarser above a minute.
fn latency_buckets() -> Vec<f64> {
    let seconds = |range: std::ops::RangeInclusive<u32>, step| range.step_by(step).map(f64::from);
    let minute = seconds(1..=59, 1);
    [0.25, 0.5]
        .into_iter()
        .chain(minute)
        .chain(seconds(60..=115, 5))
        .chain(seconds(120..=300, 30))
        .collect()
}

/// A time as Prometheus writes it.
pub(super) fn seconds_since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

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

    /// The figures of Kubernetes 1.36, pkg/proxy/metrics.
    #[test]
    fn latency_has_the_buckets_of_kube_proxy() {
        let buckets = latency_buckets();
        assert_eq!(buckets.len(), 2 + 59 + 12 + 7);
        assert!(buckets.is_sorted());
        assert_eq!(buckets[..4], [0.25, 0.5, 1.0, 2.0]);
        assert_eq!(buckets[59..63], [58.0, 59.0, 60.0, 65.0]);
        assert_eq!(buckets[71..75], [110.0, 115.0, 120.0, 150.0]);
        assert_eq!(buckets[79..], [300.0]);
    }

    #[test]
    fn a_round_that_failed_or_made_larger_maps_leaves_its_changes_pending() {
        let metrics = SyncMetrics::new().unwrap();
        let mut pending = PendingChanges::default();
        pending.add_import();
        metrics.queue(1, 0, &pending);
        metrics.fail(Duration::from_millis(1));
        metrics.grow(Duration::from_millis(1));
        assert_eq!(metrics.service_changes_pending.get(), 1);
        assert!(metrics.synced.get() < metrics.queued.get());
        metrics.succeed(Duration::from_millis(1), &pending);
        assert_eq!(metrics.service_changes_pending.get(), 0);
        assert!(metrics.synced.get() >= metrics.queued.get());
        assert_eq!((metrics.failures.get(), metrics.duration.get_sample_count()), (1, 3));
    }

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
