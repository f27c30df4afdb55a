//! What a process takes.

use std::fs;

use anyhow::Context as _;

/// How much of what a process has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    /// Resident memory, in KiB.
    pub(crate) resident: u64,
    /// The most it ever was.
    pub(crate) peak: u64,
    /// Open file descriptors.
    pub(crate) descriptors: usize,
}

impl Footprint {
    /// Looks at a process now.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
            anyhow::Ok(kib.with_context(|| format!("no {name}"))?.parse::<u64>()?)
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(Self { resident: field("VmRSS:")?, peak: field("VmHWM:")?, descriptors })
    }
}
