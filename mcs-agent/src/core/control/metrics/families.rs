//! Collects the values of one scrape.

use std::fmt::Debug;

use prometheus::{
    Counter, Gauge, GaugeVec, IntCounterVec, Opts, Result, core::Collector as _,
    proto::MetricFamily,
};

/// The metrics of one scrape. Each scrape starts empty, so what no longer exists has no series.
#[derive(Default)]
pub(crate) struct Families(Vec<MetricFamily>);

impl Families {
    /// Adds a gauge without labels.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<()> {
        let gauge = Gauge::new(name, help)?;
        gauge.set(value);
        self.extend(gauge.collect());
        Ok(())
    }

    /// Adds a counter of seconds without labels.
    pub(crate) fn seconds_total(&mut self, name: &str, help: &str, seconds: f64) -> Result<()> {
        let counter = Counter::new(name, help)?;
        counter.inc_by(seconds);
        self.extend(counter.collect());
        Ok(())
    }

    /// Adds gauges with labels. Values with the same labels add up; without values there is no metric.
    pub(crate) fn gauges<const N: usize, L: AsRef<str> + Debug>(
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

    /// Adds counters with labels. Values with the same labels add up; without values there is no metric.
    pub(crate) fn counters<const N: usize, L: AsRef<str> + Debug>(
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

    /// Adds families that something else has collected.
    pub(crate) fn extend(&mut self, families: impl IntoIterator<Item = MetricFamily>) {
        // The encoder refuses a family without a series.
        self.0.extend(families.into_iter().filter(|family| !family.get_metric().is_empty()));
    }

    /// All families, in the order of their addition.
    pub(crate) fn all(&self) -> &[MetricFamily] {
        &self.0
    }
}
