//! What agents are told by a ClusterProperty, and what is said on it if that fails: who writes it does not read the controller's
//! log.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use mcs_kube::reasons::Reason;

use super::{
    apply::{ApplyError, property_request},
    control::State,
    feature::{Core, Question},
    status::{Failures, Notice, Regarding, Turn},
};

/// How long after a write the next one may follow, at first. It doubles while writes fail or somebody else rewrites the value.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(10);

/// A ClusterProperty that agents read.
pub(crate) struct Told {
    name: &'static str,
    /// What was last written.
    value: String,
    pause: Duration,
    next_at: Option<Instant>,
    write: Question<Result<Option<String>, ApplyError>>,
    result: Option<Result<Option<String>, ApplyError>>,
    /// Why a value cannot be computed (`read`) or written (`write`).
    failures: Failures<&'static str>,
}

impl Told {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            value: String::new(),
            pause: PAUSE,
            next_at: None,
            write: Question::default(),
            result: None,
            failures: Failures::default(),
        }
    }

    /// Ready when a write has ended.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.write.poll(cx).map(|result| self.result = Some(result))
    }

    /// Reports how the last write has ended. Returns whether one has: its value is read back first.
    pub(crate) fn note_result(&mut self, state: &mut State) -> bool {
        let Some(result) = self.result.take() else { return false };
        let name = self.name;
        let problem =
            result.err().map(|error| format!("cannot write ClusterProperty {name}: {error}"));
        if problem.is_none() {
            tracing::info!("agents are told by ClusterProperty {name}: {}", self.value);
        }
        self.note("write", problem, state);
        true
    }

    /// Writes a value that agents do not have, if it is time.
    pub(crate) fn tell(&mut self, value: &str, core: &Core, now: Instant) {
        if self.is_due(value, now) {
            let request = property_request(core.state.own.property_version(), self.name, value);
            let access = Arc::clone(&core.access);
            self.write.ask(async move { request.send(&access).await });
        }
    }

    fn is_due(&mut self, value: &str, now: Instant) -> bool {
        let is_same = self.value == value;
        if self.write.is_asked() || is_same && self.next_at.is_some_and(|at| now < at) {
            return false;
        }
        self.pause = if is_same { (self.pause * 2).min(LONGEST) } else { PAUSE };
        self.next_at = Some(now + self.pause);
        value.clone_into(&mut self.value);
        true
    }

    /// Why agents are not told, because of this.
    pub(crate) fn reason(&self, what: &'static str) -> Option<&str> {
        self.failures.reason(&what)
    }

    /// Reports why agents are not told, once, and the end of it.
    pub(crate) fn note(&mut self, what: &'static str, problem: Option<String>, state: &mut State) {
        let (name, turn) = (self.name, self.failures.note(what, problem.as_deref()));
        match (turn, problem) {
            (Turn::Fails, Some(problem)) => {
                tracing::warn!("{problem}; ClusterProperty {name} stays as agents last read it");
                tell_untold(state, name, &format!("agents go by what it says: {problem}"));
            }
            (Turn::Recovered, _) => {
                tracing::info!("agents are told by ClusterProperty {name} again");
                tell_told(state, name);
            }
            _ => {}
        }
    }

    /// Repeats the event of a write that fails.
    pub(crate) fn tell_again(&self, state: &mut State) {
        if let Some(problem) = self.reason("write") {
            tell_untold(state, self.name, problem);
        }
    }
}

pub(crate) fn tell_untold(state: &mut State, name: &str, problem: &str) {
    tell_of(state, name, Reason::NotTold, problem.to_owned());
}

pub(crate) fn tell_told(state: &mut State, name: &str) {
    tell_of(state, name, Reason::Told, "agents are told of it".to_owned());
}

/// Writes an event about a ClusterProperty of this cluster, if it is there.
pub(crate) fn tell_of(state: &mut State, name: &str, reason: Reason, note: String) {
    let Some(uid) = state.own.property_uid(name) else { return };
    let regarding = Regarding {
        api_version: format!("about.k8s.io/{}", state.own.property_version()),
        kind: "ClusterProperty",
        namespace: None,
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    state.notices.push(Notice::new(regarding, reason, note));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_is_written_less_and_less_often() {
        let (begin, mut told, mut writes) = (Instant::now(), Told::new("ranges"), Vec::new());
        for second in 0..100 {
            if told.is_due("a", begin + Duration::from_secs(second)) {
                writes.push(second);
            }
        }
        assert_eq!(writes, [0, 1, 3, 7, 15, 31, 63]);
        let now = begin + Duration::from_secs(100);
        assert!(told.is_due("b", now), "another value goes at once");
        told.write.ask(std::future::pending());
        assert!(!told.is_due("c", now), "not before that write has ended");
        told.write = Question::default();
        assert!(told.is_due("c", now));
    }
}
