//! Collects the values of one scrape, those of the process among them, by the names that every Prometheus client uses.

use std::fmt::Debug;

use procfs::{
    ProcResult,
    process::{LimitValue, Process},
};
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

/// Adds CPU time, memory, file descriptors and threads of this process. Adds nothing if /proc cannot be read.
pub(super) fn collect(families: &mut Families) -> Result<()> {
    let Ok((cpu_seconds, gauges)) = read() else { return Ok(()) };
    families.seconds_total(
        "process_cpu_seconds_total",
        "User and system CPU time in seconds",
        cpu_seconds,
    )?;
    gauges.into_iter().try_for_each(|(name, help, value)| families.gauge(name, help, value))
}

/// The name, help and value of a gauge.
type NamedGauge = (&'static str, &'static str, f64);

/// The CPU time in seconds, and the gauges.
#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
fn read() -> ProcResult<(f64, [NamedGauge; 6])> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second() as f64;
    let max_fds = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Unlimited => f64::INFINITY,
        LimitValue::Value(limit) => limit as f64,
    };
    let gauges = [
        (
            "process_start_time_seconds",
            "Start time of the process, in seconds since the Unix epoch",
            procfs::boot_time_secs()? as f64 + stat.starttime as f64 / ticks,
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory in bytes; includes the config arrays but no other map",
            (stat.rss * procfs::page_size()) as f64,
        ),
        ("process_virtual_memory_bytes", "Virtual memory in bytes", stat.vsize as f64),
        ("process_open_fds", "Open file descriptors", process.fd_count()? as f64),
        ("process_max_fds", "Maximum number of open file descriptors", max_fds),
        ("process_threads", "Threads", stat.num_threads as f64),
    ];
    Ok(((stat.utime + stat.stime) as f64 / ticks, gauges))
}
