//! An import with its assigned frontends, and the backends that its slices have for them.

use std::{collections::BTreeMap, mem, net::IpAddr};

use super::{
    claim::Claim,
    fate::Recorder,
    ip_family::IpFamily,
    preference::Preferences,
    problem::ObjectProblem,
    selection::{self, Selection},
    slice::UsableSlices,
    spill::{SpillContext, Spills},
};
use crate::{
    model::{
        Backend, Frontend, FrontendId, NodeContext, ObjectKey, Rejection, ServiceImport, Slots,
        Spill,
    },
    store::Snapshot,
};

/// An import with its frontends and their backends.
#[derive(Debug)]
pub(super) struct AssignedImport<'a> {
    pub(super) import: &'a ServiceImport,
    pub(super) frontends: Vec<(FrontendId, Frontend)>,
    /// As in [`Assignment`](super::claim::Assignment).
    pub(super) has_vip: bool,
    pub(super) has_slices: bool,
    /// A frontend that drained clusters serve, since no other cluster can.
    pub(super) drain_ignored: Option<FrontendId>,
    /// Of the first frontend of each port and IP family.
    pub(super) spill: Vec<Spill>,
    /// As in [`Claim`].
    pub(super) left_vips: Vec<IpAddr>,
    /// Of the import itself.
    pub(super) problems: Vec<ObjectProblem>,
    /// Of its slices.
    pub(super) slice_rejections: Vec<Rejection>,
}

impl Claim {
    /// The claim with the tiers of source clusters that the import has now. `None`: something else follows from them too.
    pub(super) fn with_tiers(&self, import: &ServiceImport, node: &NodeContext) -> Option<Self> {
        let (preferences, problems) = Preferences::of(import, node).ok()?;
        let had_problem = self.problems.iter().any(|problem| problem.reason.is_of_preference());
        if had_problem || !problems.is_empty() {
            return None;
        }
        Some(Self { preferences, ..self.clone() })
    }

    /// Selects the backends of every frontend from the import's slices. No endpoint may be one of
    /// `vips`.
    pub(super) fn select_backends<'a>(
        &self,
        import: &'a ServiceImport,
        snapshot: &Snapshot,
        vips: &BTreeMap<IpAddr, ObjectKey>,
        node: &NodeContext,
        spills: &mut Spills,
        recorder: &mut impl Recorder,
    ) -> AssignedImport<'a> {
        let (slices, slice_rejections) =
            UsableSlices::read(snapshot.slices(&import.key), vips, recorder);
        // VIPs of one family share the backends of a port: the first frontend that has them.
        let mut selected: BTreeMap<(usize, IpFamily), usize> = BTreeMap::new();
        let mut drain_ignored = None;
        let mut spill = Vec::new();
        let mut frontends: Vec<(FrontendId, Frontend)> =
            Vec::with_capacity(self.assigned.frontends.len());
        for frontend in &self.assigned.frontends {
            let (port, family) = (&self.ports[frontend.port], IpFamily::of(frontend.id.ip));
            let first = *selected.entry((frontend.port, family)).or_insert(frontends.len());
            let Selection { backends, slots, also_serving, ejected, ignores_drain, shares } =
                if let Some((_, first)) = frontends.get(first) {
                    let Frontend { backends, slots, also_serving, held, .. } = first.clone();
                    let ejected = held;
                    Selection { backends, slots, also_serving, ejected, ..Selection::default() }
                } else {
                    let candidates = slices.candidates(port, family);
                    recorder.port(port);
                    let context =
                        &mut SpillContext { spills, import: &import.key, frontend: frontend.id };
                    let preferences = &self.preferences;
                    selection::select(
                        candidates,
                        port.protocol,
                        self.affinity_seconds.is_some(),
                        preferences,
                        node,
                        context,
                        recorder,
                    )
                };
            if ignores_drain {
                drain_ignored.get_or_insert(frontend.id);
            }
            if !shares.is_empty() {
                spill.push(Spill { frontend: frontend.id, tiers: shares });
            }
            let value = Frontend {
                import: import.key.clone(),
                port_name: port.name.clone(),
                affinity_seconds: self.affinity_seconds,
                backends,
                slots,
                also_serving,
                held: ejected,
            };
            frontends.push((frontend.id, value));
        }
        AssignedImport {
            import,
            frontends,
            has_vip: self.assigned.has_vip,
            has_slices: slices.has_slices,
            drain_ignored,
            spill,
            left_vips: self.left_vips.clone(),
            problems: self.problems.clone(),
            slice_rejections,
        }
    }
}

impl AssignedImport<'_> {
    /// The source clusters of all backends. A cluster can come more than once.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.frontends
            .iter()
            .flat_map(|(_, frontend)| frontend.clusters())
            .map(|run| &**run.cluster)
    }

    /// Removes the backends of the source clusters that are excluded.
    pub(super) fn drop_clusters(&mut self, is_excluded: impl Fn(&str) -> bool) {
        for (_, frontend) in &mut self.frontends {
            let slots = mem::take(&mut frontend.slots);
            let all = mem::take(&mut frontend.backends);
            let counts = slots.counts(all.len());
            let (dropped, kept): (Vec<_>, Vec<_>) =
                all.into_iter().zip(counts).partition(|(one, _)| is_excluded(&one.cluster));
            let (kept, counts): (_, Vec<_>) = kept.into_iter().unzip();
            (frontend.backends, frontend.slots) = (kept, Slots::new(counts));
            note_dropped(frontend, dropped.into_iter().map(|(one, _)| one).collect());
        }
    }
}

/// Adds backends that did not fit to the endpoints that still serve: their UDP clients stay with them, and nobody destroys
/// their TCP sockets.
pub(super) fn note_dropped(frontend: &mut Frontend, dropped: Vec<Backend>) {
    if !dropped.is_empty() {
        frontend.also_serving.extend(dropped);
        frontend.also_serving.sort();
    }
}
