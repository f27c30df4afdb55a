//! Reads the events of the programs, finds their cgroups, and passes on those that are wanted.

use std::{
    collections::HashMap,
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    time::Instant,
};

use aya::maps::{Map, MapData, PerCpuArray, RingBuf};
use mcs_common::{Counter, TraceEvent};
use mcs_kube::program::Verdict;

use super::Names;
use crate::core::{
    kernel::{bpf::into_io, loader::children},
    model::ObjectKey,
    tables::NameRecord,
};

/// The events, and the number of those that found no room. One process reads them at a time.
pub(crate) struct TraceReader {
    events: RingBuf<MapData>,
    lost: PerCpuArray<MapData, u64>,
}

impl TraceReader {
    /// Reads the two maps, in the order in which the agent passes them.
    pub(crate) fn new([events, lost]: [OwnedFd; 2]) -> io::Result<Self> {
        let open = |fd| MapData::from_fd(fd).map_err(into_io);
        Ok(Self {
            events: RingBuf::try_from(Map::RingBuf(open(events)?)).map_err(into_io)?,
            lost: PerCpuArray::try_from(Map::PerCpuArray(open(lost)?)).map_err(into_io)?,
        })
    }

    /// The next event; `None` if there is none now.
    pub(crate) fn next_event(&mut self) -> Option<TraceEvent> {
        self.events.next().and_then(|item| bytemuck::try_pod_read_unaligned(&item).ok())
    }

    /// How many events were lost so far.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        let values = self.lost.get(&0, 0).map_err(into_io)?;
        Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
    }
}

/// What becomes of a client for this reason.
pub(super) const fn verdict(reason: Counter) -> Verdict {
    match reason {
        Counter::ConnectTranslated | Counter::SendTranslated | Counter::FlowCreated => {
            Verdict::Translated
        }
        Counter::PacketPassed => Verdict::Passed,
        Counter::PacketDroppedFailed => Verdict::Dropped,
        _ => Verdict::Refused,
    }
}

/// Which events are wanted: those that all of these allow.
#[derive(Debug, Default)]
pub(crate) struct TraceFilter {
    pub(crate) import: Option<ObjectKey>,
    pub(crate) namespace: Option<String>,
    /// Its uid.
    pub(crate) pod: Option<String>,
    pub(crate) process: Option<u32>,
    pub(crate) verdict: Option<Verdict>,
}

impl TraceFilter {
    /// Whether an event is wanted. What costs least is asked first.
    pub(crate) fn wants(&self, event: &TraceEvent, names: &mut Names) -> bool {
        let found = || reason(event).map(verdict);
        self.process.is_none_or(|process| process == event.process)
            && (self.verdict.is_none() || self.verdict == found())
            && self.wants_import(event, names)
            && self.pod.as_ref().is_none_or(|pod| names.pod(event).as_ref() == Some(pod))
    }

    fn wants_import(&self, event: &TraceEvent, names: &mut Names) -> bool {
        if self.import.is_none() && self.namespace.is_none() {
            return true;
        }
        let Some(record) = names.import(event) else { return false };
        let is_import = |import: &ObjectKey| NameRecord::of_import(import) == record;
        let is_in = |namespace: &String| *record.import().namespace == **namespace;
        self.import.as_ref().is_none_or(is_import) && self.namespace.as_ref().is_none_or(is_in)
    }
}

/// What was decided.
pub(super) fn reason(event: &TraceEvent) -> Option<Counter> {
    Counter::ALL.get(event.reason as usize).copied()
}

/// After a walk through all cgroups the next one waits this many times as long as it took. Events can name removed cgroups,
/// which no walk finds.
const REST: u32 = 20;

/// The cgroups below a mount, by id: the inode of the directory.
pub(super) struct Cgroups {
    root: PathBuf,
    known: HashMap<u64, PathBuf>,
    rests_until: Option<Instant>,
}

impl Cgroups {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, known: HashMap::new(), rests_until: None }
    }

    /// The path of a cgroup below the mount. One that has been removed keeps the path that it had.
    pub(super) fn path(&mut self, id: u64) -> Option<&Path> {
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        if !self.known.contains_key(&id) && !rests {
            self.read();
        }
        self.known.get(&id).map(PathBuf::as_path)
    }

    fn read(&mut self) {
        let began = Instant::now();
        let mut rest = vec![self.root.clone()];
        while let Some(directory) = rest.pop() {
            if let Ok(metadata) = fs::metadata(&directory) {
                let below = directory.strip_prefix(&self.root).unwrap_or(&directory);
                self.known.insert(metadata.ino(), Path::new("/").join(below));
            }
            rest.extend(children(&directory));
        }
        self.rests_until = Some(began + began.elapsed() * (REST + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cgroup_is_found_by_its_inode() {
        let directory = tempfile::tempdir().unwrap();
        let mut cgroups = Cgroups::new(directory.path().to_owned());
        assert_eq!(cgroups.path(1), None);
        let made = directory.path().join("a/b");
        fs::create_dir_all(&made).unwrap();
        let id = fs::metadata(&made).unwrap().ino();
        cgroups.rests_until = Some(Instant::now() + Duration::from_mins(1));
        assert_eq!(cgroups.path(id), None, "it rests");
        cgroups.rests_until = None;
        assert_eq!(cgroups.path(id), Some(Path::new("/a/b")));
    }
}
