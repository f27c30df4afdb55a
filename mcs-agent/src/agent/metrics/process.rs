//! The process's own metrics, with the names that every Prometheus client uses.

use procfs::{
    ProcResult,
    process::{LimitValue, Process},
};
use prometheus::Result;

use super::families::Families;

/// Adds CPU time, memory, file descriptors and threads of this process. Adds nothing if /proc cannot be read.
pub(super) fn collect(families: &mut Families) -> Result<()> {
    let Ok(usage) = ProcessUsage::read() else { return Ok(()) };
    families.seconds_total(
        "process_cpu_seconds_total",
        "User and system CPU time in seconds",
        usage.cpu_seconds,
    )?;
    for (name, help, value) in [
        (
            "process_start_time_seconds",
            "Start time of the process, in seconds since the Unix epoch",
            usage.started,
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory in bytes; includes the config arrays but no other map",
            usage.resident,
        ),
        ("process_virtual_memory_bytes", "Virtual memory in bytes", usage.virtual_memory),
        ("process_open_fds", "Open file descriptors", usage.open_fds),
        ("process_max_fds", "Maximum number of open file descriptors", usage.max_fds),
        ("process_threads", "Threads", usage.threads),
    ] {
        families.gauge(name, help, value)?;
    }
    Ok(())
}

struct ProcessUsage {
    cpu_seconds: f64,
    started: f64,
    resident: f64,
    virtual_memory: f64,
    open_fds: f64,
    max_fds: f64,
    threads: f64,
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
impl ProcessUsage {
    fn read() -> ProcResult<Self> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let ticks = procfs::ticks_per_second() as f64;
        let max_fds = match process.limits()?.max_open_files.soft_limit {
            LimitValue::Unlimited => f64::INFINITY,
            LimitValue::Value(limit) => limit as f64,
        };
        Ok(Self {
            cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
            started: procfs::boot_time_secs()? as f64 + stat.starttime as f64 / ticks,
            resident: (stat.rss * procfs::page_size()) as f64,
            virtual_memory: stat.vsize as f64,
            open_fds: process.fd_count()? as f64,
            max_fds,
            threads: stat.num_threads as f64,
        })
    }
}
