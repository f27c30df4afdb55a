//! Metrics of one scrape: figures that are read when Prometheus asks.

use std::fmt::Debug;

use prometheus::{
    Counter, Gauge, GaugeVec, IntCounterVec, Opts, Result, core::Collector as _,
    proto::MetricFamily,
};

/// Metrics of one moment, made anew for each scrape: what has gone has no series.
#[derive(Default)]
pub(super) struct Families(Vec<MetricFamily>);

impl Families {
    /// A figure without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<()> {
        let gauge = Gauge::new(name, help)?;
        gauge.set(value);
        self.extend(gauge.collect());
        Ok(())
    }

    /// Seconds that something took so far.
    pub(super) fn seconds_total(&mut self, name: &str, help: &str, seconds: f64) -> Result<()> {
        let counter = Counter::new(name, help)?;
        counter.inc_by(seconds);
        self.extend(counter.collect());
        Ok(())
    }

    /// Figures by labels; those of the same labels add up. None of them, no metric.
    pub(super) fn gauges<const N: usize, L: AsRef<str> + Debug>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([L; N], f64)>,
    ) -> Result<()> {
        let gauges = GaugeVec::new(Opts::new(name, help), &labels)?;
        for (labels, value) in values {
            gauges.with_label_values(&labels).add(value);
        }
        self.extend(gauges.collect());
        Ok(())
    }

    /// Counts by labels, of something that counts by itself. None of them, no metric.
    pub(super) fn counters<const N: usize, L: AsRef<str> + Debug>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([L; N], u64)>,
    ) -> Result<()> {
        let counters = IntCounterVec::new(Opts::new(name, help), &labels)?;
        for (labels, value) in values {
            counters.with_label_values(&labels).inc_by(value);
        }
        self.extend(counters.collect());
        Ok(())
    }

    /// Those of others.
    pub(super) fn extend(&mut self, families: impl IntoIterator<Item = MetricFamily>) {
        // One without a series is refused by the encoder.
        self.0.extend(families.into_iter().filter(|family| !family.get_metric().is_empty()));
    }

    /// All, in the order in which they came.
    pub(super) fn all(&self) -> &[MetricFamily] {
        &self.0
    }
}
