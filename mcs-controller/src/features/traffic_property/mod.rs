//! What agents are told of source clusters by a ClusterProperty: weights, drains and preference, and the silent ones to eject.
//! Operators set them on ClusterPeers and by ClusterProperties of this cluster, and a cluster says of itself that it drains.

mod setting;
#[cfg(test)]
mod tests;
mod wanted;

use std::{
    task::{Context, Poll},
    time::Instant,
};

use mcs_kube::{TRAFFIC_PROPERTY, Traffic, reasons::Reason};

pub use self::setting::{SETTINGS, setting_problem};
use self::wanted::{is_told, own_drain_said, traffic_property};
use crate::core::{
    clusterset::{ClusterId, well_known::FALLBACK_PROPERTY},
    control::State,
    feature::{Core, Entry, Feature},
    leases::Statement,
    status::{Failures, Turn},
    told::{Told, tell_of, tell_told, tell_untold},
};

/// The feature in the list.
pub(crate) const ENTRY: Entry =
    Entry { start: |_, _| Ok(Some(Box::new(Teller::new()))), ..Entry::NONE };

struct Teller {
    told: Told,
    /// What agents are to be told while the write of it fails.
    untold: Option<Traffic>,
    /// Why a ClusterProperty that an operator has set cannot be used (`use`), or agents are not told of it (`tell`).
    problems: Failures<(&'static str, &'static str)>,
}

impl Teller {
    fn new() -> Self {
        Self { told: Told::new(TRAFFIC_PROPERTY), untold: None, problems: Failures::default() }
    }

    /// Why agents have not been told of a cluster what they are to be.
    fn untold_of(&self, cluster: &ClusterId, state: &State) -> Option<String> {
        let reason = self.told.reason("write")?;
        self.untold.as_ref().filter(|wanted| !is_told(state, wanted, cluster))?;
        Some(format!("agents go by what they were told of {cluster} before: {reason}."))
    }

    /// Reports values that cannot be used or that agents are not told of, once each, and when that ends.
    fn note_settings(&mut self, state: &mut State) {
        let untold = self.untold_of(state.cluster(), state);
        for name in SETTINGS {
            let problem = problem_of(state, name);
            match (self.problems.note((name, "use"), problem.as_deref()), problem) {
                (Turn::Fails, Some(problem)) => {
                    tracing::warn!("ClusterProperty {name}: {problem}");
                    tell_unused(state, name, &problem);
                }
                (Turn::Recovered, _) => {
                    tracing::info!("ClusterProperty {name} is used again, or gone");
                    let note = "its value can be used".to_owned();
                    tell_of(state, name, Reason::ValueUsed, note);
                }
                _ => {}
            }
            // Imports have this one.
            let untold = untold.as_ref().filter(|_| name != FALLBACK_PROPERTY);
            match (self.problems.note((name, "tell"), untold.map(String::as_str)), untold) {
                (Turn::Fails, Some(problem)) => tell_untold(state, name, problem),
                (Turn::Recovered, _) => tell_told(state, name),
                _ => {}
            }
        }
    }
}

/// Why a ClusterProperty of this cluster, one of [`SETTINGS`], cannot be used.
fn problem_of(state: &State, name: &str) -> Option<String> {
    setting_problem(name, state.own.property(name)?)
}

fn tell_unused(state: &mut State, name: &str, problem: &str) {
    let note = format!("its value is not used: {problem}");
    tell_of(state, name, Reason::InvalidValue, note);
}

impl Feature for Teller {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.told.poll(cx)
    }

    fn act(&mut self, core: &mut Core, now: Instant) {
        if self.told.note_result(&mut core.state) || !core.may_tell_agents() {
            return;
        }
        let wanted = traffic_property(&core.state, now);
        self.untold = wanted.clone().filter(|_| self.told.reason("write").is_some());
        self.note_settings(&mut core.state);
        if let Some(wanted) = wanted {
            self.told.tell(&wanted.to_value(), core, now);
        }
    }

    fn unwritten(&self, cluster: &ClusterId, state: &State) -> Option<String> {
        self.untold_of(cluster, state)
    }

    fn publish(&self, statement: &mut Statement, state: &State) {
        statement.drain = own_drain_said(state);
    }

    fn tell_again(&mut self, state: &mut State) {
        for name in SETTINGS {
            if let Some(problem) = problem_of(state, name) {
                tell_unused(state, name, &problem);
            }
            if let Some(problem) = self.problems.reason(&(name, "tell")) {
                tell_untold(state, name, problem);
            }
        }
        self.told.tell_again(state);
    }
}
