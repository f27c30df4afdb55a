//! The way to the pods of one cluster in one IP family, as several rounds of connections show it.

use std::{net::SocketAddr, time::Duration};

use super::{
    Attempt, Outcome,
    choice::{Sample, choose},
};

/// After how many rounds with a silent endpoint the way counts as broken. The endpoints of a node that dies are not ready any more
/// by then.
pub const SILENT_ROUNDS: u32 = 3;
/// After how many rounds without one it counts as whole again.
pub const REACHED_ROUNDS: u32 = 2;
/// How many silent endpoints are asked again in the next round. The others of a round are chosen anew.
const KEPT: usize = 2;

/// What the rounds of connections say. `S` names a service.
#[derive(Clone, Debug)]
pub struct Way<S> {
    /// Whether all endpoints are reached. `None`: too few rounds say so, or the contrary.
    is_whole: Option<bool>,
    silent_rounds: u32,
    reached_rounds: u32,
    kept: Vec<(S, SocketAddr)>,
    /// Those of the last round with a silent endpoint.
    silent: Vec<(SocketAddr, Outcome)>,
    /// How many endpoints that round had.
    probed: usize,
    /// How many endpoints were reached in the last round, and how many were not.
    counts: (usize, usize),
    round_trip: Option<Duration>,
}

impl<S> Default for Way<S> {
    fn default() -> Self {
        Self {
            is_whole: None,
            silent_rounds: 0,
            reached_rounds: 0,
            kept: vec![],
            silent: vec![],
            probed: 0,
            counts: (0, 0),
            round_trip: None,
        }
    }
}

impl<S: Clone> Way<S> {
    /// The endpoints of the next round: `services` are some that have endpoints, `endpoints` those of one of them.
    pub fn choose(
        &self,
        services: Sample<S>,
        endpoints: impl Fn(&S) -> Vec<SocketAddr>,
        count: usize,
    ) -> Vec<(S, SocketAddr)> {
        choose(services, endpoints, &self.kept, count)
    }

    /// Notes a round. Connections that this machine did not let begin say nothing.
    pub fn note(&mut self, mut round: Vec<(S, Attempt)>) {
        round.retain(|(_, attempt)| attempt.outcome != Outcome::Failed);
        if round.is_empty() {
            return;
        }
        let (reached, silent): (Vec<_>, Vec<_>) =
            round.into_iter().partition(|(_, attempt)| attempt.outcome.is_reached());
        self.counts = (reached.len(), silent.len());
        self.round_trip = reached.iter().map(|(_, attempt)| attempt.took).min();
        if silent.is_empty() {
            self.kept.clear();
            self.silent_rounds = 0;
            self.reached_rounds += 1;
            if self.is_whole.is_none() || self.reached_rounds >= REACHED_ROUNDS {
                self.is_whole = Some(true);
            }
            return;
        }
        self.reached_rounds = 0;
        self.silent_rounds += 1;
        if self.silent_rounds >= SILENT_ROUNDS {
            self.is_whole = Some(false);
        }
        self.probed = reached.len() + silent.len();
        self.silent =
            silent.iter().map(|(_, attempt)| (attempt.address, attempt.outcome)).collect();
        let kept = silent.into_iter().take(KEPT);
        self.kept = kept.map(|(service, attempt)| (service, attempt.address)).collect();
    }
}

impl<S> Way<S> {
    /// Whether all endpoints are reached. `None`: that is not known yet.
    pub const fn is_whole(&self) -> Option<bool> {
        self.is_whole
    }

    /// The silent endpoints of the last round with one, and how many endpoints that round had.
    pub fn silent(&self) -> (&[(SocketAddr, Outcome)], usize) {
        (&self.silent, self.probed)
    }

    /// How many endpoints were reached in the last round, and how many were not.
    pub const fn counts(&self) -> (usize, usize) {
        self.counts
    }

    /// The shortest round trip of the last round.
    pub const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(outcomes: &[Outcome]) -> Vec<(u8, Attempt)> {
        let one = |(&outcome, number): (&Outcome, u8)| {
            let address = SocketAddr::from(([10, 2, 0, number], 80));
            (number, Attempt { address, outcome, took: Duration::from_millis(number.into()) })
        };
        outcomes.iter().zip(1u8..).map(one).collect()
    }

    /// What is said after each of these rounds: `+` is one in which all answer, `-` one with a silent endpoint, `.` one that could
    /// not be tried.
    fn said(rounds: &str) -> String {
        let mut way = Way::default();
        let mut after = |of: char| {
            way.note(round(match of {
                '+' => &[Outcome::Answered, Outcome::Refused],
                '-' => &[Outcome::Answered, Outcome::Timeout],
                _ => &[Outcome::Failed],
            }));
            way.is_whole().map_or('?', |is_whole| if is_whole { '+' } else { '-' })
        };
        rounds.chars().map(&mut after).collect()
    }

    #[test]
    fn one_lost_packet_changes_nothing() {
        assert_eq!(said("+-+--+---"), "++++++++-");
        assert_eq!(said("---+-++"), "??----+", "and one answer changes nothing either");
        assert_eq!(said("--+"), "??+");
        assert_eq!(said(".-.-.-."), "?????--", "what is not tried says nothing");
    }

    #[test]
    fn silent_endpoints_are_named_and_asked_again() {
        let mut way = Way::default();
        way.note(round(&[Outcome::Answered, Outcome::Timeout, Outcome::Unreachable]));
        let (silent, probed) = way.silent();
        assert_eq!((silent.len(), probed, way.counts()), (2, 3, (1, 2)));
        assert_eq!(way.round_trip(), Some(Duration::from_millis(1)));
        let endpoints =
            |_: &u8| round(&[Outcome::Answered; 9]).iter().map(|one| one.1.address).collect();
        let chosen = way.choose((1..=9).collect(), endpoints, 4);
        assert_eq!(chosen.iter().map(|(service, _)| *service).take(2).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(chosen.len(), 4);
        way.note(round(&[Outcome::Timeout; 4]));
        assert_eq!((way.counts(), way.round_trip()), ((0, 4), None));
        assert_eq!(way.kept.len(), KEPT, "the others are chosen anew");
    }
}
