//! The check that clients find consistent maps: readers look into them after every write, and remember.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use mcs_common::{
    BackendRecord, BackendRef, BackendState, Extent, FrontendKey,
    select::{self, Arrays, Choice},
};

use crate::core::{
    model::FrontendId,
    tables::{
        BackendView, FrontendView, MapContents, MapError, MapReader as _, MapView, Maps, Step,
        contents::frontend_key, view::picks,
    },
};

/// Maps that readers look into after every write.
#[derive(Clone, Debug)]
pub struct Watched<M> {
    /// What is written to.
    pub maps: M,
    /// What clients found before the first write.
    before: MapView,
    /// What they found after each.
    seen: Vec<(Step, Found)>,
    /// What was wrong first.
    fault: Option<String>,
    /// What readers may hold that started since the latest wait: an index with its key, and extents with what stood there.
    held: BTreeMap<(FrontendKey, u32, Extent), Vec<(u32, BackendRecord)>>,
    /// Choices that clients may remember for ever: for whom, and where they led.
    remembered: BTreeMap<(u32, BackendRef), (FrontendKey, BackendRecord)>,
    /// Where each use of each id led.
    used: BTreeMap<BackendRef, BackendRecord>,
}

impl<M: Maps> Watched<M> {
    /// Fails if the maps hold entries that contradict each other.
    pub fn new(maps: M) -> anyhow::Result<Self> {
        let mut watched = Self {
            maps,
            before: MapView::default(),
            seen: Vec::new(),
            fault: None,
            held: BTreeMap::new(),
            remembered: BTreeMap::new(),
            used: BTreeMap::new(),
        };
        watched.watch()?;
        Ok(watched)
    }

    /// What clients find.
    pub fn view(&self) -> anyhow::Result<MapView> {
        view_of(&self.maps.reader().read_all()?)
    }

    /// Begins to look at the writes of a round.
    pub fn watch(&mut self) -> anyhow::Result<()> {
        self.before = self.look()?.view;
        self.seen.clear();
        Ok(())
    }

    /// Fails if clients have found anything since [`Watched::watch`] that is neither what they found then nor one of these.
    pub fn verdict(&mut self, allowed: &[MapView]) -> anyhow::Result<()> {
        if let Some(fault) = self.fault.take() {
            bail!(fault);
        }
        let before = std::mem::take(&mut self.before);
        let allowed: Vec<_> = allowed.iter().chain([&before]).collect();
        for (step, found) in self.seen.drain(..) {
            found.check_made_of(&allowed).with_context(|| format!("at the step `{step}`"))?;
        }
        Ok(())
    }

    /// Looks into the maps as every client does.
    fn look(&mut self) -> anyhow::Result<Found> {
        let reader = self.maps.reader();
        let view = view_of(&reader.read_all()?)?;
        for vip in &view.vips {
            ensure!(reader.kinds_of(&(*vip).into()).may_be_vip(), "programs would miss {vip}");
        }
        for (id, frontend) in &view.frontends {
            let key = frontend_key(id);
            let choices = choices(reader, frontend.extent)?;
            for Choice { chosen, backend, .. } in &choices {
                let address = &backend.addr;
                ensure!(
                    reader.kinds_of(address).may_be_backend(),
                    "{id}: programs would miss {address:?}"
                );
                let lasting = lasting(backend);
                let of_client = self.remembered.entry((frontend.index, *chosen));
                let same = *of_client.or_insert((key, lasting)) == (key, lasting);
                ensure!(same, "{id}: {chosen:?} has led elsewhere");
                let first = *self.used.entry(*chosen).or_insert(lasting);
                ensure!(first == lasting, "{chosen:?} is used twice");
            }
            let contents =
                choices.iter().map(|choice| (choice.chosen.id, lasting(&choice.backend)));
            self.held.entry((key, frontend.index, frontend.extent)).or_insert(contents.collect());
            self.check_memory(frontend, &key)?;
        }
        self.check_held()?;
        let is_hinted = |id: &&FrontendId| reader.kinds_of(&id.ip.into()).may_be_vip();
        let hinted = view.frontends.keys().filter(is_hinted).copied().collect();
        Ok(Found { view, hinted })
    }

