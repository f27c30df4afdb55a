//! What a process takes.

use std::fs;

use anyhow::Context as _;

/// How much of what a process has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    /// Resident memory, in KiB.
    pub(crate) resident: u64,
    /// Open file descriptors.
    pub(crate) descriptors: usize,
}

impl Footprint {
    /// Looks at a process now.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let line = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(Self { resident: line.parse()?, descriptors })
    }
}
