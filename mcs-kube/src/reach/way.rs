//! Whether the pods of one cluster are reachable in one IP family, by several rounds of connections.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{
    Attempt, Outcome,
    choice::{Sample, choose},
};

/// The way counts as broken after this many rounds with a lost endpoint. By then, endpoints of a dead node are no longer
/// ready.
pub const SILENT_ROUNDS: u32 = 3;
/// The way counts as whole again after this many rounds without a lost endpoint.
pub const REACHED_ROUNDS: u32 = 2;
/// The endpoints of a round that the next round repeats. It chooses the others anew.
const KEPT: usize = 2;
/// The most endpoints that are remembered as reached.
const KNOWN: usize = 256;

/// The judgement of the rounds. `S` names a service.
///
/// A silent endpoint is lost if it was reached before, or if no endpoint ever was: the way may be broken. A silent endpoint
/// that was never reached may be behind a policy if others answer; the next round then repeats some of the others.
#[derive(Clone, Debug)]
pub struct Way<S> {
    /// Whether no endpoint is lost. `None`: too few rounds agree.
    is_whole: Option<bool>,
    lost_rounds: u32,
    reached_rounds: u32,
    kept: Vec<(S, SocketAddr)>,
    /// The reached endpoints, the latest last, each with one of its services.
    known: VecDeque<(S, SocketAddr)>,
    /// The lost endpoints of the last round with lost endpoints.
    lost: Vec<(SocketAddr, Outcome)>,
    /// The number of endpoints in that round.
    probed: usize,
    /// The numbers of reached and of silent endpoints in the last round.
    counts: (usize, usize),
    round_trip: Option<Duration>,
}

impl<S> Default for Way<S> {
    fn default() -> Self {
        Self {
            is_whole: None,
            lost_rounds: 0,
            reached_rounds: 0,
            kept: vec![],
            known: VecDeque::new(),
            lost: vec![],
            probed: 0,
            counts: (0, 0),
            round_trip: None,
        }
    }
}

impl<S: Clone + Eq + Hash> Way<S> {
    /// Chooses the endpoints of the next round. `services`: a sample of services with endpoints. `endpoints`: the endpoints
    /// of a service. Resting pods are chosen only to repeat them.
    pub fn choose(
        &mut self,
        services: Sample<S>,
        endpoints: impl Fn(&S) -> Vec<SocketAddr>,
        rests: impl Fn(IpAddr) -> bool,
        count: usize,
    ) -> Vec<(S, SocketAddr)> {
        // A removed endpoint proves nothing about the others, and another pod may have its address. Its pods may belong to
        // other services.
        let mut there: HashMap<S, HashSet<SocketAddr>> = HashMap::new();
        let mut has = |service: &S, address: &SocketAddr| {
            let there = there.entry(service.clone());
            there.or_insert_with(|| endpoints(service).into_iter().collect()).contains(address)
        };
        self.known.retain_mut(|(service, address)| {
            if has(service, address) {
                return true;
            }
            let other = services.iter().find(|one| has(one, address));
            other.map(|other| service.clone_from(other)).is_some()
        });
        choose(services, endpoints, rests, &self.kept, count)
    }

    /// Records a round. Connections that this machine refused to start do not count.
    pub fn note(&mut self, mut round: Vec<(S, Attempt)>) {
        round.retain(|(_, one)| !matches!(one.outcome, Outcome::Failed | Outcome::Denied));
        if round.is_empty() {
            return;
        }
        let probed = round.len();
        let (reached, silent): (Vec<_>, Vec<_>) =
            round.into_iter().partition(|(_, attempt)| attempt.outcome.is_reached());
        self.counts = (reached.len(), silent.len());
        self.round_trip = reached.iter().map(|(_, attempt)| attempt.took).min();
        for (service, Attempt { address, .. }) in &reached {
            self.known.retain(|(_, known)| known != address);
            self.known.push_back((service.clone(), *address));
        }
        let is_lost = |(_, attempt): &(S, Attempt)| self.is_lost(attempt.address);
        let (lost, strange): (Vec<_>, Vec<_>) = silent.into_iter().partition(is_lost);
        while self.known.len() > KNOWN {
            self.known.pop_front();
        }
        if !lost.is_empty() {
            self.reached_rounds = 0;
            self.lost_rounds += 1;
            if self.lost_rounds >= SILENT_ROUNDS {
                self.is_whole = Some(false);
            }
            self.probed = probed;
            self.lost =
                lost.iter().map(|(_, attempt)| (attempt.address, attempt.outcome)).collect();
            let kept = lost.into_iter().take(KEPT);
            self.kept = kept.map(|(service, attempt)| (service, attempt.address)).collect();
            return;
        }
        self.kept.clear();
        if !strange.is_empty() && reached.is_empty() {
            let known = &mut fastrand::choose_multiple(self.known.iter(), KEPT).into_iter();
            self.kept = known.cloned().collect();
        }
        if !reached.is_empty() {
            self.lost_rounds = 0;
            self.reached_rounds += 1;
            if self.is_whole.is_none() || self.reached_rounds >= REACHED_ROUNDS {
                self.is_whole = Some(true);
            }
        }
    }

