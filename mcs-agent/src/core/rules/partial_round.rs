//! A partial round: the rules evaluate the imports that changed, and those whose slices did. They do so only if the changes
//! concern no other import.

use std::{collections::BTreeSet, iter, net::IpAddr};

use super::{
    assigned_import::AssignedImport,
    claim::{self, Assignment, Claim, Unclaimed},
    eligibility::{self, Coverage},
    fields::{self, ObjectProblem},
    full_round::{self, Evaluation, Round, new_rejections},
    preference::Preferences,
    report,
};
use crate::core::{
    model::{
        DesiredChanges, FrontendId, Kind, LeftAloneReason, NodeContext, ObjectKey, ObjectRef,
        Parts, Rejection, RejectionReason, ServiceImport,
    },
    store::{DirtyObjects, Snapshot},
};

/// A full round of more imports takes no longer than a partial one.
const MOST_IMPORTS: usize = 1000;

/// An import that changed, or whose slices change what it claims.
#[derive(Debug)]
pub(super) struct Changed<'a> {
    key: ObjectKey,
    /// The import, if it exists, and what it claims.
    now: Option<(&'a ServiceImport, Result<Claim, Unclaimed>)>,
}

/// What the changed imports claim. `None`: that concerns other imports, or not everything fits.
pub(super) fn changed<'a>(
    latest: &Evaluation,
    snapshot: &'a Snapshot,
    dirty: &DirtyObjects,
    node: &NodeContext,
    preferences: &Preferences,
) -> Option<Vec<Changed<'a>>> {
    let is_limited = latest.is_limited && *dirty != DirtyObjects::default();
    if is_limited || dirty.imports.len() > MOST_IMPORTS {
        return None;
    }
    let of_slices = dirty.reselected.iter().filter(|key| {
        let import = snapshot.import(key);
        import.is_some_and(|import| changes_eligibility(latest, import, snapshot, node))
    });
    let keys: BTreeSet<&ObjectKey> = dirty.imports.iter().chain(of_slices).collect();
    if keys.len() > MOST_IMPORTS || (latest.is_crowded && !keys.is_empty()) {
        return None;
    }
    let mut new_vips = BTreeSet::new();
    let mut all = Vec::with_capacity(keys.len());
    let mut vips = latest.vips.len();
    let mut frontends = latest.desired.frontends.len();
    for key in keys {
        let former = latest.claims.get(key);
        let changed = Changed::of(key, latest, snapshot, node, preferences)?;
        let (had, has) = (vips_of(former), vips_of(changed.claim()));
        for ip in has.iter().filter(|ip| !had.contains(ip)) {
            let is_taken = latest.vips.contains_key(ip) || !new_vips.insert(*ip);
            if is_taken || snapshot.can_be_endpoint(*ip) {
                return None;
            }
        }
        if had.iter().any(|ip| !has.contains(ip) && snapshot.can_be_endpoint(*ip)) {
            return None;
        }
        vips = vips + has.len() - had.len();
        frontends = frontends + changed.claim().map_or(0, |claim| claim.frontends().count())
            - former.map_or(0, |claim| claim.assigned.frontends.len());
        all.push(changed);
    }
    let fits = |count: usize, room: u32| u32::try_from(count).is_ok_and(|count| count <= room);
    let fit = fits(vips, node.capacity.vips) && fits(frontends, node.capacity.frontends);
    fit.then_some(all)
}

fn vips_of(claim: Option<&Claim>) -> &[IpAddr] {
    claim.map_or(&[], |claim| &claim.vips)
}

impl<'a> Changed<'a> {
    /// `None`: it concerns other imports, whatever it claims.
    fn of(
        key: &ObjectKey,
        latest: &Evaluation,
        snapshot: &'a Snapshot,
        node: &NodeContext,
        preferences: &Preferences,
    ) -> Option<Self> {
        let is_malformed =
            snapshot.problem(&ObjectRef { kind: Kind::ServiceImport, key: key.clone() }).is_some();
        let shares_vips = |claim: &Claim| claim.assigned.shares_vips;
        if is_malformed || latest.claims.get(key).is_some_and(shares_vips) {
            return None;
        }
        let Some(import) = snapshot.import(key) else {
            return Some(Self { key: key.clone(), now: None });
        };
        let coverage = Coverage::of(import, snapshot.slices(key), node);
        let claim = claim::evaluate(import, &coverage, node, &latest.desired, preferences);
        let changed = Self { key: key.clone(), now: Some((import, claim)) };
        // An address that is listed and not served belongs to somebody else.
        let claimed = vips_of(changed.claim());
        let mut listed = import.ips.iter().filter_map(|text| text.parse().ok());
        let is_departed =
            |ip: IpAddr| !claimed.contains(&ip) && latest.desired.departed.contains_key(&ip);
        (!listed.any(is_departed)).then_some(changed)
    }

