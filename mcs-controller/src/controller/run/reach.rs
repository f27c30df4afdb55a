//! Connections to a few pods of each peer and a question to cluster DNS, again and again.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mcs_kube::reach::{Attempt, connect_all};

use super::{Control, Done};
use crate::{
    names::{Names, Question},
    reach::{Reach, Target},
};

/// How long a replica that has just begun to lead reads mailboxes before it connects to pods.
const FIRST: Duration = Duration::from_secs(5);

/// When pods of peers are connected to, and what became of it.
pub(super) struct Rounds {
    pub(super) reach: Reach,
    pub(super) names: Names,
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
            names: Names::default(),
            has_begun: false,
            next_at: now + FIRST,
            is_under_way: false,
        }
    }

    /// Notes a round that has ended. One of a former term says nothing.
    pub(super) fn note(&mut self, round: Vec<(Target, Attempt)>) {
        self.is_under_way = false;
        self.reach.note(round);
    }
}

impl Control {
    /// Begins the next round if it is time.
    pub(super) fn probe_peers(&mut self, now: Instant) {
        let rounds = &mut self.rounds;
        let Some(period) = self.settings.probe_period else { return };
        if rounds.is_under_way || now < rounds.next_at {
            return;
        }
        rounds.next_at = now + period;
        rounds.has_begun = true;
        let questions = self.state.questions();
        self.tasks.push(Box::pin(async move {
            let ask = |question: Question| async move {
                let answer = question.ask().await;
                (question, answer)
            };
            Done::Names(join_all(questions.into_iter().map(ask)).await)
        }));
        let chosen = rounds.reach.choose(&self.state.peers, &self.state.own);
        if chosen.is_empty() {
            return;
        }
        rounds.is_under_way = true;
        self.tasks.push(Box::pin(async move { Done::Round(connect_all(chosen).await) }));
    }
}