    /// Whether this silent endpoint was reached before, or no endpoint ever was.
    pub fn is_lost(&self, address: SocketAddr) -> bool {
        // A pod can serve several services, so the service does not matter.
        self.known.is_empty() || self.known.iter().any(|(_, known)| *known == address)
    }
}

impl<S> Way<S> {
    /// Whether no endpoint is lost. `None`: unknown.
    pub const fn is_whole(&self) -> Option<bool> {
        self.is_whole
    }

    /// The lost endpoints of the last round with lost endpoints, and the number of endpoints in that round.
    pub fn lost(&self) -> (&[(SocketAddr, Outcome)], usize) {
        (&self.lost, self.probed)
    }

    /// The numbers of reached and of silent endpoints in the last round.
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

    /// What is said after each of these rounds: `+` is one in which all answer, `-` one in which the second endpoint is silent, `0` one
    /// in which both are, `.` one that could not be tried.
    fn said(rounds: &str) -> String {
        let mut way = Way::default();
        let mut after = |of: char| {
            way.note(round(match of {
                '+' => &[Outcome::Answered, Outcome::Refused],
                '-' => &[Outcome::Answered, Outcome::Timeout],
                '0' => &[Outcome::Timeout, Outcome::Timeout],
                _ => &[Outcome::Failed],
            }));
            way.is_whole().map_or('?', |is_whole| if is_whole { '+' } else { '-' })
        };
        rounds.chars().map(&mut after).collect()
    }

    #[test]
    fn one_lost_packet_changes_nothing() {
        assert_eq!(said("+-+--+---"), "++++++++-");
        assert_eq!(said("000+0++"), "??----+", "and one answer changes nothing either");
        assert_eq!(said("00+"), "??+");
        assert_eq!(said(".0.0.0."), "?????--", "what is not tried says nothing");
    }

    #[test]
    fn an_endpoint_that_was_never_reached_breaks_no_way() {
        assert_eq!(said("-----"), "+++++");
        assert_eq!(said("-0000"), "+++--", "the first one was reached before");
        assert_eq!(said("000-"), "??--", "nothing was");
        let mut way = Way::default();
        way.note(round(&[Outcome::Answered]));
        let strange: Vec<_> = round(&[Outcome::Timeout; 2]).into_iter().skip(1).collect();
        way.note(strange.clone());
        let endpoints =
            |_: &u8| round(&[Outcome::Answered; 9]).iter().map(|one| one.1.address).collect();
        for _ in 0..20 {
            let chosen = way.choose((1..=9).collect(), endpoints, |_| true, 2);
            assert_eq!(chosen, [(1, SocketAddr::from(([10, 2, 0, 1], 80)))], "although all rest");
        }
        // The only one that was ever reached is gone: nothing shows that the way is whole.
        way.choose((2..=9).collect(), |_| vec![], |_| false, 2);
        (0..SILENT_ROUNDS).for_each(|_| way.note(strange.clone()));
        assert_eq!(way.is_whole(), Some(false));
    }

    #[test]
    fn an_endpoint_that_another_service_has_was_reached() {
        let mut way = Way::default();
        way.note(round(&[Outcome::Answered; 2]));
        let mut of_another = round(&[Outcome::Answered, Outcome::Timeout]);
        of_another[1].0 = 9;
        (0..SILENT_ROUNDS).for_each(|_| way.note(of_another.clone()));
        assert_eq!(way.is_whole(), Some(false));
    }

    #[test]
    fn an_endpoint_stays_known_while_another_service_has_it() {
        let mut way = Way::default();
        way.note(round(&[Outcome::Answered; 2]));
        let both =
            |_: &u8| round(&[Outcome::Answered; 2]).iter().map(|one| one.1.address).collect();
        let left = |service: &u8| if *service == 9 { both(service) } else { vec![] };
        way.choose((9..=9).collect(), left, |_| true, 2);
        let address = |number| SocketAddr::from(([10, 2, 0, number], 80));
        assert_eq!(way.known, [(9, address(1)), (9, address(2))]);
        way.choose((8..=8).collect(), |_| vec![], |_| true, 2);
        assert!(way.known.is_empty());
    }

    #[test]
    fn lost_endpoints_are_named_and_asked_again() {
        let mut way = Way::default();
        way.note(round(&[Outcome::Answered; 3]));
        way.note(round(&[Outcome::Answered, Outcome::Timeout, Outcome::Unreachable]));
        let (lost, probed) = way.lost();
        assert_eq!((lost.len(), probed, way.counts()), (2, 3, (1, 2)));
        assert_eq!(way.round_trip(), Some(Duration::from_millis(1)));
        let endpoints =
            |_: &u8| round(&[Outcome::Answered; 9]).iter().map(|one| one.1.address).collect();
        let chosen = way.choose((1..=9).collect(), endpoints, |_| false, 4);
        assert_eq!(chosen.iter().map(|(service, _)| *service).take(2).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(chosen.len(), 4);
        way.note(round(&[Outcome::Timeout; 4]));
        assert_eq!((way.counts(), way.round_trip()), ((0, 4), None));
        assert_eq!(way.kept.len(), KEPT, "the others are chosen anew");
    }
}
