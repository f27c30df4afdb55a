//! Whether cluster DNS answers the names of imports with their ClusterSetIPs, as this replica's pod sees it.

use std::{
    fmt,
    net::IpAddr,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use clap::ArgMatches;
use futures_util::future::join_all;
use mcs_kube::{
    names,
    reach::{Outcome, ProbePeers, dns},
};
use prometheus::IntGaugeVec;

use crate::core::{
    clock,
    clusterset::{Owner, ServiceName},
    control::State,
    feature::{self, Core, Entry, Feature},
    server::Metrics,
};

/// How long a replica that has just started reads objects before it asks.
const FIRST: Duration = Duration::from_secs(5);
/// How often it asks while no flag says so.
const PERIOD: u64 = 25;

/// How long an answer may take. Resolvers ask again after 5 s.
const PATIENCE: Duration = Duration::from_secs(8);
/// After this many wrong rounds in a row, names count as unanswered: DNS learns of a new import with a delay.
const WRONG: u32 = 2;

/// The imports in a round.
const QUESTIONS: usize = 3;

/// The name of an import, and its ClusterSetIPs.
#[derive(Clone, Debug)]
struct Question {
    service: ServiceName,
    vips: Vec<IpAddr>,
}

/// The answer of DNS.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    /// One of the ClusterSetIPs.
    Right,
    /// Only other addresses, such as those of the service in the own cluster.
    Other(Vec<IpAddr>),
    /// An error, or nothing.
    Nothing(String),
}

impl Question {
    /// Asks for this import.
    const fn new(service: ServiceName, vips: Vec<IpAddr>) -> Self {
        Self { service, vips }
    }

    /// Asks the name servers of this machine, and judges their answer.
    async fn ask(&self) -> Answer {
        // The last dot excludes search domains.
        self.judge(dns::look_up(&format!("{self}."), None, PATIENCE).await)
    }

    fn judge(&self, found: Result<Vec<IpAddr>, Outcome>) -> Answer {
        match found {
            Ok(found) if found.iter().any(|ip| self.vips.contains(ip)) => Answer::Right,
            Ok(mut found) => {
                found.dedup();
                Answer::Other(found)
            }
            Err(outcome) => Answer::Nothing(format!("it {}", outcome.text())),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&names::of(self.service.namespace(), self.service.name()))
    }
}

/// The judgement of the answers so far.
#[derive(Default, Debug)]
struct Names {
    is_answered: Option<bool>,
    wrong: u32,
}

impl Names {
    /// Whether names are answered. `None`: none was answered yet; some clusters need no names.
    const fn is_answered(&self) -> Option<bool> {
        self.is_answered
    }

    /// Records a round of answers, and logs when names stop or start to be answered. A single import can lack an answer,
    /// for example without ports: a round is wrong if every answer is.
    fn note(&mut self, round: &[(Question, Answer)]) {
        let before = self.is_answered;
        let Some((question, answer)) =
            round.iter().find(|(_, answer)| *answer == Answer::Right).or(round.first())
        else {
            // There is no name to ask for.
            *self = Self::default();
            return;
        };
        if *answer == Answer::Right {
            (self.is_answered, self.wrong) = (Some(true), 0);
        } else {
            self.wrong += 1;
            if before.is_some() && self.wrong >= WRONG {
                self.is_answered = Some(false);
            }
        }
        if before == self.is_answered {
            return;
        }
        match answer {
            Answer::Right => tracing::info!("cluster DNS answers names in clusterset.local"),
            Answer::Other(found) => tracing::warn!(
                "cluster DNS does not answer {question} with {:?}, but with {found:?}: run mcs check",
                question.vips
            ),
            Answer::Nothing(error) => tracing::warn!(
                "cluster DNS does not answer {question} any more: {error}: run mcs check"
            ),
        }
    }
}

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    start: |matches, wiring| {
        let Some(period) = period(matches) else { return Ok(None) };
        Ok(Some(Box::new(Asker::new(period, &wiring.published.metrics)?)))
    },
    ..Entry::NONE
};

/// How often names are asked for; `None`: never. The flags are those of the connections to peers: they are read by name, so
/// that each of the two can be without the other.
fn period(matches: &ArgMatches) -> Option<Duration> {
    let whether = matches.try_get_one("probe_peers").ok().flatten();
    let seconds = matches.try_get_one("probe_period").ok().flatten();
    (whether != Some(&ProbePeers::Off))
        .then(|| Duration::from_secs(seconds.copied().unwrap_or(PERIOD)))
}

