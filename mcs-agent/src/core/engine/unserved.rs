//! What is not served any more: how long the maps keep a VIP, and until when clients stay with the backends of a frontend.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::core::{
    model::{Departure, DesiredChanges, DesiredState, Frontend, FrontendId, KEPT_FOR, Parts},
    tables::Realized,
};

/// How long the programs refuse the address of a deleted import. Clients learn the end of a service within that time,
/// and an address that is assigned again meanwhile is served at once.
pub const REFUSED_FOR: Duration = Duration::from_mins(5);

/// The VIPs that have departed.
///
/// A VIP that is gone is refused for [`REFUSED_FOR`]. A VIP that was refused for that long, or was handed back, stays in the
/// maps as long as a flow uses it.
#[derive(Debug, Default)]
pub(super) struct DepartedVips(BTreeMap<IpAddr, Departed>);

#[derive(Clone, Copy, Debug)]
struct Departed {
    departure: Departure,
    /// When the maps got this departure. `None` until they have it.
    since: Option<Instant>,
}

impl DepartedVips {
    /// The departed VIPs that an earlier agent left in the maps. Their time starts anew.
    pub(super) fn restore(found: &BTreeMap<IpAddr, Departure>) -> Self {
        let mut departed = Self::default();
        for (&ip, &departure) in found {
            departed.add(ip, departure);
        }
        departed
    }

    /// Adds an address, or changes what the programs do with it.
    pub(super) fn add(&mut self, ip: IpAddr, departure: Departure) {
        let departed = self.0.entry(ip).or_insert(Departed { departure, since: None });
        if departed.departure != departure {
            *departed = Departed { departure, since: None };
        }
    }

    /// Removes the addresses that are served, among those whose VIP has changed.
    pub(super) fn remove_served(&mut self, served: &BTreeSet<IpAddr>, changes: &DesiredChanges) {
        match changes {
            DesiredChanges::Everything => self.0.retain(|ip, _| !served.contains(ip)),
            DesiredChanges::Parts(Parts { vips, .. }) => {
                for ip in vips.intersection(served) {
                    self.0.remove(ip);
                }
            }
        }
    }

    /// The VIPs that are refused.
    pub(super) fn gone(&self) -> BTreeSet<IpAddr> {
        let gone = self.0.iter().filter(|(_, departed)| departed.departure == Departure::Gone);
        gone.map(|(ip, _)| *ip).collect()
    }

    /// Removes the oldest ones that the maps have no room for.
    pub(super) fn limit(&mut self, room: usize) {
        let excess = self.0.len().saturating_sub(room);
        if excess == 0 {
            return;
        }
        let age = |(ip, one): (&IpAddr, &Departed)| (one.since.is_none(), one.since, *ip);
        let mut by_age: Vec<_> = self.0.iter().map(age).collect();
        by_age.sort_unstable();
        for (_, _, ip) in by_age.into_iter().take(excess) {
            self.0.remove(&ip);
        }
    }

    /// Starts the time of the VIPs that the maps have now. Drops the VIPs that the maps did not get. Returns whether it dropped
    /// any.
    pub(super) fn written(&mut self, realized: &Realized, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|ip, departed| {
            if departed.since.is_none() && realized.departure(*ip) == Some(departed.departure) {
                departed.since = Some(now);
            }
            departed.since.is_some() || realized.knows_vip(*ip)
        });
        self.0.len() < before
    }

    /// Ends refusals that lasted long enough, and drops handed-back VIPs without flows. `in_use` has the VIPs that flows used
    /// at some time after `looked_since`. Returns whether
    /// anything changed.
    pub(super) fn expire(
        &mut self,
        in_use: &BTreeSet<IpAddr>,
        looked_since: Instant,
        now: Instant,
    ) -> bool {
        let mut changed = false;
        self.0.retain(|ip, departed| {
            let Some(since) = departed.since else { return true };
            if departed.departure == Departure::Gone {
                if now.duration_since(since) < REFUSED_FOR {
                    return true;
                }
                changed = true;
                *departed = Departed { departure: Departure::HandedBack, since: None };
                return in_use.contains(ip);
            }
            let is_over = looked_since > since && !in_use.contains(ip);
            changed |= is_over;
            !is_over
        });
        changed
    }

    /// What the programs do with each.
    pub(super) fn departures(&self) -> BTreeMap<IpAddr, Departure> {
        self.0.iter().map(|(ip, departed)| (*ip, departed.departure)).collect()
    }
}

/// The desired frontends that no endpoint serves.
///
/// Nothing of it outlives the agent: for another agent the time starts anew.
#[derive(Debug, Default)]
pub(super) struct DesertedFrontends {
    /// Clients stay until then.
    until: BTreeMap<FrontendId, Instant>,
    /// Clients do not stay any longer.
    over: Arc<BTreeSet<FrontendId>>,
}

impl DesertedFrontends {
    /// Follows what may have changed.
    pub(super) fn follow(
        &mut self,
        changes: &DesiredChanges,
        desired: &DesiredState,
        now: Instant,
    ) {
        match changes {
            DesiredChanges::Everything => {
                let is_there = |id: &FrontendId| desired.frontends.contains_key(id);
                self.until.retain(|id, _| is_there(id));
                if !self.over.iter().all(is_there) {
                    Arc::make_mut(&mut self.over).retain(is_there);
                }
                for (id, frontend) in &desired.frontends {
                    self.note(*id, frontend.serves(), now);
                }
            }
            DesiredChanges::Parts(parts) => {
                for id in &parts.frontends {
                    // A frontend that is gone is no more deserted than one that is served.
                    let serves = desired.frontends.get(id).is_none_or(Frontend::serves);
                    self.note(*id, serves, now);
                }
            }
        }
    }

    fn note(&mut self, id: FrontendId, serves: bool, now: Instant) {
        let is_over = self.over.contains(&id);
        if serves {
            self.until.remove(&id);
            if is_over {
                Arc::make_mut(&mut self.over).remove(&id);
            }
        } else if !is_over {
            self.until.entry(id).or_insert(now + KEPT_FOR);
        }
    }

    /// Returns the frontends whose time is over now.
    pub(super) fn expire(&mut self, now: Instant) -> BTreeSet<FrontendId> {
        let is_over = |(id, until): (&FrontendId, &Instant)| (*until <= now).then_some(*id);
        let over: BTreeSet<FrontendId> = self.until.iter().filter_map(is_over).collect();
        if !over.is_empty() {
            self.until.retain(|id, _| !over.contains(id));
            Arc::make_mut(&mut self.over).extend(&over);
        }
        over
    }

    /// When the time of the next one is over.
    pub(super) fn due(&self) -> Option<Instant> {
        self.until.values().min().copied()
    }

    /// The frontends whose clients do not stay any longer.
    pub(super) const fn over(&self) -> &Arc<BTreeSet<FrontendId>> {
        &self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn the_oldest_make_room() {
        let now = Instant::now();
        let mut departed = DepartedVips::default();
        for (last, age) in [(1, Some(3)), (2, Some(9)), (3, None), (4, Some(6))] {
            let since = age.map(|age| now + Duration::from_secs(10 - age));
            departed.0.insert(ip(last), Departed { departure: Departure::Gone, since });
        }
        let mut left = Vec::new();
        for room in (0..4).rev() {
            departed.limit(room);
            left.push(departed.departures().into_keys().collect::<Vec<_>>());
        }
        let expected = [vec![ip(1), ip(3), ip(4)], vec![ip(1), ip(3)], vec![ip(3)], vec![]];
        assert_eq!(left, expected);
    }
}
