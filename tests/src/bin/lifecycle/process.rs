//! Memory, descriptors, threads and maps of a process.

use mcs_tests::procfs::{self, Status};

use crate::prelude::*;

/// What tokio calls them.
const POOL: &str = "tokio-rt-worker";

/// How much of what a process has.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    /// Resident memory, in KiB.
    pub(crate) resident: u64,
    /// The most it ever was.
    pub(crate) peak: u64,
    /// Open file descriptors.
    pub(crate) descriptors: usize,
    /// Threads but those of the pool.
    pub(crate) threads: usize,
    /// Threads that tokio keeps for what blocks: as many as were busy at once, while there is work.
    pub(crate) pool: usize,
    /// eBPF objects that it holds open.
    pub(crate) objects: BTreeMap<Kind, usize>,
    /// What the maps among them take in the kernel, in KiB.
    pub(crate) maps: u64,
}

impl Footprint {
    /// Reads the current values of a process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let status = Status::of(pid)?;
        let held = Objects::held_by(pid)?;
        let names = thread_names(pid)?;
        let pool = names.iter().filter(|name| *name == POOL).count();
        Ok(Self {
            resident: status.number("VmRSS")?,
            peak: status.number("VmHWM")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: names.len() - pool,
            pool,
            objects: Kind::ALL.map(|kind| (kind, held.of(kind).count())).into(),
            maps: map_memory(pid)? / 1024,
        })
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident, descriptors, threads, pool, maps, objects, .. } = self;
        write!(
            f,
            "{resident} KiB, {descriptors} descriptors, {threads} threads, {pool} in the pool, "
        )?;
        objects.iter().try_for_each(|(kind, count)| write!(f, "{count} {kind}s, "))?;
        write!(f, "{maps} KiB of maps")
    }
}

/// A new thread has the name of the one that made it for a moment. Those that end meanwhile are left out.
fn thread_names(pid: u32) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    let names =
        entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    Ok(names.map(|name| name.trim_end().to_owned()).collect())
}

/// Bytes that the maps take in the kernel which a process holds open, each once.
fn map_memory(pid: u32) -> io::Result<u64> {
    let mut maps = BTreeMap::new();
    for info in procfs::descriptors(pid)? {
        let field = |name| procfs::number(&info, name);
        maps.extend(field("map_id").zip(field("memlock")));
    }
    Ok(maps.into_values().sum())
}
