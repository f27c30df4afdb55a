//! What a reader finds, and what it ought to find.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    net::SocketAddr,
};

use mcs_common::{
    Address, BackendState, Extent, FrontendKey, VipMode,
    select::{self, Choice, Lookup, Tables},
};

use crate::{
    model::{Backend, DesiredState, Frontend, ObjectKey},
    reconcile::{FrontendView, MapContents, Pruning, convert::frontend_key, view},
};

/// What clients of a destination meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Miss,
    UnknownPort,
    Inconsistent,
    Found(Entry),
}

/// A frontend: its own attributes, and where it sends to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) import: ObjectKey,
    pub(super) affinity_seconds: u32,
    /// By address, with the source cluster and the number of slots.
    pub(super) backends: BTreeMap<SocketAddr, (String, u32)>,
}

/// All that the maps mean.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) vips: BTreeSet<Address>,
    /// With those whose VIP is not there.
    pub(super) entries: BTreeMap<FrontendKey, Entry>,
}

impl View {
    pub(super) fn of(dump: &MapContents) -> Self {
        let entry = |key: &FrontendKey| (*key, Entry::of(dump, key));
        Self {
            vips: dump.vips_of_mode(|mode| mode == VipMode::SERVED).map(|(vip, _)| vip).collect(),
            entries: dump.frontends.keys().map(entry).collect(),
        }
    }

    /// Where a complete plan leads from here.
    pub(super) fn after(&self, desired: &DesiredState, pruning: Pruning) -> Self {
        let mut after = if pruning == Pruning::On { Self::default() } else { self.clone() };
        after.vips.extend(desired.vips.iter().map(|&ip| Address::from(ip)));
        for (id, frontend) in &desired.frontends {
            let key = frontend_key(id);
            let wanted = Entry::wanted(frontend);
            let merged = match self.entries.get(&key) {
                Some(former) if pruning == Pruning::Off => former.merge(wanted),
                _ => wanted,
            };
            after.entries.insert(key, merged);
        }
        after
    }

    /// What clients may meet. Where the VIP is not there, its hint decides whether they find the port.
    pub(super) fn outcomes(&self, key: &FrontendKey) -> Vec<Outcome> {
        let found = self.entries.get(key).cloned().map(Outcome::Found);
        if self.vips.contains(&key.vip) {
            return vec![found.unwrap_or(Outcome::UnknownPort)];
        }
        iter::once(Outcome::Miss).chain(found).collect()
    }
}

impl Entry {
    /// The frontend at this key, without faults.
    fn of(contents: &MapContents, key: &FrontendKey) -> Self {
        let mut faults = Vec::new();
        let view = FrontendView::look_up(contents, key, &mut faults).expect("a frontend");
        assert_eq!(faults, [] as [String; 0]);
        let count = view.backends.len();
        let backends: BTreeMap<SocketAddr, (String, u32)> =
            view.backends.into_iter().map(|one| (one.address, (one.cluster, one.slots))).collect();
        assert_eq!(backends.len(), count, "each address once");
        Self { import: view.import, affinity_seconds: view.affinity_seconds.unwrap_or(0), backends }
    }

    fn wanted(frontend: &Frontend) -> Self {
        let counts = frontend.slots.counts(frontend.backends.len());
        let backends = frontend.backends.iter().zip(counts);
        let backend =
            |(one, slots): (&Backend, u32)| (one.address, (one.cluster.to_string(), slots));
        Self {
            import: frontend.import.clone(),
            affinity_seconds: frontend.affinity_seconds.unwrap_or(0),
            backends: backends.map(backend).collect(),
        }
    }

    pub(super) fn same_attributes(&self, other: &Self) -> bool {
        self.import == other.import && self.affinity_seconds == other.affinity_seconds
    }

    /// While sources have yet to sync, backends are only added, and a frontend of another service
    /// is left alone.
    fn merge(&self, wanted: Self) -> Self {
        if self.import != wanted.import {
            return self.clone();
        }
        let mut merged = Self { backends: self.backends.clone(), ..wanted };
        merged.backends.extend(wanted.backends);
        merged
    }
}

/// What the production reader makes of a destination.
pub(super) fn outcome(tables: &impl Tables, dump: &MapContents, key: &FrontendKey) -> Outcome {
    match select::lookup(tables, key) {
        Lookup::Miss | Lookup::Gone => Outcome::Miss,
        Lookup::UnknownPort => Outcome::UnknownPort,
        Lookup::Inconsistent => Outcome::Inconsistent,
        Lookup::Found(found) => {
            let choices = picks(tables, found.state.extent);
            assert_usable(&choices, found.index);
            let is_active = |choice: &Choice| choice.backend.state == BackendState::ACTIVE;
            assert!(choices.iter().all(is_active), "a retired backend is in the set");
            let is_hinted =
                |choice: &Choice| tables.kinds_of(&choice.backend.addr).may_be_backend();
            assert!(choices.iter().all(is_hinted), "programs would miss a backend");
            Outcome::Found(Entry::of(dump, key))
        }
    }
}

/// Every backend that some client is sent to.
pub(super) fn picks(tables: &impl Tables, extent: Extent) -> Vec<Choice> {
    view::picks(tables, extent).map(|choice| choice.expect("a backend")).collect()
}

/// A client that holds the index and the extent is sent to backends of that frontend.
pub(super) fn assert_usable(choices: &[Choice], index: u32) {
    for Choice { chosen, backend, .. } in choices {
        assert!(chosen.id != 0);
        assert!(backend.state != BackendState::FREE);
        assert_eq!(backend.frontend, index, "another frontend's backend");
    }
}
