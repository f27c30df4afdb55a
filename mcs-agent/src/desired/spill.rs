//! Spill: how much of the new clients each tier of source clusters gets, by its ready endpoints and by time.
//!
//! A tier is whole and takes all clients that earlier tiers leave, until it was below its threshold for a while. Then it has
//! spilled: it takes the share that its ready endpoints can serve. The share falls at once and rises late. After
//! `failback-delay` well above the threshold the tier is whole again.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use mcs_kube::wish::{self, Threshold};

use super::{problem::ObjectProblem, tier::Tier};
use crate::model::{
    FrontendId, ImportReport, ObjectKey, RejectionReason, ServiceImport, SpillWish, TierShare,
    TierState,
};

/// How long a tier is below its threshold before it spills.
const SPILL_AFTER: Duration = Duration::from_secs(10);
const DEFAULT_DELAY: Duration = Duration::from_mins(5);
/// Envoy's overprovisioning factor in percent: a tier takes 1.4 times the part of it that is ready.
const OVERPROVISIONING: u64 = 140;
const ALL: u64 = TierShare::ALL as u64;

/// What the owner of a service asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpillRule {
    threshold: Threshold,
    failback_delay: Duration,
}

/// The endpoints of a tier, whatever their condition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    pub(super) clusters: BTreeSet<Arc<str>>,
    pub(super) ready: u32,
    pub(super) draining: u32,
    pub(super) total: u32,
}

/// Where a tier is, seen from its threshold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Zone {
    Below,
    /// Above, but not far enough to get back the clients that it spilled.
    Near,
    Above,
}

/// What is remembered of a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// `below`: since when it is below its threshold.
    Whole { below: Option<Instant> },
    /// `changed`: when its share fell, or when it rose to this zone.
    Spilled { share: u64, zone: Zone, changed: Option<Instant> },
}

impl SpillRule {
    /// What the import asks for. An annotation that is bad is ignored.
    pub(super) fn of(import: &ServiceImport, problems: &mut Vec<ObjectProblem>) -> Option<Self> {
        let SpillWish { spill, failback_delay } = import.spill.as_deref()?;
        let mut bad = |message: String| {
            problems.push(ObjectProblem::new(RejectionReason::SpillInvalid, message));
        };
        let threshold = Threshold::parse(spill).map_err(&mut bad).ok()?;
        let asked = failback_delay
            .as_deref()
            .and_then(|text| wish::failback_delay(text).map_err(&mut bad).ok());
        Some(Self { threshold, failback_delay: asked.unwrap_or(DEFAULT_DELAY) })
    }

    /// The part of all clients that the ready endpoints of a tier can serve.
    fn share(self, tally: &Tally) -> u64 {
        let (ready, total) = (u64::from(tally.ready), u64::from(tally.total).max(1));
        let share = match self.threshold {
            Threshold::Ready(least) => ready * ALL / least,
            Threshold::Percent(_) => ready * ALL * OVERPROVISIONING / (total * 100),
        };
        share.min(ALL)
    }

    fn zone(self, tally: &Tally) -> Zone {
        let (ready, total) = (u64::from(tally.ready), u64::from(tally.total));
        let (is_below, is_far_above) = match self.threshold {
            Threshold::Ready(least) => (ready < least, ready * 10 >= least * 11),
            Threshold::Percent(least) => {
                (ready * 100 < least * total || total == 0, ready * 100 >= (least + 10) * total)
            }
        };
        match is_below {
            true => Zone::Below,
            // No tier has more than all of its endpoints.
            false if is_far_above || ready == total => Zone::Above,
            false => Zone::Near,
        }
    }
}

impl State {
    /// Nothing is remembered: the present decides.
    fn first(rule: SpillRule, tally: &Tally) -> Self {
        match rule.zone(tally) {
            zone @ Zone::Below => Self::Spilled { share: rule.share(tally), zone, changed: None },
            Zone::Near | Zone::Above => Self::Whole { below: None },
        }
    }

