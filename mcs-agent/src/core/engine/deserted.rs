//! Frontends that no endpoint serves: until when clients stay with the backends of before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use crate::core::model::{DesiredChanges, DesiredState, Frontend, FrontendId, KEPT_FOR};

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
