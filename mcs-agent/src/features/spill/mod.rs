//! Spill: how much of the new clients each tier of source clusters gets, by its ready endpoints and by time.
//!
//! A tier is whole and takes all clients that earlier tiers leave, until it was below its threshold for a while. Then it has
//! spilled: it takes the share that its ready endpoints can serve. The share falls at once and rises late. After
//! `failback-delay` well above the threshold the tier is whole again.

mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use mcs_kube::wish::{self, Threshold};

use self::report::{Spill, TierShare, TierState};
use crate::core::{
    feature::Definition,
    model::{FrontendId, NodeContext, ObjectKey, RejectionReason, Sections, ServiceImport},
    rules::{
        Choice, Fate, Preference, Wishes,
        candidate::{Candidate, Recorder},
        fields::ObjectProblem,
        tier::Tier,
    },
};

/// Spill in the list of features.
pub const FEATURE: Definition = Definition {
    preference: |_| Some(Box::new(Spills::default())),
    tiers: report::tiers,
    ..Definition::named("spill")
};

/// How long a tier is below its threshold before it spills.
const SPILL_AFTER: Duration = Duration::from_secs(10);
const DEFAULT_DELAY: Duration = Duration::from_mins(5);
/// Envoy's overprovisioning factor in percent: a tier takes 1.4 times the part of it that is ready.
const OVERPROVISIONING: u64 = 140;
const ALL: u64 = TierShare::ALL as u64;

/// What the owner of a service asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SpillRule {
    threshold: Threshold,
    failback_delay: Duration,
}

/// The endpoints of a tier, whatever their condition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Tally {
    clusters: BTreeSet<Arc<str>>,
    ready: u32,
    draining: u32,
    total: u32,
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
    fn of(import: &ServiceImport, problems: &mut Vec<ObjectProblem>) -> Option<Self> {
        let spill = import.setting(wish::SPILL)?;
        let mut bad = |message: String| {
            problems.push(ObjectProblem::new(RejectionReason::SpillInvalid, message));
        };
        let threshold = Threshold::parse(spill).map_err(&mut bad).ok()?;
        let asked = import
            .setting(wish::FAILBACK_DELAY)
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

/// The preference: what is remembered of the tiers of all frontends whose imports ask for spill.
#[derive(Debug, Default)]
struct Spills {
    memories: BTreeMap<FrontendId, TierHistory>,
    /// The memories of frontends that the current round has to decide about and has not come to yet.
    former: BTreeMap<FrontendId, TierHistory>,
    /// When to decide about a frontend again although nothing changes, and its import.
    due: BTreeMap<FrontendId, (Instant, ObjectKey)>,
    /// What the report of an agent says of frontends, for a process that explains it.
    reported: BTreeMap<FrontendId, Vec<TierShare>>,
}

#[derive(Debug)]
struct TierHistory {
    rule: SpillRule,
    tiers: Vec<Tier>,
    /// A tier that never had an endpoint has none.
    states: Vec<Option<State>>,
}

impl Preference for Spills {
    fn read(&self, import: &ServiceImport, _: &mut Wishes, problems: &mut Vec<ObjectProblem>) {
        SpillRule::of(import, problems);
    }

    fn keep(&mut self, candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
        let tiers = &choice.wishes.tiers;
        let Some(rule) = SpillRule::of(choice.import, &mut Vec::new()) else { return };
        if tiers.is_empty() {
            return;
        }
        let tiers = self.decide(rule, choice, tallies(candidates, tiers, choice.node));
        keep_shares(candidates, &tiers, choice.recorder);
        choice.shares = tiers.iter().map(TierShare::as_share).collect();
        choice.sections.add(report::SECTION, &Spill { frontend: choice.frontend, tiers });
    }

    fn due(&self) -> Box<dyn Iterator<Item = &(Instant, ObjectKey)> + '_> {
        Box::new(self.due.values())
    }

    fn begin(&mut self, frontends: Option<&[FrontendId]>) {
        let Some(frontends) = frontends else {
            self.former.append(&mut self.memories);
            self.due.clear();
            return;
        };
        for frontend in frontends {
            self.former.extend(self.memories.remove_entry(frontend));
            self.due.remove(frontend);
        }
    }

    /// A frontend that is gone must not be due for ever.
    fn end(&mut self) {
        self.former.clear();
    }

    /// Before all objects are read, tiers look as if they were below their thresholds.
    fn forget(&mut self) {
        *self = Self::default();
    }

    fn recall(&mut self, report: &Sections) {
        let spills = report::of(report).into_iter();
        self.reported = spills.map(|spill| (spill.frontend, spill.tiers)).collect();
    }
}