    fn next(self, rule: SpillRule, tally: &Tally, now: Instant) -> Self {
        let (share, zone) = (rule.share(tally), rule.zone(tally));
        match self {
            Self::Whole { .. } if zone > Zone::Below => Self::Whole { below: None },
            Self::Whole { below } => {
                let since = below.unwrap_or(now);
                if tally.ready == 0 || now >= since + SPILL_AFTER {
                    Self::Spilled { share, zone, changed: Some(now) }
                } else {
                    Self::Whole { below: Some(since) }
                }
            }
            Self::Spilled { share: had, zone: was, changed } => {
                let changed = if share < had || zone > was { Some(now) } else { changed };
                match changed {
                    Some(at) if now < at + rule.failback_delay => {
                        Self::Spilled { share: share.min(had), zone, changed }
                    }
                    _ if zone == Zone::Above => Self::Whole { below: None },
                    _ => Self::Spilled { share, zone, changed },
                }
            }
        }
    }

    /// When the state changes by time alone.
    fn due(self, rule: SpillRule, tally: &Tally) -> Option<Instant> {
        match self {
            Self::Whole { below } => below.map(|since| since + SPILL_AFTER),
            Self::Spilled { share, zone, changed } => changed
                .filter(|_| zone == Zone::Above || share < rule.share(tally))
                .map(|at| at + rule.failback_delay),
        }
    }

    /// The most that it takes: nothing without a ready endpoint.
    fn most(self, tally: &Tally) -> u64 {
        match self {
            _ if tally.ready == 0 => 0,
            Self::Whole { .. } => ALL,
            Self::Spilled { share, .. } => share,
        }
    }
}

/// The share of each tier, from the most that each takes. As in Envoy, the first tier is served first, and if all tiers
/// together take less than all clients, each takes proportionally more. Before that, tiers that wait for `failback-delay`
/// take what they can. If no endpoint is ready, the first tier with an endpoint that drains serves.
fn shares(mut most: Vec<u64>, rule: SpillRule, tallies: &[Tally]) -> Vec<u64> {
    let mut left = ALL.saturating_sub(most.iter().sum());
    for (most, tally) in most.iter_mut().zip(tallies) {
        let more = rule.share(tally).saturating_sub(*most).min(left);
        (*most, left) = (*most + more, left - more);
    }
    let sum = most.iter().sum::<u64>().min(ALL);
    if sum == 0 {
        let first = tallies.iter().position(|tally| tally.draining > 0);
        return (0..most.len()).map(|place| if Some(place) == first { ALL } else { 0 }).collect();
    }
    let mut left = ALL;
    let each = most.iter().map(|most| {
        let share = (most * ALL / sum).min(left);
        left -= share;
        share
    });
    each.collect()
}

/// What is remembered of the tiers of all frontends whose imports ask for spill.
#[derive(Debug, Default)]
pub(super) struct Spills {
    /// The time of the round. `None`: the present alone decides, and nothing is remembered.
    now: Option<Instant>,
    memories: BTreeMap<FrontendId, Memory>,
    /// The memories of frontends that the current full round has not come to yet.
    former: BTreeMap<FrontendId, Memory>,
    /// When to decide about a frontend again although nothing changes, and its import.
    due: BTreeMap<FrontendId, (Instant, ObjectKey)>,
    /// What the report of an agent says of frontends, for a process that explains it.
    reported: BTreeMap<FrontendId, Vec<TierShare>>,
}

#[derive(Debug)]
struct Memory {
    rule: SpillRule,
    tiers: Vec<Tier>,
    /// A tier that never had an endpoint has none.
    states: Vec<Option<State>>,
}

impl Spills {
    /// Decides as the report of an agent says.
    pub(super) fn of_report(report: Option<&ImportReport>) -> Self {
        let spills = report.into_iter().flat_map(|report| &report.spill);
        let reported = spills.map(|spill| (spill.frontend, spill.tiers.clone())).collect();
        Self { reported, ..Self::default() }
    }

