//! The map `health`: which backends the programs watch, and what they saw.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use bytemuck::Zeroable as _;
use mcs_common::{BackendRef, HealthRecord, maps};

use super::verdict::Observed;
use crate::core::{
    kernel::{bpf::PinnedHash, flows::FlowRecords},
    model::{Backend, DesiredState, FailedConnects, FrontendId, ObjectKey},
    tables::Realized,
};

/// The tracepoints of the programs. The kernel passes the last one for each change of a TCP socket's state.
const TRACEPOINTS: [&str; 3] = ["tcp_retransmit_skb", "tcp_receive_reset", "inet_sock_set_state"];

/// What the programs record of connects to backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Watching {
    /// Nothing.
    #[default]
    Nothing,
    /// Connects that are not answered.
    Failures,
    /// Also connects that are answered.
    FailuresAndAnswers,
}

impl Watching {
    /// The tracepoints that this takes, and the others.
    pub(super) fn tracepoints(self) -> (&'static [&'static str], &'static [&'static str]) {
        TRACEPOINTS.split_at(match self {
            Self::Nothing => 0,
            Self::Failures => 2,
            Self::FailuresAndAnswers => 3,
        })
    }
}

/// The most backends that are watched.
const MOST: usize = 8192;

/// Backends that are to be watched, by their keys in the map.
pub type Targets = BTreeMap<BackendRef, WatchedBackend>;

/// A backend that is to be watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedBackend {
    /// The import that it serves.
    pub import: ObjectKey,
    /// Its address and source cluster.
    pub backend: Backend,
}

/// The backends in the maps that these frontends have, as many as can be watched.
pub fn targets<'a>(
    frontends: impl Iterator<Item = (&'a ObjectKey, FrontendId)>,
    desired: &DesiredState,
    realized: &Realized,
) -> Targets {
    let mut targets = Targets::new();
    for (import, id) in frontends {
        let Some(frontend) = desired.frontends.get(&id) else { continue };
        for (chosen, address) in realized.served(id) {
            if targets.len() == MOST {
                return targets;
            }
            if let Some(backend) = frontend.backend(address) {
                let target = WatchedBackend { import: import.clone(), backend: backend.clone() };
                targets.insert(chosen, target);
            }
        }
    }
    targets
}

/// The map, and the backends with entries in it.
pub(super) struct HealthMap {
    map: PinnedHash<BackendRef, HealthRecord>,
    targets: Targets,
    /// The failed connects of sockets that [`HealthMap::read`] has returned.
    counted: BTreeMap<BackendRef, u64>,
}

impl WatchedBackend {
    fn failed(&self, count: u64) -> Option<FailedConnects> {
        let (import, cluster) = (&self.import, &self.backend.cluster);
        (count > 0).then(|| FailedConnects {
            import: import.clone(),
            cluster: cluster.clone(),
            count,
        })
    }
}

impl HealthMap {
    /// Opens the map in the state directory, and removes the entries of an earlier agent.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let mut map = PinnedHash::open(&state.join(maps::HEALTH))?;
        map.keys()?.iter().try_for_each(|key| map.remove(key))?;
        Ok(Self { map, targets: Targets::new(), counted: BTreeMap::new() })
    }

    /// Watches these backends, and no others.
    pub(super) fn follow(&mut self, mut targets: Targets) -> io::Result<()> {
        let keys: BTreeSet<_> = self.targets.keys().copied().collect();
        for key in keys {
            if targets.get(&key) == self.targets.get(&key) {
                targets.remove(&key);
            } else {
                self.map.remove(&key)?;
                self.targets.remove(&key);
                self.counted.remove(&key);
            }
        }
        for (key, target) in targets {
            self.map.set(&key, HealthRecord::zeroed())?;
            self.targets.insert(key, target);
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Every record, of sockets and of flows, and the connects of sockets that have failed since.
    pub(super) fn read(
        &mut self,
        flows: &FlowRecords,
    ) -> io::Result<(Vec<Observed>, Vec<FailedConnects>)> {
        let (mut all, mut failed) = (Vec::with_capacity(self.targets.len()), Vec::new());
        let (targets, counted) = (&self.targets, &mut self.counted);
        self.map.for_each(|key, record| {
            if let Some(target) = targets.get(&key) {
                let WatchedBackend { import, backend } = target;
                let of =
                    |record| Observed { import: import.clone(), backend: backend.clone(), record };
                all.push(of(record));
                all.extend(flows.get(&(key, backend.address)).copied().map(of));
                if record.failed > 0 {
                    let before = counted.insert(key, record.failed).unwrap_or_default();
                    failed.extend(target.failed(record.failed.saturating_sub(before)));
                }
            }
        })?;
        Ok((all, failed))
    }

    /// The connects of flows that have failed.
    pub(super) fn failed_flows(&self, flows: &FlowRecords) -> impl Iterator<Item = FailedConnects> {
        flows.iter().filter_map(|((key, address), record)| {
            let target = self.targets.get(key)?;
            (target.backend.address == *address).then(|| target.failed(record.failed))?
        })
    }
}
