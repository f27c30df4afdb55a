//! Names the objects that events have by id.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use mcs_common::{Address, FrontendKey, TraceEvent, select::Arrays as _};

use super::events::Cgroups;
use crate::core::{
    kernel::{dataplane::KernelMapsReader, pods::pod_of},
    tables::{MapReader as _, NameMap, NameRecord},
};

/// The imports of VIPs are read again after this time.
const PAUSE: Duration = Duration::from_secs(1);

/// The maps and the cgroups. An event is some milliseconds old: an id that has another meaning by then names nothing.
pub(crate) struct Names {
    maps: KernelMapsReader,
    /// Indices into `services`, for what is refused without a frontend.
    services: HashMap<Address, u32>,
    read_at: Option<Instant>,
    cgroups: Cgroups,
}

impl Names {
    /// `cgroups`: where the hierarchy is mounted.
    pub(crate) fn new(maps: KernelMapsReader, cgroups: &Path) -> Self {
        let cgroups = Cgroups::new(cgroups.to_owned());
        Self { maps, services: HashMap::new(), read_at: None, cgroups }
    }

    /// The record of the ServiceImport.
    pub(super) fn import(&mut self, event: &TraceEvent) -> Option<NameRecord> {
        let index = if event.frontend == 0 {
            self.service_of_vip(event.vip.addr)?
        } else {
            let state = self.maps.state(event.frontend)?;
            (state.key.vip == event.vip.addr && state.key.port == event.vip.port)
                .then_some(state.service)?
        };
        self.maps.name(NameMap::Services, index).filter(NameRecord::is_import)
    }

    fn service_of_vip(&mut self, vip: Address) -> Option<u32> {
        if self.read_at.is_none_or(|read_at| read_at.elapsed() >= PAUSE) {
            self.read_at = Some(Instant::now());
            let maps = &self.maps;
            let service =
                |key: &FrontendKey| Some(maps.state(maps.index_of(key).ok().flatten()?)?.service);
            // Without them an event lacks its import.
            let keys = self.maps.frontends().unwrap_or_default();
            self.services =
                keys.into_iter().filter_map(|key| Some((key.vip, service(&key)?))).collect();
        }
        self.services.get(&vip).copied()
    }

    /// The source cluster of the backend.
    pub(super) fn cluster(&self, event: &TraceEvent) -> Option<String> {
        let backend = self.maps.backend(event.chosen.id)?;
        let is_same = event.chosen.id != 0
            && backend.frontend == event.frontend
            && backend.generation == event.chosen.generation;
        let name = is_same.then(|| self.maps.name(NameMap::Clusters, backend.cluster)).flatten()?;
        Some(name.cluster()).filter(|name| !name.is_empty())
    }

    /// The path of the process's cgroup, as `/proc/PID/cgroup` has it.
    pub(super) fn cgroup(&mut self, event: &TraceEvent) -> Option<&Path> {
        if event.cgroup == 0 { None } else { self.cgroups.path(event.cgroup) }
    }

    /// The uid of the process's pod.
    pub(super) fn pod(&mut self, event: &TraceEvent) -> Option<String> {
        self.cgroup(event).and_then(pod_of)
    }
}
