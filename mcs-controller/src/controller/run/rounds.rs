//! Periodic probes: a few pods of each peer, cluster DNS, and the API server for this controller's rights.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{join, join_all};
use mcs_kube::reach::{Attempt, connect_all, source::Source};

use super::{Control, TaskResult};
use crate::{
    names::{Answer, Names, Question},
    reach::{
        Reach, Target,
        sources::{self, Asked, Sources},
    },
    rights::{self, Right},
};

/// How long a replica that has just begun to lead reads mailboxes before it connects to pods.
const FIRST: Duration = Duration::from_secs(5);

/// The results of one round: of connections to pods, and of questions to controllers.
pub(super) type Round = (Vec<(Target, Attempt)>, Vec<(Asked, Option<Source>)>);

/// The schedule and the results of the probes.
pub(super) struct Rounds {
    pub(super) reach: Reach,
    pub(super) sources: Sources,
    pub(super) names: Names,
    /// When cluster DNS is asked next.
    ask_at: Instant,
    /// Whether this replica has chosen pods.
    pub(super) has_begun: bool,
    next_at: Instant,
    is_under_way: bool,
}

impl Rounds {
    /// Nothing is known.
    pub(super) fn since(now: Instant) -> Self {
        Self {
            reach: Reach::default(),
            sources: Sources::default(),
            names: Names::default(),
            ask_at: now + FIRST,
            has_begun: false,
            next_at: now + FIRST,
            is_under_way: false,
        }
    }

    /// Begins a term as leader. A name that DNS answered before counts as missing if it no longer does.
    pub(super) fn lead(&mut self, now: Instant) {
        let names = mem::take(&mut self.names);
        *self = Self { names, ask_at: self.ask_at, ..Self::since(now) };
    }

    /// Records the result of a round. A round of a former term does not count.
    pub(super) fn note(&mut self, (connected, asked): Round) {
        self.is_under_way = false;
        self.reach.note(connected);
        self.sources.note(asked);
    }
}

impl Control {
    /// Begins the next round if it is time.
    pub(super) fn probe_peers(&mut self, now: Instant) {
        let rounds = &mut self.rounds;
        let Some(period) = self.settings.probe_period() else { return };
        if rounds.is_under_way || now < rounds.next_at {
            return;
        }
        rounds.next_at = now + period;
        rounds.has_begun = true;
        let chosen = rounds.reach.choose(&self.state.peers, &self.state.own);
        let questions = Sources::to_ask(&self.state.peers);
        if chosen.is_empty() && questions.is_empty() {
            return;
        }
        rounds.is_under_way = true;
        self.tasks.push(Box::pin(async move {
            TaskResult::Round(join(connect_all(chosen), sources::ask(questions)).await)
        }));
    }

    /// Asks cluster DNS for names if it is time. A standby asks too: a replica notices a missing answer only after a first
    /// answer.
    pub(super) fn ask_for_names(&mut self, now: Instant) {
        let Some(period) = self.settings.probe_period() else { return };
        if now < self.rounds.ask_at {
            return;
        }
        self.rounds.ask_at = now + period;
        let questions = self.state.questions();
        self.tasks.push(Box::pin(async move {
            let ask = |question: Question| async move {
                let answer = question.ask().await;
                (question, answer)
            };
            TaskResult::Names(join_all(questions.into_iter().map(ask)).await)
        }));
    }

    /// Asks the API server what this controller may do, if it is time.
    pub(super) fn ask_for_rights(&mut self, now: Instant) {
        if self.rights.begin(now) {
            let access = Arc::clone(&self.access);
            self.tasks.push(Box::pin(async move {
                let Ok(connection) = access.connection().await else {
                    return TaskResult::Rights(None);
                };
                let may = |right| rights::may(&connection.client, None, right);
                TaskResult::Rights(rights::missing(may).await.ok())
            }));
        }
    }

    /// Records the answers of cluster DNS.
    pub(super) fn note_names(&mut self, round: &[(Question, Answer)]) {
        self.rounds.names.note(round);
        // A standby reports nothing.
        if self.is_leader {
            self.published.metrics.set_names(self.rounds.names.is_answered());
        }
    }

    /// Records the missing rights; `None` if the API server did not say.
    pub(super) fn note_rights(&mut self, missing: Option<Vec<Right>>) {
        if self.is_leader {
            let missing = self.rights.end(missing, Instant::now());
            self.published.metrics.set_missing_rights(missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::fixture::name;

    #[test]
    fn a_replica_that_leads_misses_names_that_were_answered_while_it_stood_by() {
        let now = Instant::now();
        let mut rounds = Rounds::since(now);
        let question = || Question::new(name("shop/web"), vec!["241.0.0.1".parse().unwrap()]);
        rounds.names.note(&[(question(), Answer::Right)]);
        rounds.lead(now);
        for _ in 0..2 {
            rounds.names.note(&[(question(), Answer::Nothing("no such name".to_owned()))]);
        }
        assert_eq!(rounds.names.is_answered(), Some(false));
    }
}
