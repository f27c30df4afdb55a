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
        Desired, Frontend, FrontendId, ImportReport, ImportState, Kind, NodeContext, ObjectKey,
        ObjectRef, Reason, Rejection, Scope, ServiceImport,
    },
    store::{Snapshot, Touched},
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
pub struct Update {
    /// Where.
    pub scope: Scope,
    /// What is turned down now, and was not before.
    pub rejected: Vec<Rejection>,
}

/// What slices have made of their import.
type Served<'a> = (Service<'a>, Vec<Rejection>);

impl Rules {
    /// What the objects ask of this node, and what is turned down of it.
    ///
    /// Depends on the latest objects and the node alone, not on the order in which objects came. Where there
    /// is no room for all, what is in force keeps its room, and what is new is turned down.
    pub const fn desired(&self) -> &Desired {
        &self.whole.desired
    }

    /// How much that is.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Whether what was touched since the latest update makes all imports contend anew, which takes
    /// much longer than to look at their endpoints.
    pub fn judges_all(&self, snapshot: &Snapshot, touched: &Touched) -> bool {
        let mut imports = touched.services.iter().filter_map(|key| snapshot.import(key));
        touched.imports
            || (self.whole.bounded && !touched.slices.is_empty())
            || imports.any(|import| self.is_claimed_anew(import, snapshot))
    }

    /// Judges what was touched since the latest update, and what depends on it. `found`: what is in force,
    /// if that is not what is desired.
    pub fn update(
        &mut self,
        snapshot: &Snapshot,
        touched: &Touched,
        node: &NodeContext,
        found: Option<&Desired>,
    ) -> Update {
        let slices_alone = self.node == *node && !self.judges_all(snapshot, touched);
        if slices_alone && let Some((served, totals)) = self.serve(snapshot, touched, node) {
            self.totals = totals;
            return self.replace(snapshot, touched, served);
        }
        let in_force = found.unwrap_or(&self.whole.desired);
        let whole = whole::judge(snapshot, node, in_force);
        let rejected = news(&self.whole.desired.rejections, &whole.desired.rejections);
        self.totals = Totals::of(&whole.desired);
        self.whole = whole;
        if self.node != *node {
            self.node.clone_from(node);
        }
        Update { scope: Scope::Everything, rejected }
    }

    /// Gives the imports whose slices were touched their backends anew. `None`: there is no room for all.
    fn serve<'a>(
        &self,
        snapshot: &'a Snapshot,
        touched: &Touched,
        node: &NodeContext,
    ) -> Option<(Vec<Served<'a>>, Totals)> {
        let mut all = Vec::new();
        let mut totals = self.totals.clone();
        for key in &touched.services {
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
    fn replace(&mut self, snapshot: &Snapshot, touched: &Touched, all: Vec<Served<'_>>) -> Update {
        let slice = |key: &ObjectKey| ObjectRef { kind: Kind::EndpointSlice, key: key.clone() };
        let mut judged: BTreeSet<ObjectRef> = touched.slices.iter().map(slice).collect();
        let mut rejections: Vec<Rejection> = judged
            .iter()
            .filter_map(|object| {
                let message = snapshot.problem(object)?;
                Some(Refusal::new(Reason::Malformed, message).of(object))
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
        let rejected = news(former, &rejections);
        let mut rejections = rejections.into_iter().peekable();
        for object in &judged {
            let begin = former.partition_point(|former| former.object < *object);
            let count = former[begin..].partition_point(|former| former.object == *object);
            let now = iter::from_fn(|| rejections.next_if(|now| now.object == *object));
            former.splice(begin..begin + count, now);
        }
        Update { scope: Scope::Backends(changed), rejected }
    }
}

/// What of `after` was not turned down `before`; both are sorted.
fn news(before: &[Rejection], after: &[Rejection]) -> Vec<Rejection> {
    let is_known = |rejection: &Rejection| match rejection.reason {
        // What it says counts what all objects want, and changes with each of them.
        Reason::Capacity => {
            let of_same = (&rejection.object, rejection.reason);
            before.binary_search_by(|one| (&one.object, one.reason).cmp(&of_same))
        }
        _ => before.binary_search(rejection),
    };
    after.iter().filter(|rejection| is_known(rejection).is_err()).cloned().collect()
}