    /// A choice remembered leads where it led, or nowhere.
    fn check_memory(&self, frontend: &FrontendView, key: &FrontendKey) -> anyhow::Result<()> {
        let last = BackendRef { id: u32::MAX, generation: u32::MAX };
        let of_index = (frontend.index, BackendRef::default())..=(frontend.index, last);
        for (&(index, reference), (owner, backend)) in self.remembered.range(of_index) {
            if let Some(choice) = select::recall(self.maps.reader(), index, reference) {
                ensure!(owner == key, "{}: another's choice is followed", frontend.frontend);
                ensure!(lasting(&choice.backend) == *backend, "{reference:?} leads elsewhere");
            }
        }
        Ok(())
    }

    /// Readers that pause since before the latest wait still find what they came for.
    fn check_held(&self) -> anyhow::Result<()> {
        let reader = self.maps.reader();
        for ((key, index, extent), contents) in &self.held {
            for (slot, (id, backend)) in extent.range().zip(contents) {
                ensure!(
                    reader.slot(slot) == Some(*id),
                    "slot {slot}, which is in use, was written"
                );
                let now = reader.backend(*id).context("no such backend")?;
                ensure!(lasting(&now) == *backend, "backend {id}, which is in use, was written");
                ensure!(now.state != BackendState::FREE, "backend {id}, which is in use, is free");
            }
            let state = reader.state(*index).context("no such state")?;
            ensure!(state.key == *key, "index {index}, which is in use, was written");
            for Choice { chosen, backend, .. } in choices(reader, state.extent)? {
                let is_usable = chosen.id != 0 && backend.state != BackendState::FREE;
                ensure!(is_usable && backend.frontend == *index, "{chosen:?} is another's");
            }
        }
        Ok(())
    }
}

/// Where it leads, whatever its state is.
fn lasting(backend: &BackendRecord) -> BackendRecord {
    BackendRecord { state: BackendState::ACTIVE, column: 0, ..*backend }
}

/// Every backend that some client is sent to.
fn choices(reader: &impl Arrays, extent: Extent) -> anyhow::Result<Vec<Choice>> {
    picks(reader, extent).map(|choice| choice.context("a slot names no backend")).collect()
}

/// Reads the maps. An error if any entries contradict each other.
pub fn view_of(contents: &MapContents) -> anyhow::Result<MapView> {
    let view = MapView::of(contents);
    ensure!(view.faults.is_empty(), "{}", view.faults.join("; "));
    for (id, frontend) in &view.frontends {
        let addresses: BTreeSet<_> = frontend.backends.iter().map(|one| one.address).collect();
        ensure!(addresses.len() == frontend.backends.len(), "{id}: an address is there twice");
    }
    Ok(view)
}

/// Checks that every backend that stays in a frontend, or is kept, has the id and generation that clients
/// remember.
pub fn check_keeps(view: &MapView, former: &MapView) -> anyhow::Result<()> {
    for (id, frontend) in &view.frontends {
        let Some(before) = former.frontends.get(id) else { continue };
        for now in frontend.backends.iter().chain(&frontend.kept) {
            let place = (now.address, &now.cluster);
            let mut former = before.backends.iter().chain(&before.kept);
            let former = former.find(|backend| (backend.address, &backend.cluster) == place);
            let identity = |one: &BackendView| (one.id, one.generation);
            let same = former.is_none_or(|former| identity(former) == identity(now));
            ensure!(same, "{id}: clients of {} would move", now.address);
        }
    }
    Ok(())
}

/// Whether two frontends lead clients to the same backends, as often.
pub fn same_backends(one: &FrontendView, other: &FrontendView) -> bool {
    let places = |one: &FrontendView| -> Vec<_> {
        one.backends.iter().map(|one| (one.address, one.cluster.clone(), one.slots)).collect()
    };
    places(one) == places(other)
}

