//! Assigns CPUs to clients and servers.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::prelude::*;

/// A client's and a server's CPU. They are one where there is only one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cpus {
    pub(crate) client: usize,
    pub(crate) server: usize,
}

impl Cpus {
    /// The first and the last that this process may use.
    pub(crate) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let client = allowed.next().unwrap_or(0);
        Ok(Self { client, server: allowed.next_back().unwrap_or(client) })
    }
}

/// Keeps the calling thread on a CPU.
pub(crate) fn pin(cpu: usize) -> Result {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