impl Spills {
    /// What each tier gets. The last entry of `tallies` has the clusters of no tier.
    fn decide(
        &mut self,
        rule: SpillRule,
        choice: &Choice<'_>,
        tallies: Vec<Tally>,
    ) -> Vec<TierShare> {
        // A report can be older than the objects.
        let fits = |reported: &&Vec<TierShare>| {
            let serves =
                |(reported, tally): (&TierShare, &Tally)| reported.share > 0 && tally.ready > 0;
            reported.len() == tallies.len() && reported.iter().zip(&tallies).any(serves)
        };
        if let Some(reported) = self.reported.get(&choice.frontend).filter(fits) {
            let now = |(reported, tally): (&TierShare, Tally)| {
                tally.with(reported.share.into(), reported.state)
            };
            return reported.iter().zip(tallies).map(now).collect();
        }
        let states = self.states(rule, choice, &tallies);
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
    fn states(
        &mut self,
        rule: SpillRule,
        choice: &Choice<'_>,
        tallies: &[Tally],
    ) -> Vec<Option<State>> {
        let Self { memories, former, due, .. } = self;
        let Choice { now, frontend, wishes: Wishes { tiers, .. }, .. } = choice;
        // A memory of other tiers or by another rule says nothing.
        let former = memories
            .remove(frontend)
            .or_else(|| former.remove(frontend))
            .filter(|memory| memory.rule == rule && memory.tiers == *tiers)
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
                Some(at) => due.insert(*frontend, (at, choice.import.key.clone())),
                None => due.remove(frontend),
            };
            let memory = TierHistory { rule, tiers: tiers.clone(), states: states.clone() };
            memories.insert(*frontend, memory);
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

/// The endpoints of each tier, and of all other clusters. A cluster counts in the first tier that has it.
fn tallies(candidates: &[Candidate<'_>], tiers: &[Tier], node: &NodeContext) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); tiers.len() + 1];
    for candidate in candidates {
        let first = tiers.iter().position(|tier| tier.has(candidate.cluster, node));
        let tally = &mut tallies[first.unwrap_or(tiers.len())];
        let conditions = candidate.conditions();
        tally.clusters.insert(Arc::clone(candidate.cluster));
        tally.ready += u32::from(conditions.ready);
        tally.draining += u32::from(conditions.draining());
        tally.total += 1;
    }
    tallies
}

/// Keeps the tiers that have a share. If none has one, all candidates stay.
fn keep_shares(
    candidates: &mut Vec<Candidate<'_>>,
    shares: &[TierShare],
    recorder: &mut dyn Recorder,
) {
    let of_tier = |candidate: &Candidate<'_>, is: fn(&TierShare) -> bool| {
        shares.iter().any(|tier| is(tier) && tier.has(candidate.cluster))
    };
    recorder.step(candidates, &mut |candidates| {
        let waits = |tier: &TierShare| tier.share == 0 && tier.state == TierState::Waits;
        candidates.retain(|one| !(one.conditions().ready && of_tier(one, waits)));
        Fate::FailbackDelay
    });
    recorder.step(candidates, &mut |candidates| {
        if shares.iter().any(|tier| tier.share > 0) {
            candidates.retain(|one| of_tier(one, |tier| tier.share > 0));
        }
        Fate::OtherTier
    });
}

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod tests;