/// Whether two frontends are of one import, with the same affinity.
pub fn same_attributes(one: &FrontendView, other: &FrontendView) -> bool {
    (&one.import, one.affinity_seconds) == (&other.import, other.affinity_seconds)
}

/// What clients find at an instant.
#[derive(Clone, Debug)]
struct Found {
    view: MapView,
    /// The frontends that programs look for.
    hinted: BTreeSet<FrontendId>,
}

/// What clients of a destination get.
#[derive(Clone, Copy, Debug)]
enum Outcome<'a> {
    NotOurs,
    UnknownPort,
    Found(&'a FrontendView),
}

impl Found {
    /// Checks that clients find of everything what they find in one of these. The backends and the attributes of a frontend may be
    /// those of two different ones.
    fn check_made_of(&self, allowed: &[&MapView]) -> anyhow::Result<()> {
        let all = || allowed.iter().copied().chain([&self.view]);
        for vip in all().flat_map(|view| &view.vips) {
            let is_ours = self.view.vips.contains(vip);
            let expected = allowed.iter().any(|view| view.vips.contains(vip) == is_ours);
            ensure!(expected, "VIP {vip} {}", if is_ours { "appears" } else { "vanishes" });
        }
        for id in all().flat_map(|view| view.frontends.keys()) {
            let found = self.outcome(id);
            let others: Vec<_> = allowed.iter().flat_map(|view| outcomes(view, id)).collect();
            let in_any = |same: fn(&FrontendView, &FrontendView) -> bool| {
                others.iter().any(|other| found.is_like(*other, same))
            };
            let is_mixed = !in_any(same_backends) || !in_any(same_attributes);
            ensure!(!is_mixed, "{id} is neither as before nor as planned: {found:?}");
        }
        Ok(())
    }

    fn outcome(&self, id: &FrontendId) -> Outcome<'_> {
        match self.view.frontends.get(id) {
            Some(frontend) if self.hinted.contains(id) => Outcome::Found(frontend),
            None if self.view.vips.contains(&id.ip) => Outcome::UnknownPort,
            _ => Outcome::NotOurs,
        }
    }
}

/// What clients may get. Where the VIP is not there, its hint decides whether they find the port.
fn outcomes<'a>(view: &'a MapView, id: &FrontendId) -> Vec<Outcome<'a>> {
    let found = view.frontends.get(id).map(Outcome::Found);
    if view.vips.contains(&id.ip) {
        return vec![found.unwrap_or(Outcome::UnknownPort)];
    }
    [Outcome::NotOurs].into_iter().chain(found).collect()
}

impl Outcome<'_> {
    fn is_like(self, other: Self, same: impl Fn(&FrontendView, &FrontendView) -> bool) -> bool {
        match (self, other) {
            (Self::Found(one), Self::Found(other)) => same(one, other),
            (Self::NotOurs, Self::NotOurs) | (Self::UnknownPort, Self::UnknownPort) => true,
            _ => false,
        }
    }
}

impl<M: Maps> Maps for Watched<M> {
    type Reader = M::Reader;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        if *step == Step::WaitForReaders {
            self.held.clear();
        }
        let result = self.maps.write(step);
        // Faults are injected above: one that comes from below is a mistake of the plan.
        let fault = match (&result, self.look()) {
            (Ok(()), Ok(found)) => {
                self.seen.push((step.clone(), found));
                return result;
            }
            (Ok(()), Err(fault)) => format!("{fault:#}"),
            (Err(error), _) => format!("{error}: {}", error.source),
        };
        self.fault.get_or_insert(format!("at the step `{step}`: {fault}"));
        result
    }

    fn reader(&self) -> &M::Reader {
        self.maps.reader()
    }
}

#[cfg(test)]
mod tests {
    use mcs_common::Extent;

