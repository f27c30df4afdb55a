use std::collections::BTreeMap;

use mcs_common::{Address, FrontendKey};

use crate::{
    model::{Backend, Frontend, FrontendId},
    reconcile::{
        Realized,
        convert::{attributes, cluster_record, frontend_key, service_record},
    },
};

/// What a frontend is to become.
pub(super) struct Target<'a> {
    pub(super) id: &'a FrontendId,
    pub(super) key: FrontendKey,
    pub(super) frontend: &'a Frontend,
    /// Its index, if it exists.
    pub(super) index: Option<u32>,
    /// In the order of their slots: by address.
    pub(super) members: Vec<Member<'a>>,
    /// How many backends it has.
    former: u32,
}

/// A backend of the set to come.
pub(super) struct Member<'a> {
    place: Place,
    pub(super) source: Source<'a>,
}

type Place = (Address, u16);

#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// The frontend has it, by this id: those who remember it stay with it.
    Kept(u32),
    /// It needs an id.
    Added(&'a Backend),
}

impl<'a> Target<'a> {
    /// A frontend that is not in the maps.
    pub(super) fn new(id: &'a FrontendId, frontend: &'a Frontend) -> Self {
        let members = match_up(&frontend.backends, &mut BTreeMap::new(), |_, _| false);
        Self { id, key: frontend_key(id), frontend, index: None, members, former: 0 }
    }

    /// The frontend at `index` with the wanted backends instead of its own.
    pub(super) fn replace(
        realized: &Realized,
        index: u32,
        id: &'a FrontendId,
        frontend: &'a Frontend,
    ) -> Self {
        Self::change(realized, index, id, frontend, false)
    }

    /// The frontend at `index` with the wanted backends besides its own. `None` if it was another
    /// service's: whose it is now can't be told yet.
    pub(super) fn extend(
        realized: &Realized,
        index: u32,
        id: &'a FrontendId,
        frontend: &'a Frontend,
    ) -> Option<Self> {
        let service = realized.service(realized.state(index).service);
        (service == service_record(&frontend.import))
            .then(|| Self::change(realized, index, id, frontend, true))
    }

    fn change(
        realized: &Realized,
        index: u32,
        id: &'a FrontendId,
        frontend: &'a Frontend,
        keep_all: bool,
    ) -> Self {
        let extent = realized.state(index).extent;
        let mut own: BTreeMap<Place, u32> = realized
            .ids(extent)
            .map(|id| {
                let backend = realized.backend(id);
                ((backend.addr, backend.port), id)
            })
            .collect();
        let same_cluster = |id, backend: &Backend| {
            realized.cluster(realized.backend(id).cluster) == cluster_record(&backend.cluster)
        };
        let mut members = match_up(&frontend.backends, &mut own, same_cluster);
        if keep_all {
            let rest = own.into_iter();
            members.extend(rest.map(|(place, id)| Member { place, source: Source::Kept(id) }));
        }
        members.sort_by_key(|member| member.place);
        let key = frontend_key(id);
        Self { id, key, frontend, index: Some(index), members, former: extent.count }
    }

    pub(super) const fn is_new(&self) -> bool {
        self.index.is_none()
    }

    /// How many slots the set to come has.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// How many backends more than now.
    pub(super) fn growth(&self) -> i64 {
        i64::from(self.count()) - i64::from(self.former)
    }

    /// The backends that need an id.
    pub(super) fn added(&self) -> impl Iterator<Item = &'a Backend> {
        self.members.iter().filter_map(|member| match member.source {
            Source::Kept(_) => None,
            Source::Added(backend) => Some(backend),
        })
    }

    /// Whether the set to come is not the one that is there.
    pub(super) fn changes_backends(&self) -> bool {
        self.count() != self.former || self.added().next().is_some()
    }

    /// Whether the service or the affinity to come is not the one that is there.
    pub(super) fn changes_attributes(&self, realized: &Realized) -> bool {
        let Some(index) = self.index else { return true };
        let state = realized.state(index);
        (state.flags, state.affinity_seconds) != attributes(self.frontend)
            || realized.service(state.service) != service_record(&self.frontend.import)
    }

    /// Whether there is anything to do.
    pub(super) fn differs(&self, realized: &Realized) -> bool {
        self.is_new() || self.changes_backends() || self.changes_attributes(realized)
    }
}

/// Finds each wanted backend among the frontend's own, and takes those at a wanted place out of
/// them.
fn match_up<'a>(
    wanted: &'a [Backend],
    own: &mut BTreeMap<Place, u32>,
    same_cluster: impl Fn(u32, &Backend) -> bool,
) -> Vec<Member<'a>> {
    wanted
        .iter()
        .map(|backend| {
            let place = (backend.address.ip().into(), backend.address.port());
            let source = match own.remove(&place) {
                Some(id) if same_cluster(id, backend) => Source::Kept(id),
                _ => Source::Added(backend),
            };
            Member { place, source }
        })
        .collect()
}