    /// The next rounds are at this time.
    pub(super) const fn at(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Forgets all.
    pub(super) fn forget(&mut self) {
        *self = Self { now: self.now, ..Self::default() };
    }

    /// A full round begins: it decides about all frontends.
    pub(super) fn begin_full(&mut self) {
        self.former = mem::take(&mut self.memories);
        self.due.clear();
    }

    /// A full round ends. A frontend that is gone must not be due for ever.
    pub(super) fn end_full(&mut self) {
        self.former.clear();
    }

    /// When to evaluate the next import again although it does not change.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.values().map(|(at, _)| *at).min()
    }

    /// The imports to evaluate again in this round although they do not change.
    pub(super) fn due(&self) -> impl Iterator<Item = &ObjectKey> {
        self.due.values().filter(|(at, _)| Some(*at) <= self.now).map(|(_, import)| import)
    }
}

/// Decides about the tiers of one frontend.
#[derive(Debug)]
pub(super) struct SpillContext<'a> {
    pub(super) spills: &'a mut Spills,
    pub(super) import: &'a ObjectKey,
    pub(super) frontend: FrontendId,
}

impl SpillContext<'_> {
    /// What each tier gets. The last entry of `tallies` has the clusters of no tier.
    pub(super) fn decide(
        &mut self,
        rule: SpillRule,
        tiers: &[Tier],
        tallies: Vec<Tally>,
    ) -> Vec<TierShare> {
        // A report can be older than the objects.
        let fits = |reported: &&Vec<TierShare>| {
            let serves =
                |(reported, tally): (&TierShare, &Tally)| reported.share > 0 && tally.ready > 0;
            reported.len() == tallies.len() && reported.iter().zip(&tallies).any(serves)
        };
        if let Some(reported) = self.spills.reported.get(&self.frontend).filter(fits) {
            let now = |(reported, tally): (&TierShare, Tally)| {
                tally.with(reported.share.into(), reported.state)
            };
            return reported.iter().zip(tallies).map(now).collect();
        }
        let states = self.states(rule, tiers, &tallies);
        let most = states
            .iter()
            .zip(&tallies)
            .map(|(state, tally)| state.map_or(0, |state| state.most(tally)))
            .collect();
        let shares = shares(most, rule, &tallies);
        let tier = |((tally, state), share): ((Tally, Option<State>), u64)| {
            let state = match state {
                None | Some(State::Whole { .. }) => TierState::Whole,
                Some(state) if state.due(rule, &tally).is_some() => TierState::Waits,
                Some(State::Spilled { .. }) => TierState::Spills,
            };
            tally.with(share, state)
        };
        tallies.into_iter().zip(states).zip(shares).map(tier).collect()
    }

    /// The states of the tiers now, which are remembered.
    fn states(&mut self, rule: SpillRule, tiers: &[Tier], tallies: &[Tally]) -> Vec<Option<State>> {
        let Spills { now, memories, former, due, .. } = &mut *self.spills;
        // A memory of other tiers or by another rule says nothing.
        let former = memories
            .remove(&self.frontend)
            .or_else(|| former.remove(&self.frontend))
            .filter(|memory| memory.rule == rule && memory.tiers == tiers)
            .map_or_else(|| vec![None; tallies.len()], |memory| memory.states);
        let next = |(former, tally): (Option<State>, &Tally)| match (former, *now) {
            (Some(former), Some(now)) => Some(former.next(rule, tally, now)),
            _ => (tally.total > 0).then(|| State::first(rule, tally)),
        };
        let states: Vec<_> = former.into_iter().zip(tallies).map(next).collect();
        if now.is_some() {
            let each = states.iter().zip(tallies);
            let next = each.filter_map(|(state, tally)| state.as_ref()?.due(rule, tally)).min();
            match next {
                Some(at) => due.insert(self.frontend, (at, self.import.clone())),
                None => due.remove(&self.frontend),
            };
            let memory = Memory { rule, tiers: tiers.to_vec(), states: states.clone() };
            memories.insert(self.frontend, memory);
        }
        states
    }
}

impl Tally {
    fn with(self, share: u64, state: TierState) -> TierShare {
        TierShare {
            clusters: self.clusters.into_iter().collect(),
            ready: self.ready,
            total: self.total,
            share: u32::try_from(share).unwrap_or(TierShare::ALL),
            state,
        }
    }
}

#[cfg(test)]
mod tests;