    fn claim(&self) -> Option<&Claim> {
        self.now.as_ref()?.1.as_ref().ok()
    }
}

/// Whether an import's slices now change what it claims, or the reason why it is left alone.
fn changes_eligibility(
    latest: &Evaluation,
    import: &ServiceImport,
    snapshot: &Snapshot,
    node: &NodeContext,
) -> bool {
    let coverage = Coverage::of(import, snapshot.slices(&import.key), node);
    let now = eligibility::why_left_alone(import, &coverage);
    if let Some(before) = latest.claims.get(&import.key) {
        return now.is_some() || changes_claim(before, import, coverage.has_slices(), node);
    }
    let before = latest.desired.report(&import.key);
    match before.and_then(|report| report.left_alone.zip(Some(&report.message))) {
        Some((LeftAloneReason::ServiceRange, _)) if now.is_none() => coverage.has_slices(),
        Some((_, message)) => now.is_none_or(|now| now.message != *message),
        None => now.is_some(),
    }
}

/// Whether an import claims other VIPs or gets other frontends, since it has its first slice or has lost its last one.
fn changes_claim(
    before: &Claim,
    import: &ServiceImport,
    has_slices: bool,
    node: &NodeContext,
) -> bool {
    let yields = || eligibility::yields_to_services(import, has_slices);
    before.has_slices != has_slices
        && (before.assigned.is_contested
            || !before.left_vips.is_empty()
            || (yields() && before.vips.iter().any(|vip| node.may_be_service(*vip))))
}

/// Evaluates the changed imports, and selects the backends of those whose slices changed. Replaces what `latest` has of them.
///
/// `None`: a full round has to decide, since the backends of all imports together do not fit.
pub(super) fn evaluate(
    latest: &mut Evaluation,
    mut changed: Vec<Changed<'_>>,
    snapshot: &Snapshot,
    dirty: &DirtyObjects,
    node: &NodeContext,
    preferences: &mut Preferences,
) -> Option<Round> {
    let mut totals = latest.totals.clone();
    let mut imports = Vec::new();
    let mut select = |claim: &Claim, import, preferences: &mut Preferences| {
        imports.push(claim.select_backends(
            import,
            snapshot,
            &latest.vips,
            node,
            preferences,
            &mut (),
        ));
    };
    let is_changed = |key: &ObjectKey| changed.binary_search_by(|one| one.key.cmp(key)).is_ok();
    for key in dirty.reselected.iter().filter(|key| !is_changed(key)) {
        // Slices give this import no claim: without one it still has none.
        let Some((import, claim)) = snapshot.import(key).zip(latest.claims.get(key)) else {
            continue;
        };
        for id in frontends_of(Some(claim)) {
            totals.remove(latest.desired.frontends.get(&id)?);
        }
        select(claim, import, preferences);
    }
    for Changed { key, now } in &mut changed {
        let former: Vec<_> = frontends_of(latest.claims.get(key)).collect();
        for id in &former {
            totals.remove(latest.desired.frontends.get(id)?);
        }
        preferences.each(|one| one.begin(Some(&former)));
        if let Some((import, Ok(claim))) = now {
            let frontends = claim.frontends().collect();
            claim.assigned = Assignment { frontends, has_vip: true, ..Assignment::default() };
            select(claim, import, preferences);
        }
        preferences.each(|one| one.end());
    }
    for (id, frontend) in imports.iter_mut().flat_map(|assigned| &mut assigned.frontends) {
        frontend.hold_of(latest.desired.frontends.get(id));
        totals.add(frontend);
    }
    if !totals.fit(node.capacity) {
        return None;
    }
    latest.totals = totals;
    let mut edit = Edit::new(latest, snapshot, dirty);
    for one in changed {
        edit.replace_claim(one);
    }
    for assigned in imports {
        edit.replace_backends(assigned);
    }
    Some(edit.round(node))
}

fn frontends_of(claim: Option<&Claim>) -> impl Iterator<Item = FrontendId> {
    claim.into_iter().flat_map(|claim| &claim.assigned.frontends).map(|frontend| frontend.id)
}

/// The latest result while a round replaces parts of it.
struct Edit<'a> {
    latest: &'a mut Evaluation,
    snapshot: &'a Snapshot,
    parts: Parts,
    /// The objects that the round has evaluated, and all that is wrong with them.
    evaluated: BTreeSet<ObjectRef>,
    rejections: Vec<Rejection>,
    /// VIPs that nobody claims any more, and those of them that a derived Service can have.
    gone: BTreeSet<IpAddr>,
    derived: BTreeSet<IpAddr>,
}

