//! What a process takes.

use std::{collections::BTreeMap, fmt, fs, io};

use anyhow::Context as _;

use crate::objects::{Kind, Objects};

/// How much of what a process has.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    /// Resident memory, in KiB.
    pub(crate) resident: u64,
    /// The most it ever was.
    pub(crate) peak: u64,
    /// Open file descriptors.
    pub(crate) descriptors: usize,
    /// Threads.
    pub(crate) threads: u64,
    /// eBPF objects that it holds open.
    pub(crate) objects: BTreeMap<Kind, usize>,
    /// What the maps among them take in the kernel, in KiB.
    pub(crate) maps: u64,
}

impl Footprint {
    /// Looks at a process now.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let value = line.map(|line| line.trim().trim_end_matches(" kB"));
            anyhow::Ok(value.with_context(|| format!("no {name}"))?.parse::<u64>()?)
        };
        let held = Objects::held_by(pid)?;
        Ok(Self {
            resident: field("VmRSS:")?,
            peak: field("VmHWM:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: field("Threads:")?,
            objects: Kind::ALL.map(|kind| (kind, held.of(kind).count())).into(),
            maps: map_memory(pid)? / 1024,
        })
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident, descriptors, threads, maps, objects, .. } = self;
        write!(f, "{resident} KiB, {descriptors} descriptors, {threads} threads, ")?;
        objects.iter().try_for_each(|(kind, count)| write!(f, "{count} {kind}s, "))?;
        write!(f, "{maps} KiB of maps")
    }
}

/// Bytes that the maps take in the kernel which a process holds open, each once.
fn map_memory(pid: u32) -> io::Result<u64> {
    let mut maps = BTreeMap::new();
    for info in descriptors(pid)? {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        maps.extend(field("map_id:").zip(field("memlock:")));
    }
    Ok(maps.into_values().sum())
}

/// What the kernel tells of each descriptor of a process (`proc_pid_fdinfo(5)`).
pub(crate) fn descriptors(pid: u32) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"))?;
    // Some are closed meanwhile.
    Ok(entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect())
}