/// Asks for names. A standby asks too: a replica notices a missing answer only after a first answer.
struct Asker {
    names: Names,
    period: Duration,
    next_at: Instant,
    round: feature::Question<Vec<(Question, Answer)>>,
    /// Whether this replica leads: a standby reports nothing.
    is_leader: bool,
    /// Whether cluster DNS answers names.
    gauge: IntGaugeVec,
}

impl Asker {
    fn new(period: Duration, metrics: &Metrics) -> prometheus::Result<Self> {
        Ok(Self {
            names: Names::default(),
            period,
            next_at: clock::now() + FIRST,
            round: feature::Question::default(),
            is_leader: false,
            gauge: metrics.gauges(
                "mcs_controller_names_answered",
                "1 while cluster DNS answers names in clusterset.local, 0 if it has and does not; absent before",
                &[],
            )?,
        })
    }

    fn report(&self) {
        self.gauge.reset();
        if let Some(is_answered) = self.names.is_answered().filter(|_| self.is_leader) {
            self.gauge.with_label_values::<&str>(&[]).set(is_answered.into());
        }
    }
}

impl Feature for Asker {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.round.poll(cx).map(|round| {
            self.names.note(&round);
            self.report();
        })
    }

    fn act(&mut self, core: &mut Core, now: Instant) {
        if self.round.is_asked() || now < self.next_at {
            return;
        }
        self.next_at = now + self.period;
        let ask = |question: Question| async move {
            let answer = question.ask().await;
            (question, answer)
        };
        self.round.ask(join_all(questions(core).into_iter().map(ask)));
    }

    /// What DNS answered before counts: a name that it no longer answers is missed.
    fn lead(&mut self, is_leader: bool, _: &mut State, _: Instant) {
        self.is_leader = is_leader;
        self.report();
    }

    #[cfg(test)]
    fn fill_metrics(&self) {
        self.gauge.with_label_values::<&str>(&[]).set(1);
    }
}

/// The names of some imports that controllers of this kind have written, and their VIPs.
fn questions(core: &Core) -> Vec<Question> {
    let state = &core.state;
    let is_ours = |name: &ServiceName| {
        state.own.import_object(name).is_some_and(|object| object.actual.owner == Owner::Us)
    };
    let there = state.vips.iter().filter(|(name, _)| is_ours(name));
    let chosen = fastrand::choose_multiple(there, QUESTIONS);
    chosen.into_iter().map(|(name, vips)| Question::new(name.clone(), vips.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{clusterset::fixture::name, control::state::tests::state};

    fn question() -> Question {
        Question::new(
            name("shop/web"),
            vec!["241.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        )
    }

    /// What is said after each of these answers: `+` is right, `-` is not.
    fn said(answers: &str) -> String {
        let mut names = Names::default();
        let mut after = |of| {
            let answer =
                if of == '+' { Answer::Right } else { Answer::Nothing("no such name".to_owned()) };
            names.note(&[(question(), Answer::Nothing(String::new())), (question(), answer)]);
            names.is_answered().map_or('?', |is| if is { '+' } else { '-' })
        };
        answers.chars().map(&mut after).collect()
    }

    #[test]
    fn names_that_were_never_answered_are_not_missed() {
        assert_eq!(said("---+-+--+"), "???++++-+");
        let mut names = Names::default();
        names.note(&[(question(), Answer::Right)]);
        names.note(&[]);
        assert_eq!(names.is_answered(), None, "there is no import");
    }

    #[test]
    fn an_answer_has_a_clusterset_ip() {
        assert_eq!(question().to_string(), "web.shop.svc.clusterset.local");
        let judge = |found: &[&str]| {
            question().judge(Ok(found.iter().map(|text| text.parse().unwrap()).collect()))
        };
        assert_eq!(judge(&["fd00::1"]), Answer::Right);
        assert_eq!(judge(&["10.96.0.1"]), Answer::Other(vec!["10.96.0.1".parse().unwrap()]));
        let nothing = question().judge(Err(Outcome::DnsEmpty));
        assert_eq!(nothing, Answer::Nothing("it has no address in DNS".to_owned()));
    }

    #[test]
    fn a_replica_that_leads_misses_names_that_were_answered_while_it_stood_by() {
        let metrics = Metrics::new().unwrap();
        let mut asker = Asker::new(Duration::from_secs(PERIOD), &metrics).unwrap();
        asker.names.note(&[(question(), Answer::Right)]);
        asker.report();
        assert!(!metrics.text().unwrap().contains("names_answered"), "it stands by");
        asker.lead(true, &mut state(), Instant::now());
        assert!(metrics.text().unwrap().contains("names_answered 1"));
        for _ in 0..2 {
            asker.names.note(&[(question(), Answer::Nothing("no such name".to_owned()))]);
        }
        asker.report();
        assert!(metrics.text().unwrap().contains("names_answered 0"));
    }
}
