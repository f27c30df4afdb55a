//! The process's own metrics, with the names that every Prometheus client uses.

use procfs::{
    ProcResult,
    process::{LimitValue, Process},
};
use prometheus::Result;

use super::families::Families;

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
