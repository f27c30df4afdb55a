//! Passive health: which backends the programs watch, and which ones this node ejects.

use std::{future::ready, mem};

use super::Passive;
use crate::{
    core::{
        control::SocketLb,
        engine::RoundSummary,
        feature::{Act, Core, Feature, Follow, Wait},
        kernel::flows::SweepResult,
        model::{Ejection, EjectionState},
    },
    features::passive_health::{PassiveEvent, VerdictChange, Watching, targets},
};

const NO_SOCKETS: &str = "flows of the packet path are seen alone: to see the connects of sockets takes --socket-lb, and \
                          Linux 5.12 or later with /sys/kernel/btf/vmlinux";

/// The feature in the agent.
pub(super) struct PassiveHealth {
    passive: Passive,
    /// What programs record of sockets.
    recorded: Watching,
    event: Option<PassiveEvent>,
    /// The latest problem.
    trouble: Option<String>,
}

impl PassiveHealth {
    pub(super) const fn new(passive: Passive) -> Self {
        Self { passive, recorded: Watching::Nothing, event: None, trouble: None }
    }

    /// Watches the backends that the maps have now, of imports that have passive health.
    fn follow_backends(&mut self, core: &mut Core) {
        let imports = core.engine.rules().ejecting();
        if !core.installed.can_watch() || (self.passive.is_idle() && imports.is_empty()) {
            return;
        }
        let (desired, realized) = (core.engine.desired(), core.engine.realized());
        let targets = targets(core.engine.rules().watchable(), desired, realized);
        let state = core.installed.options.pins.state();
        let begins = self.passive.is_idle();
        let endpoints = |import: &_| core.engine.endpoints(import);
        if let Err(error) = self.passive.follow(&state, targets, imports, endpoints) {
            self.note_trouble(format!("cannot watch all backends: {error}; trying again"));
        }
        // No round is due: no endpoint has what was forgotten. A new one of that address must not have its verdict.
        core.engine.set_ejections(self.passive.ejections().iter().collect());
        if begins && !self.passive.is_idle() && !Self::sees_sockets(core) {
            tracing::warn!("passive health: {NO_SOCKETS}");
        }
        self.watch(core);
    }

    /// Attaches the programs that record what is needed now, and looks at flows as often as is needed.
    fn watch(&mut self, core: &mut Core) {
        let watching = self.passive.watching();
        core.sweeper.set_watched(watching != Watching::Nothing);
        let of_sockets = if Self::sees_sockets(core) { watching } else { Watching::Nothing };
        let (wanted, others) = of_sockets.tracepoints();
        match core.installed.set_tracepoints(wanted, others) {
            Ok(()) => match (mem::replace(&mut self.recorded, of_sockets), of_sockets) {
                (former, now) if former == now => {}
                (Watching::Nothing, _) => tracing::info!("passive health: attached"),
                (_, Watching::Nothing) => {
                    tracing::info!("passive health: detached, since no service asks for it");
                }
                _ => {}
            },
            Err(error) => self.note_trouble(format!("{error:#}; trying again")),
        }
        // Flows tell of answers also where no program does.
        self.passive.watched(watching);
    }

    /// Whether programs can record what becomes of connects of sockets.
    fn sees_sockets(core: &Core) -> bool {
        core.installed.config.socket_lb != SocketLb::Off
            && core.installed.options.features.socket_tracepoints
    }

    /// Logs a problem, if it is not the latest one.
    fn note_trouble(&mut self, problem: String) {
        if self.trouble.as_ref() != Some(&problem) {
            tracing::warn!("passive health: {problem}");
            self.trouble = Some(problem);
        }
    }

    /// Goes on with the verdicts. Returns whether a round is due.
    fn judge_backends(&mut self, core: &mut Core, event: PassiveEvent) -> bool {
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
        core.published.note_failed(&failed);
        self.watch(core);
        // Some are forgotten without a change.
        let is_new = core.engine.set_ejections(self.passive.ejections().iter().collect());
        if is_new || !changes.is_empty() {
            core.report_soon();
        }
        is_new
    }

    /// The backends that were found dead, and whether new clients get them all the same.
    fn ejections(&self, core: &Core) -> Vec<Ejection> {
        let mut ejections = self.passive.ejections();
        let desired = core.engine.desired();
        for one in &mut ejections {
            let mut frontends =
                core.engine.rules().watchable().filter(|(import, _)| **import == one.import);
            let has = |id| {
                desired.frontends.get(&id).is_some_and(|all| all.backend(one.backend).is_some())
            };
            one.used = one.state == EjectionState::Ejected && frontends.any(|(_, id)| has(id));
        }
        ejections
    }
}

impl Feature for PassiveHealth {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(async { self.event = Some(self.passive.next().await) })
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        let is_due = self.event.take().is_some_and(|event| self.judge_backends(core, event));
        Box::pin(ready(if is_due { Follow::Round } else { Follow::Nothing }))
    }

    fn after_round(&mut self, core: &mut Core, _: &RoundSummary) {
        self.follow_backends(core);
    }

    fn after_sweep(&mut self, sweep: &mut SweepResult) {
        self.passive.take_flows(mem::take(&mut sweep.records));
    }

    fn each_second(&mut self, core: &mut Core) -> Follow {
        self.watch(core);
        Follow::Nothing
    }

    fn ejections(&self, core: &Core) -> Vec<Ejection> {
        self.ejections(core)
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
