use std::{collections::BTreeSet, iter, sync::Arc};

use super::{
    refusal::Refusal,
    report, scope,
    service::Service,
    totals::Totals,
    whole::{self, Whole},
};
use crate::{
    model::{
        DesiredChanges, DesiredState, Frontend, FrontendId, ImportReport, ImportState, Kind,
        NodeContext, ObjectKey, ObjectRef, Rejection, RejectionReason, ServiceImport,
    },
    store::{DirtyObjects, Snapshot},
};

/// The rules, and what they have come to: what stays as it was is not judged again.
///
/// Slices decide about the frontends of their own import alone, as long as there is room for all
/// backends; imports contend with each other.
#[derive(Debug, Default)]
pub struct Rules {
    node: NodeContext,
    whole: Whole,
    totals: Totals,
}

/// What an update has made different.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Round {
    /// Where.
    pub changes: DesiredChanges,
    /// What is turned down now, and was not before.
    pub new_rejections: Vec<Rejection>,
}

/// What slices have made of their import.
type Served<'a> = (Service<'a>, Vec<Rejection>);

impl Rules {
    /// What the objects ask of this node, and what is turned down of it.
    ///
    /// Depends on the latest objects and the node alone, not on the order in which objects came. Where there
    /// is no room for all, what is in force keeps its room, and what is new is turned down.
    pub const fn desired(&self) -> &DesiredState {
        &self.whole.desired
    }

    /// How much that is.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Whether what was dirty since the latest update makes all imports contend anew, which takes
    /// much longer than to look at their endpoints.
    pub fn needs_full_round(&self, snapshot: &Snapshot, dirty: &DirtyObjects) -> bool {
        let mut imports = dirty.services.iter().filter_map(|key| snapshot.import(key));
        dirty.imports
            || (self.whole.bounded && !dirty.slices.is_empty())
            || imports.any(|import| self.is_claimed_anew(import, snapshot))
    }

    /// Judges what was dirty since the latest update, and what depends on it. `found`: what is in force,
    /// if that is not what is desired.
    pub fn evaluate(
        &mut self,
        snapshot: &Snapshot,
        dirty: &DirtyObjects,
        node: &NodeContext,
        found: Option<&DesiredState>,
    ) -> Round {
        let slices_alone = self.node == *node && !self.needs_full_round(snapshot, dirty);
        if slices_alone && let Some((served, totals)) = self.serve(snapshot, dirty, node) {
            self.totals = totals;
            return self.replace(snapshot, dirty, served);
        }
        let in_force = found.unwrap_or(&self.whole.desired);
        let whole = whole::judge(snapshot, node, in_force);
        let new_rejections = news(&self.whole.desired.rejections, &whole.desired.rejections);
        self.totals = Totals::of(&whole.desired);
        self.whole = whole;
        if self.node != *node {
            self.node.clone_from(node);
        }
        Round { changes: DesiredChanges::Everything, new_rejections }
    }

    /// Gives the imports whose slices were dirty their backends anew. `None`: there is no room for all.
    fn serve<'a>(
        &self,
        snapshot: &'a Snapshot,
        dirty: &DirtyObjects,
        node: &NodeContext,
    ) -> Option<(Vec<Served<'a>>, Totals)> {
        let mut all = Vec::new();
        let mut totals = self.totals.clone();
        for key in &dirty.services {
            let Some(import) = snapshot.import(key) else { continue };
            // One that claims nothing goes on claiming nothing.
            let Some(standing) = self.whole.standings.get(key) else { continue };
            let served = standing.serve(import, snapshot, &self.whole.vips, node);
            for (id, frontend) in &served.0.frontends {
                totals.remove(self.frontend(id)?);
                totals.add(frontend);
            }
            all.push(served);
        }
        totals.fit(node.capacity).then_some((all, totals))
    }

    fn frontend(&self, id: &FrontendId) -> Option<&Frontend> {
        self.whole.desired.frontends.get(id)
    }

    /// Whether slices decide otherwise than before about who serves an import.
    fn is_claimed_anew(&self, import: &ServiceImport, snapshot: &Snapshot) -> bool {
        let has_slices = snapshot.slices(&import.key).next().is_some();
        let left_alone = |report: &&ImportReport| report.state == ImportState::LeftAlone;
        let before = self.report(&import.key).filter(left_alone).map(|report| &*report.message);
        scope::left_alone(import, has_slices).as_deref() != before
    }

    fn report(&self, import: &ObjectKey) -> Option<&ImportReport> {
        let reports = &self.whole.desired.imports;
        let place = reports.binary_search_by(|report| report.import.cmp(import)).ok()?;
        Some(&reports[place])
    }

    /// Puts this in the place of what these imports had.
    fn replace(
        &mut self,
        snapshot: &Snapshot,
        dirty: &DirtyObjects,
        all: Vec<Served<'_>>,
    ) -> Round {
        let slice = |key: &ObjectKey| ObjectRef { kind: Kind::EndpointSlice, key: key.clone() };
        let mut judged: BTreeSet<ObjectRef> = dirty.slices.iter().map(slice).collect();
        let mut rejections: Vec<Rejection> = judged
            .iter()
            .filter_map(|object| {
                let message = snapshot.problem(object)?;
                Some(Refusal::new(RejectionReason::Malformed, message).of(object))
            })
            .collect();
        let mut changed = BTreeSet::new();
        for (service, refused) in all {
            let import = &service.import.key;
            judged.extend(snapshot.slices(import).map(|one| slice(&one.key)));
            rejections.extend(refused);
            let reports = &mut self.whole.desired.imports;
            if let Ok(place) = reports.binary_search_by(|report| report.import.cmp(import)) {
                reports[place] = Arc::new(report::of_service(&service));
            }
            let object = ObjectRef { kind: Kind::ServiceImport, key: import.clone() };
            rejections.extend(service.refusals.into_iter().map(|refusal| refusal.of(&object)));
            judged.insert(object);
            for (id, frontend) in service.frontends {
                if self.frontend(&id) != Some(&frontend) {
                    self.whole.desired.frontends.insert(id, frontend);
                    changed.insert(id);
                }
            }
        }
        rejections.sort();
        let former = &mut self.whole.desired.rejections;
        let new_rejections = news(former, &rejections);
        let mut rejections = rejections.into_iter().peekable();
        for object in &judged {
            let begin = former.partition_point(|former| former.object < *object);
            let count = former[begin..].partition_point(|former| former.object == *object);
            let now = iter::from_fn(|| rejections.next_if(|now| now.object == *object));
            former.splice(begin..begin + count, now);
        }
        Round { changes: DesiredChanges::Backends(changed), new_rejections }
    }
}

/// What of `after` was not turned down `before`; both are sorted.
fn news(before: &[Rejection], after: &[Rejection]) -> Vec<Rejection> {
    let is_known = |rejection: &Rejection| match rejection.reason {
        // What it says counts what all objects want, and changes with each of them.
        RejectionReason::Capacity => {
            let of_same = (&rejection.object, rejection.reason);
            before.binary_search_by(|one| (&one.object, one.reason).cmp(&of_same))
        }
        _ => before.binary_search(rejection),
    };
    after.iter().filter(|rejection| is_known(rejection).is_err()).cloned().collect()
}
