//! Passive health: which backends the programs watch, and which ones this node ejects.

use super::Control;
use crate::{
    agent::SocketLb,
    loader::Watching,
    model::{Ejection, EjectionState},
    passive::{PassiveEvent, VerdictChange, targets},
};

const NO_SOCKETS: &str = "flows of the packet path are seen alone: to see the connects of sockets takes --socket-lb, and \
                          Linux 5.12 or later with /sys/kernel/btf/vmlinux";

impl Control {
    /// Watches the backends that the maps have now, of imports that have passive health.
    pub(super) fn follow_backends(&mut self) {
        let imports = self.engine.rules().ejecting();
        if !self.installed.can_watch() || (self.passive.is_idle() && imports.is_empty()) {
            return;
        }
        let (desired, realized) = (self.engine.desired(), self.engine.realized());
        let targets = targets(self.engine.rules().watchable(), desired, realized);
        let state = self.installed.options.pins.state();
        let begins = self.passive.is_idle();
        let endpoints = |import: &_| self.engine.endpoints(import);
        if let Err(error) = self.passive.follow(&state, targets, imports, endpoints) {
            self.note_trouble(format!("cannot watch all backends: {error}; trying again"));
        }
        // No round is due: no endpoint has what was forgotten. A new one of that address must not have its verdict.
        self.engine.set_ejections(self.passive.ejections().iter().collect());
        if begins && !self.passive.is_idle() && !self.sees_sockets() {
            tracing::warn!("passive health: {NO_SOCKETS}");
        }
        self.watch();
    }

    /// Attaches the programs that record what is needed now, and looks at flows as often as is needed.
    pub(super) fn watch(&mut self) {
        let watching = self.passive.watching();
        self.sweeper.set_watched(watching != Watching::Nothing);
        let of_sockets = if self.sees_sockets() { watching } else { Watching::Nothing };
        match self.installed.watch(of_sockets) {
            Ok(Watching::Nothing) if of_sockets != Watching::Nothing => {
                tracing::info!("passive health: attached");
            }
            Ok(former) if former != Watching::Nothing && of_sockets == Watching::Nothing => {
                tracing::info!("passive health: detached, since no service asks for it");
            }
            Ok(_) => {}
            Err(error) => self.note_trouble(format!("{error:#}; trying again")),
        }
        // Flows tell of answers also where no program does.
        self.passive.watched(watching);
    }

    /// Whether programs can record what becomes of connects of sockets.
    fn sees_sockets(&self) -> bool {
        self.installed.config.socket_lb != SocketLb::Off
            && self.installed.options.features.socket_tracepoints
    }

    /// Logs a problem, if it is not the latest one.
    fn note_trouble(&mut self, problem: String) {
        if self.passive_trouble.as_ref() != Some(&problem) {
            tracing::warn!("passive health: {problem}");
            self.passive_trouble = Some(problem);
        }
    }

    /// Goes on with the verdicts. Returns whether a round is due.
    pub(super) fn judge_backends(&mut self, event: PassiveEvent) -> bool {
        let changes = match event {
            PassiveEvent::Confirmed(asked) => Ok(self.passive.confirmed(asked)),
            PassiveEvent::Due => self.passive.read_records(),
        };
        let changes = changes.unwrap_or_else(|error| {
            self.note_trouble(format!("cannot read how backends answer: {error}; trying again"));
            Vec::new()
        });
        for change in &changes {
            log(change);
        }
        let failed = self.passive.take_failed();
        if let Some(figures) = self.published.figures.get() {
            figures.note_failed(&failed);
        }
        self.watch();
        // Some are forgotten without a change.
        let is_new = self.engine.set_ejections(self.passive.ejections().iter().collect());
        if is_new || !changes.is_empty() {
            self.report_soon();
        }
        is_new
    }

    /// The backends that were found dead, and whether new clients get them all the same.
    pub(super) fn ejections(&self) -> Vec<Ejection> {
        let mut ejections = self.passive.ejections();
        let desired = self.engine.desired();
        for one in &mut ejections {
            let mut frontends =
                self.engine.rules().watchable().filter(|(import, _)| **import == one.import);
            let has = |id| {
                desired.frontends.get(&id).is_some_and(|all| all.backend(one.backend).is_some())
            };
            one.used = one.state == EjectionState::Ejected && frontends.any(|(_, id)| has(id));
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
