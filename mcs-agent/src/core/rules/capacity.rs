//! What does not fit: endpoints, slots and source clusters beyond the room of the maps.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{
    assigned_import::{AssignedImport, note_dropped},
    fields::ObjectProblem,
};
use crate::core::model::{
    Backend, Capacity, DesiredState, Frontend, FrontendId, RejectionReason, Slots,
};

/// Removes the backends that the capacity has no room for. The services are sorted by precedence.
///
/// A source cluster without room loses its backends. A frontend keeps as many backends as it has in
/// force. Its new backends fit all together or not at all: a few of them alone would spread clients
/// in a way nobody asked for. A later frontend that fits is served. If not all slots fit, each backend gets one.
///
/// Returns whether the objects want more than the capacity.
pub(super) fn limit(
    imports: &mut [AssignedImport<'_>],
    capacity: Capacity,
    in_force: &DesiredState,
) -> bool {
    limit_clusters(imports, capacity.clusters, in_force)
        | limit_endpoints(imports, capacity.endpoints, in_force)
}

/// Backends without a source cluster count as one more cluster.
fn limit_clusters(
    imports: &mut [AssignedImport<'_>],
    allowed: u32,
    in_force: &DesiredState,
) -> bool {
    let wanted: BTreeSet<&str> = imports.iter().flat_map(AssignedImport::clusters).collect();
    let limit = Limit::new(allowed, "source clusters", wanted.len());
    if limit.suffices() {
        return false;
    }
    let known = in_force.frontends.values().flat_map(Frontend::clusters);
    let known = known.map(|run| &**run.cluster);
    let known = known.filter(|cluster| wanted.contains(cluster)).map(str::to_owned);
    let mut quota = Quota::new(limit, known.collect());
    let mut admitted: BTreeSet<String> = BTreeSet::new();
    for assigned in imports {
        let mut excluded: BTreeMap<String, ObjectProblem> = BTreeMap::new();
        for cluster in assigned.clusters() {
            if admitted.contains(cluster) || excluded.contains_key(cluster) {
                continue;
            }
            let cluster = cluster.to_owned();
            match quota.take(&cluster, || format!("source cluster {cluster:?}")) {
                Ok(()) => _ = admitted.insert(cluster),
                Err(problem) => _ = excluded.insert(cluster, problem),
            }
        }
        assigned.drop_clusters(|cluster| excluded.contains_key(cluster));
        assigned.problems.extend(excluded.into_values());
    }
    true
}

fn limit_endpoints(
    imports: &mut [AssignedImport<'_>],
    allowed: u32,
    in_force: &DesiredState,
) -> bool {
    for (id, frontend) in imports.iter_mut().flat_map(|assigned| &mut assigned.frontends) {
        frontend.hold_of(in_force.frontends.get(id));
    }
    let frontends = || imports.iter().flat_map(|assigned| &assigned.frontends);
    let limit = Limit::new(allowed, "endpoints", frontends().map(|(_, one)| one.room()).sum());
    if limit.suffices() {
        return false;
    }
    give_one_slot_each(imports, limit);
    let frontends = || imports.iter().flat_map(|assigned| &assigned.frontends);
    let kept: usize = frontends().map(|(id, frontend)| base(id, frontend, in_force)).sum();
    // The limit is lower than before: no frontend keeps what it has.
    let nothing = DesiredState::default();
    let (in_force, kept) = if limit.fits(kept) { (in_force, kept) } else { (&nothing, 0) };
    let mut used = kept;
    for AssignedImport { frontends, problems, .. } in imports {
        for (id, frontend) in frontends {
            frontend.hold_of(in_force.frontends.get(id));
            let base = base(id, frontend, in_force);
            let more = frontend.room() - base;
            if limit.fits(used + more) {
                used += more;
                continue;
            }
            let count = frontend.backends.len();
            let dropped = keep(&mut frontend.backends, base, in_force.frontends.get(id));
            note_dropped(frontend, dropped);
            let what = match base {
                0 => format!("frontend {id} with {count} endpoints does not fit"),
                _ => format!("frontend {id} gets {base} of its {count} endpoints"),
            };
            problems.push(limit.exceeded(&what));
        }
    }
    true
}

/// A weight must not take the room of another frontend's endpoints.
fn give_one_slot_each(imports: &mut [AssignedImport<'_>], limit: Limit) {
    for AssignedImport { frontends, problems, .. } in imports {
        for (id, frontend) in frontends {
            if mem::take(&mut frontend.slots) != Slots::ONE_EACH {
                let what = format!(
                    "frontend {id} gets one slot for each endpoint, not by weight or spill"
                );
                problems.push(limit.exceeded(&what));
            }
        }
    }
}

/// The room that a frontend keeps in any case.
fn base(id: &FrontendId, frontend: &Frontend, in_force: &DesiredState) -> usize {
    let has = in_force.frontends.get(id).map_or(0, Frontend::room);
    (frontend.backends.len() + frontend.held).min(has)
}

/// Keeps `count` of these backends and returns the others. Backends that the frontend has in force come first.
fn keep(backends: &mut Vec<Backend>, count: usize, former: Option<&Frontend>) -> Vec<Backend> {
    let has = |backend: &Backend| {
        former.is_some_and(|former| former.backends.binary_search(backend).is_ok())
    };
    let (mut kept, new): (Vec<_>, Vec<_>) = backends.drain(..).partition(has);
    kept.extend(new);
    let dropped = kept.split_off(count);
    kept.sort();
    *backends = kept;
    dropped
}

/// How many things of a kind fit, and how many all objects together want.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    allowed: usize,
    /// The things, in the plural.
    noun: &'static str,
    wanted: usize,
}

impl Limit {
    pub(super) fn new(allowed: u32, noun: &'static str, wanted: usize) -> Self {
        Self { allowed: usize::try_from(allowed).unwrap_or(usize::MAX), noun, wanted }
    }

    pub(super) fn fits(&self, total: usize) -> bool {
        total <= self.allowed
    }

    /// Whether everything that is wanted fits.
    pub(super) fn suffices(&self) -> bool {
        self.fits(self.wanted)
    }

    pub(super) fn exceeded(&self, what: &str) -> ObjectProblem {
        let Self { allowed, noun, wanted } = self;
        let room = format!("{wanted} {noun} are wanted and --max-memory has room for {allowed}");
        ObjectProblem::advised(RejectionReason::Capacity, format_args!("{what}: {room}"))
    }
}

/// A limit that is used up one by one. It reserves room for entries that are in force.
#[derive(Debug)]
pub(super) struct Quota<T> {
    limit: Limit,
    /// The entries in force that have not taken their room yet.
    reserved: BTreeSet<T>,
    taken: usize,
}

impl<T: Ord> Quota<T> {
    /// Reserves room for the entries that are in force and wanted.
    pub(super) fn new(limit: Limit, reserved: BTreeSet<T>) -> Self {
        Self { limit, reserved, taken: 0 }
    }

    /// Takes room for one. `what` names it in the problem if there is none.
    pub(super) fn take(
        &mut self,
        who: &T,
        what: impl FnOnce() -> String,
    ) -> Result<(), ObjectProblem> {
        let others = if self.reserved.remove(who) { 0 } else { self.reserved.len() };
        if !self.limit.fits(self.taken + others + 1) {
            return Err(self.limit.exceeded(&format!("{} does not fit", what())));
        }
        self.taken += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        model::{
            Protocol, RejectionReason, ServiceImport,
            fixture::{import, key},
        },
        rules::fields::ObjectProblem,
    };

    /// A service with a frontend per list of source clusters: one backend for each.
    fn assigned<'a>(import: &'a ServiceImport, frontends: &[&[&str]]) -> AssignedImport<'a> {
        let frontends = frontends
            .iter()
            .zip(80..)
            .map(|(clusters, port)| {
                let id = FrontendId { ip: [10, 0, 0, 1].into(), port, protocol: Protocol::Tcp };
                let backends = clusters
                    .iter()
                    .zip(1..)
                    .map(|(cluster, port)| Backend {
                        address: ([10, 1, 0, 1], port).into(),
                        cluster: (*cluster).into(),
                    })
                    .collect();
                (id, Frontend::plain(key("shop/web"), backends))
            })
            .collect();
        AssignedImport::fixture(import, frontends)
    }

    fn backends(imports: &[AssignedImport<'_>]) -> Vec<Vec<usize>> {
        imports
            .iter()
            .map(|assigned| assigned.frontends.iter().map(|(_, f)| f.backends.len()).collect())
            .collect()
    }

    /// How many backends that did not fit each frontend has: their clients stay.
    fn still_serving(imports: &[AssignedImport<'_>]) -> Vec<Vec<usize>> {
        imports
            .iter()
            .map(|assigned| assigned.frontends.iter().map(|(_, f)| f.also_serving.len()).collect())
            .collect()
    }

    fn capacity(endpoints: u32, clusters: u32) -> Capacity {
        Capacity { endpoints, clusters, ..Capacity::default() }
    }

    #[test]
    fn a_frontend_fits_whole_or_refuses() {
        let web = import("shop/web");
        let three: &[&str] = &["east"; 3];
        let two: &[&str] = &["east"; 2];
        let imports = || vec![assigned(&web, &[three, two]), assigned(&web, &[three, two])];
        for (endpoints, expected, refused) in [
            (10, [[3, 2], [3, 2]], [0, 0]),
            (9, [[3, 2], [3, 0]], [0, 1]),
            (7, [[3, 2], [0, 2]], [0, 1]),
            (4, [[3, 0], [0, 0]], [1, 2]),
            (2, [[0, 2], [0, 0]], [1, 2]),
            (0, [[0, 0], [0, 0]], [2, 2]),
        ] {
            let mut imports = imports();
            limit(&mut imports, capacity(endpoints, 1), &DesiredState::default());
            assert_eq!(backends(&imports), expected.map(|row| row.to_vec()), "{endpoints}");
            let left = expected.map(|[first, second]| vec![3 - first, 2 - second]);
            assert_eq!(still_serving(&imports), left, "{endpoints}");
            assert_eq!([0, 1].map(|i: usize| imports[i].problems.len()), refused, "{endpoints}");
        }
        let mut imports = imports();
        limit(&mut imports, capacity(9, 1), &DesiredState::default());
        assert_eq!(
            imports[1].problems,
            [ObjectProblem::new(
                RejectionReason::Capacity,
                "frontend 10.0.0.1:81/TCP with 2 endpoints does not fit: 10 endpoints are wanted \
                 and --max-memory has room for 9; raise it in proportion"
            )]
        );
    }

    #[test]
    fn a_cluster_without_room_loses_its_backends() {
        let web = import("shop/web");
        let imports = || {
            vec![
                assigned(&web, &[&["east", "east"], &["west"]]),
                assigned(&web, &[&["", "east"], &["north", "west"]]),
            ]
        };
        for (clusters, expected, refused) in [
            (4, [[2, 1], [2, 2]], [0, 0]),
            (3, [[2, 1], [2, 1]], [0, 1]),
            (2, [[2, 1], [1, 1]], [0, 2]),
            (1, [[2, 0], [1, 0]], [1, 3]),
            (0, [[0, 0], [0, 0]], [2, 4]),
        ] {
            let mut imports = imports();
            limit(&mut imports, capacity(100, clusters), &DesiredState::default());
            assert_eq!(backends(&imports), expected.map(|row| row.to_vec()), "{clusters}");
            let all = [[2, 1], [2, 2]];
            let left =
                [0, 1].map(|i: usize| [0, 1].map(|j: usize| all[i][j] - expected[i][j]).to_vec());
            assert_eq!(still_serving(&imports), left, "{clusters}");
            assert_eq!([0, 1].map(|i: usize| imports[i].problems.len()), refused, "{clusters}");
        }
        let mut imports = imports();
        limit(&mut imports, capacity(100, 3), &DesiredState::default());
        assert_eq!(
            imports[1].problems,
            [ObjectProblem::new(
                RejectionReason::Capacity,
                "source cluster \"north\" does not fit: 4 source clusters are wanted and \
                 --max-memory has room for 3; raise it in proportion"
            )]
        );
    }

    /// Each step has in force what fitted in the step before.
    #[test]
    fn a_frontend_keeps_its_room() {
        let web = import("shop/web");
        // The clusters stand for the age of backends: the number of one is its place.
        let sets: [&[&str]; 5] = [&["a"; 1], &["a"; 2], &["a"; 3], &["a"; 4], &["a"; 5]];
        let mut in_force = DesiredState::default();
        for (wanted, expected) in [
            // The first of them has precedence where nothing is in force.
            ([4, 3, 1], [4, 0, 1]),
            // Who grows takes from nobody.
            ([5, 1, 1], [5, 0, 1]),
            ([5, 2, 3], [5, 0, 1]),
            // Who goes makes room, and who comes first gets it.
            ([2, 2, 3], [2, 2, 1]),
            ([1, 2, 3], [1, 2, 3]),
        ] {
            let sets = wanted.map(|count: usize| sets[count - 1]);
            let mut imports = vec![assigned(&web, &sets)];
            limit(&mut imports, capacity(6, 1), &in_force);
            assert_eq!(backends(&imports), [expected.to_vec()], "{wanted:?}");
            in_force.frontends = imports.remove(0).frontends.into_iter().collect();
        }
    }

    /// Of three backends two are found dead, and answer again later.
    #[test]
    fn an_ejected_backend_keeps_its_room() {
        let web = import("shop/web");
        let three: &[&str] = &["east"; 3];
        let step = |in_force: &mut DesiredState, ejected: usize, newer: usize| {
            let mut imports = vec![assigned(&web, &[three, &three[..newer]])];
            let (_, first) = &mut imports[0].frontends[0];
            first.backends.truncate(3 - ejected);
            first.held = ejected;
            limit(&mut imports, capacity(4, 1), in_force);
            let counts = backends(&imports).remove(0);
            let reasons = imports[0].problems.len();
            in_force.frontends = imports.remove(0).frontends.into_iter().collect();
            (counts, reasons)
        };
        let mut in_force = DesiredState::default();
        assert_eq!(step(&mut in_force, 0, 1), (vec![3, 1], 0));
        assert_eq!(step(&mut in_force, 2, 1), (vec![1, 1], 0));
        assert_eq!(step(&mut in_force, 2, 3), (vec![1, 1], 1), "nobody takes what is held");
        assert_eq!(step(&mut in_force, 0, 3), (vec![3, 1], 1), "all of them fit again");
        // It holds no more than it had.
        let mut in_force = DesiredState::default();
        assert_eq!(step(&mut in_force, 2, 3), (vec![1, 3], 0));
        assert_eq!(step(&mut in_force, 0, 3), (vec![1, 3], 1));
    }

    #[test]
    fn without_room_for_all_slots_each_backend_gets_one() {
        let web = import("shop/web");
        let nine_to_one = || {
            let mut assigned = assigned(&web, &[&["east", "west"], &["east"]]);
            assigned.frontends[0].1.slots = Slots::new([9, 1]);
            vec![assigned]
        };
        for (endpoints, slots, backends, reasons) in [
            (11, vec![10, 1], vec![2, 1], 0),
            (10, vec![2, 1], vec![2, 1], 1),
            (3, vec![2, 1], vec![2, 1], 1),
            (1, vec![0, 1], vec![0, 1], 2),
        ] {
            let mut imports = nine_to_one();
            let is_limited = limit(&mut imports, capacity(endpoints, 9), &DesiredState::default());
            let counts: Vec<_> =
                imports[0].frontends.iter().map(|(_, frontend)| frontend.slot_count()).collect();
            assert_eq!(counts, slots, "{endpoints}");
            assert_eq!(super::tests::backends(&imports), [backends], "{endpoints}");
            assert_eq!((imports[0].problems.len(), is_limited), (reasons, reasons > 0));
        }
    }

    #[test]
    fn a_set_can_be_replaced_where_there_is_no_room_for_more() {
        let at = |port: u16| Backend { address: ([10, 1, 0, 1], port).into(), cluster: "".into() };
        let former = Frontend::plain(key("shop/web"), vec![at(2), at(3)]);
        for (wanted, count, kept) in [
            (&[1, 2, 3][..], 2, &[2, 3][..]),
            (&[1, 3, 4], 2, &[1, 3]),
            (&[4, 5, 6], 2, &[4, 5]),
            (&[1, 2, 3], 1, &[2]),
        ] {
            let mut backends: Vec<_> = wanted.iter().map(|port| at(*port)).collect();
            let dropped = keep(&mut backends, count, Some(&former));
            assert_eq!(backends, kept.iter().map(|port| at(*port)).collect::<Vec<_>>());
            assert_eq!(dropped.len(), wanted.len() - count);
        }
    }
}