    use super::*;
    use crate::core::{
        model::Capacity,
        tables::{
            fixtures::{id, maps, web},
            testing::MemoryMaps,
        },
    };

    const CAPACITY: Capacity =
        Capacity { vips: 2, frontends: 2, endpoints: 2, clusters: 1, imports: 2 };

    /// A frontend with backends 1 and 2 in slots 0 and 1, and its index.
    fn watched() -> (Watched<MemoryMaps>, FrontendKey, u32) {
        let both = web("web", &[("10.1.0.1:8080", "east"), ("10.1.0.2:8080", "east")]);
        let watched = Watched::new(maps(CAPACITY, &[&both]).0).unwrap();
        let frontend = &watched.view().unwrap().frontends[&id("10.0.0.1", 80)];
        let (key, index) = (frontend_key(&frontend.frontend), frontend.index);
        (watched, key, index)
    }

    /// What comes of these writes when the plan was to refuse.
    fn verdict(steps: impl FnOnce(FrontendKey, u32) -> Vec<Step>) -> Result<(), String> {
        let (mut watched, key, index) = watched();
        let refuse = Step::Flip { index, extent: Extent::default() };
        let mut planned = watched.maps.contents().clone();
        planned.write(&refuse);
        for step in steps(key, index) {
            let _ = watched.write(&step);
        }
        watched.verdict(&[view_of(&planned).unwrap()]).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn every_write_is_looked_at() {
        let refuse = |index| Step::Flip { index, extent: Extent::default() };
        verdict(|_, index| vec![refuse(index)]).unwrap();
        let vanish = verdict(|key, index| vec![Step::DeleteFrontend(key), refuse(index)]);
        assert!(vanish.unwrap_err().contains("at the step `delete 10.0.0.1:80/TCP`"));
        let beyond = verdict(|_, _| vec![Step::RetireBackend { id: 5 }]).unwrap_err();
        assert!(beyond.contains("Argument list too long"), "{beyond}");
    }

    #[test]
    fn a_mixture_is_noticed() {
        let half =
            verdict(|_, index| vec![Step::Flip { index, extent: Extent { block: 0, count: 1 } }]);
        let half = half.unwrap_err();
        assert!(half.contains("neither as before nor as planned"), "{half}");
        let leaked = verdict(|key, _| vec![Step::DeleteVip(key.vip)]).unwrap_err();
        assert!(leaked.contains("VIP 10.0.0.1 vanishes"), "{leaked}");
    }

    #[test]
    fn what_readers_hold_stays_until_they_have_gone() {
        let record = |watched: &Watched<MemoryMaps>| watched.maps.contents().backends[2];
        let written = |watched: &Watched<MemoryMaps>| Step::WriteBackend {
            id: 2,
            backend: BackendRecord { generation: 9, ..record(watched) },
        };
        let (mut watched, _, index) = watched();
        watched.write(&Step::Flip { index, extent: Extent { block: 0, count: 1 } }).unwrap();
        let mut late = watched.clone();
        let step = written(&watched);
        watched.write(&step).unwrap();
        let fault = watched.verdict(&[]).unwrap_err().to_string();
        assert!(fault.contains("backend 2, which is in use, was written"), "{fault}");
        late.write(&Step::WaitForReaders).unwrap();
        late.write(&step).unwrap();
        assert_eq!(late.fault, None);
    }

    #[test]
    fn a_backend_that_changes_its_id_is_noticed() {
        let (watched, ..) = watched();
        let before = watched.view().unwrap();
        let mut moved = watched.maps.contents().clone();
        let next = BackendRecord { generation: 2, ..moved.backends[2] };
        moved.write(&Step::WriteBackend { id: 2, backend: next });
        let moved = view_of(&moved).unwrap();
        check_keeps(&before, &before).unwrap();
        assert!(check_keeps(&moved, &before).is_err());
        check_keeps(&moved, &MapView::default()).unwrap();
    }
}
