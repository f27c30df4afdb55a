//! Checks that clients find consistent entries in the maps while an agent writes them.

use anyhow::ensure;
use mcs_agent::{
    model::FrontendId,
    reconcile::{BackendView, FrontendStatus, FrontendView, MapContents, MapView},
};

/// Reads the maps. An error if any entries contradict each other.
pub(super) fn view_of(contents: &MapContents) -> anyhow::Result<MapView> {
    let view = MapView::of(contents);
    ensure!(view.faults.is_empty(), "{}", view.faults.join("; "));
    Ok(view)
}

/// Checks that clients find of everything what they find in one of the `others`. The backends and the
/// attributes of a frontend may be those of two different ones.
pub(super) fn check_made_of(view: &MapView, others: &[MapView]) -> anyhow::Result<()> {
    let all = || others.iter().chain([view]);
    for vip in all().flat_map(|view| &view.vips) {
        let is_ours = view.vips.contains(vip);
        let expected = others.iter().any(|other| other.vips.contains(vip) == is_ours);
        ensure!(expected, "VIP {vip} {}", if is_ours { "appears" } else { "vanishes" });
    }
    for id in all().flat_map(|view| view.frontends.keys()) {
        let found = outcome(view, id);
        let in_any = |same: fn(&FrontendView, &FrontendView) -> bool| {
            others.iter().any(|other| found.is_like(outcome(other, id), same))
        };
        let is_mixed = !in_any(has_backends_of) || !in_any(has_attributes_of);
        ensure!(!is_mixed, "{id} is neither as before nor as planned: {found:?}");
    }
    Ok(())
}

/// Checks that every backend that stays in a frontend, or is kept, has the id and generation that clients
/// remember.
pub(super) fn check_keeps(view: &MapView, former: &MapView) -> anyhow::Result<()> {
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

/// What clients of a destination get.
#[derive(Clone, Copy, Debug)]
enum Outcome<'a> {
    NotOurs,
    UnknownPort,
    Found(&'a FrontendView),
}

fn outcome<'a>(view: &'a MapView, id: &FrontendId) -> Outcome<'a> {
    if !view.vips.contains(&id.ip) {
        return Outcome::NotOurs;
    }
    let active = |frontend: &&FrontendView| frontend.state != FrontendStatus::Inactive;
    view.frontends.get(id).filter(active).map_or(Outcome::UnknownPort, Outcome::Found)
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

fn has_backends_of(one: &FrontendView, other: &FrontendView) -> bool {
    one.backends == other.backends
}

fn has_attributes_of(one: &FrontendView, other: &FrontendView) -> bool {
    (&one.import, one.affinity_seconds) == (&other.import, other.affinity_seconds)
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::IpAddr;

    use mcs_agent::{
        model::ObjectKey,
        reconcile::{NameMap, NameRecord, Step},
    };
    use mcs_common::{Address, BackendRecord, BackendState, Extent, FrontendKey, FrontendState};

    use super::*;

    fn vip() -> Address {
        IpAddr::from([10, 96, 0, 1]).into()
    }

    pub(in crate::scenario) fn key() -> FrontendKey {
        FrontendKey::new(vip(), 80, 6)
    }

    pub(in crate::scenario) fn backend(last_byte: u8) -> BackendRecord {
        BackendRecord {
            addr: IpAddr::from([10, 1, 0, last_byte]).into(),
            port: 8080,
            state: BackendState::ACTIVE,
            column: 0,
            frontend: 1,
            cluster: 1,
            generation: 1,
        }
    }

    /// A frontend with backends 1 and 2 in slots 0 and 1.
    pub(in crate::scenario) fn dump() -> MapContents {
        let mut dump = MapContents::default();
        let state = FrontendState {
            key: key(),
            extent: Extent { block: 0, count: 2 },
            service: 1,
            flags: 0,
            affinity_seconds: 0,
            row: 0,
        };
        let service = NameRecord::of_import(&ObjectKey::new("shop", "web"));
        let cluster = NameRecord::of_cluster("east");
        for step in [
            Step::WriteName { map: NameMap::Services, id: 1, record: service.into() },
            Step::WriteName { map: NameMap::Clusters, id: 1, record: cluster.into() },
            Step::WriteBackend { id: 1, backend: backend(1) },
            Step::WriteBackend { id: 2, backend: backend(2) },
            Step::WriteSlots { block: 0, ids: vec![1, 2] },
            Step::WriteState { index: 1, state: state.into() },
            Step::InsertFrontend { key: key(), index: 1 },
            Step::InsertVip(vip()),
        ] {
            dump.write(&step);
        }
        dump
    }

    fn after(steps: &[Step]) -> anyhow::Result<MapView> {
        let mut dump = dump();
        for step in steps {
            dump.write(step);
        }
        view_of(&dump)
    }

    #[test]
    fn contradicting_entries_are_an_error() {
        assert!(after(&[Step::RetireBackend { id: 2 }]).is_err());
    }

    #[test]
    fn a_mixture_is_noticed() {
        let before = after(&[]).unwrap();
        let refused = after(&[Step::Flip { index: 1, extent: Extent::default() }]).unwrap();
        let half =
            after(&[Step::Flip { index: 1, extent: Extent { block: 0, count: 1 } }]).unwrap();
        let gone = after(&[Step::DeleteFrontend(key())]).unwrap();
        let leaked = after(&[Step::DeleteVip(vip())]).unwrap();
        let allowed = [before.clone(), refused.clone()];
        for same in [&before, &refused] {
            check_made_of(same, &allowed).unwrap();
        }
        for other in [half, gone, leaked] {
            assert!(check_made_of(&other, &allowed).is_err(), "{other}");
        }
    }

    #[test]
    fn a_backend_that_changes_its_id_is_noticed() {
        let before = after(&[]).unwrap();
        let next = BackendRecord { generation: 2, ..backend(2) };
        let moved = after(&[Step::WriteBackend { id: 2, backend: next }]).unwrap();
        check_keeps(&before, &before).unwrap();
        assert!(check_keeps(&moved, &before).is_err());
        check_keeps(&moved, &MapView::default()).unwrap();
    }
}