impl<'a> Edit<'a> {
    fn new(latest: &'a mut Evaluation, snapshot: &'a Snapshot, dirty: &DirtyObjects) -> Self {
        let evaluated: BTreeSet<ObjectRef> = dirty.slices.iter().map(slice_ref).collect();
        let malformed = evaluated.iter().filter_map(|object| {
            let message = snapshot.problem(object)?;
            Some(ObjectProblem::new(RejectionReason::Malformed, message).of(object))
        });
        let rejections = malformed.collect();
        let (parts, gone, derived) = (Parts::default(), BTreeSet::new(), BTreeSet::new());
        Self { latest, snapshot, parts, evaluated, rejections, gone, derived }
    }

    fn replace_claim(&mut self, Changed { key, now }: Changed<'_>) {
        let Evaluation { desired, claims, ejecting, vips, .. } = &mut *self.latest;
        let kinds = [Kind::ServiceImport, Kind::Service];
        self.evaluated.extend(kinds.map(|kind| ObjectRef { kind, key: key.clone() }));
        self.evaluated.extend(self.snapshot.slices(&key).map(|slice| slice_ref(&slice.key)));
        let former = claims.remove(&key);
        let claim = now.as_ref().and_then(|(_, claim)| claim.as_ref().ok());
        let (had, has) = (vips_of(former.as_ref()), vips_of(claim));
        for ip in had.iter().filter(|ip| !has.contains(ip)) {
            vips.remove(ip);
            desired.vips.remove(ip);
            self.gone.insert(*ip);
            if former.as_ref().is_some_and(|claim| claim.has_derived_service) {
                self.derived.insert(*ip);
            }
        }
        for ip in has.iter().filter(|ip| !had.contains(ip)) {
            vips.insert(*ip, key.clone());
            desired.vips.insert(*ip);
            self.parts.vips.insert(*ip);
        }
        let ids: BTreeSet<FrontendId> = frontends_of(claim).collect();
        for id in frontends_of(former.as_ref()).filter(|id| !ids.contains(id)) {
            desired.frontends.remove(&id);
            self.parts.frontends.insert(id);
        }
        ejecting.remove(&key);
        match now {
            None => desired.remove_report(&key),
            Some((import, Err(unclaimed))) => {
                desired.put_report(report::of_unclaimed(&key, &unclaimed));
                self.rejections.extend(fields::rejections(unclaimed.problems, &import.read_from()));
            }
            Some((_, Ok(claim))) => {
                ejecting.extend(claim.wishes.ejects.then(|| key.clone()));
                claims.insert(key, claim);
            }
        }
    }

    fn replace_backends(&mut self, assigned: AssignedImport<'_>) {
        let desired = &mut self.latest.desired;
        let slices = self.snapshot.slices(&assigned.import.key);
        self.evaluated.extend(slices.map(|one| slice_ref(&one.key)));
        desired.put_report(report::of_assigned(&assigned));
        let object = assigned.import.read_from();
        self.rejections.extend(assigned.slice_rejections);
        self.rejections.extend(fields::rejections(assigned.problems, &object));
        self.evaluated.insert(object);
        for (id, frontend) in assigned.frontends {
            if desired.frontends.get(&id) != Some(&frontend) {
                desired.frontends.insert(id, frontend);
                self.parts.frontends.insert(id);
            }
        }
    }

    fn round(mut self, node: &NodeContext) -> Round {
        let desired = &mut self.latest.desired;
        self.rejections.sort();
        let new_rejections = new_rejections(&desired.rejections, &self.rejections);
        replace_rejections(&mut desired.rejections, &self.evaluated, self.rejections);
        self.parts.vips.extend(&self.gone);
        let departures =
            full_round::of_gone(&self.gone, &self.derived, self.snapshot, desired, node);
        Round { changes: DesiredChanges::Parts(self.parts), new_rejections, departures }
    }
}

fn slice_ref(key: &ObjectKey) -> ObjectRef {
    ObjectRef { kind: Kind::EndpointSlice, key: key.clone() }
}

/// Replaces the rejections of the evaluated objects. Both lists are sorted by object.
fn replace_rejections(
    all: &mut Vec<Rejection>,
    evaluated: &BTreeSet<ObjectRef>,
    rejections: Vec<Rejection>,
) {
    let mut rejections = rejections.into_iter().peekable();
    for object in evaluated {
        let begin = all.partition_point(|one| one.object < *object);
        let count = all[begin..].partition_point(|one| one.object == *object);
        let now = iter::from_fn(|| rejections.next_if(|now| now.object == *object));
        all.splice(begin..begin + count, now);
    }
}
