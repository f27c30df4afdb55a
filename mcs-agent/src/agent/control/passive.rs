//! Passive health: which backends the programs watch, and which ones this node ejects.

use std::collections::BTreeSet;

use super::Control;
use crate::{
    model::{Ejection, EjectionState},
    passive::{MOST, PassiveEvent, Target, Targets, VerdictChange},
};

impl Control {
    /// Watches the backends that the maps have now, of imports that have passive health.
    pub(super) fn follow_backends(&mut self) {
        let imports = self.engine.ejecting();
        if !self.installed.can_watch() || (self.passive.is_idle() && imports.is_empty()) {
            return;
        }
        let mut targets = Targets::new();
        for (chosen, import, backend) in self.engine.watchable() {
            if targets.len() == MOST {
                tracing::debug!("passive health watches {MOST} backends, and no others");
                break;
            }
            targets.insert(chosen, Target { import: import.clone(), backend });
        }
        let state = self.installed.pins.state();
        if let Err(error) = self.passive.follow(&state, targets, imports) {
            tracing::warn!("passive health cannot watch all backends: {error}");
        }
        self.watch();
    }

    /// Attaches the program that watches while something is to be watched.
    pub(super) fn watch(&mut self) {
        match self.installed.watch(self.passive.is_watching()) {
            Ok(false) => {}
            Ok(true) if self.passive.is_watching() => tracing::info!("passive health: attached"),
            Ok(true) => tracing::info!("passive health: detached, since no service asks for it"),
            Err(error) => tracing::warn!("passive health: {error:#}; trying again"),
        }
    }

    /// Goes on with the verdicts. Returns whether a round is due.
    pub(super) fn judge_backends(&mut self, event: PassiveEvent) -> bool {
        let changes = match event {
            PassiveEvent::Confirmed(round) => Ok(self.passive.confirmed(round)),
            PassiveEvent::Due => self.passive.look(),
        };
        let changes = changes.unwrap_or_else(|error| {
            tracing::warn!("cannot read how backends answer: {error}; trying again");
            Vec::new()
        });
        for change in &changes {
            log(change);
        }
        if changes.is_empty() {
            return false;
        }
        self.report_soon();
        self.engine.set_ejections(self.passive.ejections().iter().collect())
    }

    /// The backends that were found dead, and whether new clients get them all the same.
    pub(super) fn ejections(&self) -> Vec<Ejection> {
        let mut ejections = self.passive.ejections();
        if !ejections.is_empty() {
            let used: BTreeSet<_> = self
                .engine
                .watchable()
                .map(|(_, import, backend)| (import, backend.address))
                .collect();
            for one in &mut ejections {
                one.used = one.state == EjectionState::Ejected
                    && used.contains(&(&one.import, one.backend));
            }
        }
        ejections
    }
}

fn log(change: &VerdictChange) {
    let (namespace, name) = (&change.import.namespace, &change.import.name);
    if change.is_loss() {
        tracing::warn!(%namespace, %name, "{change}");
    } else {
        tracing::info!(%namespace, %name, "{change}");
    }
}
