//! Whether cluster DNS answers the names of imports with their ClusterSetIPs, as this replica's pod sees it.

use std::{fmt, net::IpAddr, time::Duration};

use mcs_kube::dns_name;
use tokio::{net::lookup_host, time::timeout};

use crate::clusterset::ServiceName;

/// How long an answer may take. Resolvers ask again after 5 s.
const PATIENCE: Duration = Duration::from_secs(8);
/// After this many wrong rounds in a row, names count as unanswered: DNS learns of a new import with a delay.
const WRONG: u32 = 2;

/// The imports in a round.
pub const QUESTIONS: usize = 3;

/// The name of an import, and its ClusterSetIPs.
#[derive(Clone, Debug)]
pub struct Question {
    service: ServiceName,
    vips: Vec<IpAddr>,
}

/// The answer of DNS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// One of the ClusterSetIPs.
    Right,
    /// Only other addresses, such as those of the service in the own cluster.
    Other(Vec<IpAddr>),
    /// An error, or nothing.
    Nothing(String),
}

impl Question {
    /// Asks for this import.
    pub const fn new(service: ServiceName, vips: Vec<IpAddr>) -> Self {
        Self { service, vips }
    }

    /// Asks the name servers of this machine, and judges their answer.
    pub async fn ask(&self) -> Answer {
        // The last dot excludes search domains.
        let name = format!("{self}.:0");
        match timeout(PATIENCE, lookup_host(name)).await {
            Ok(Ok(found)) => self.judge(found.map(|address| address.ip()).collect()),
            Ok(Err(error)) => Answer::Nothing(error.to_string()),
            Err(_) => Answer::Nothing(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }

    fn judge(&self, mut found: Vec<IpAddr>) -> Answer {
        if found.iter().any(|ip| self.vips.contains(ip)) {
            return Answer::Right;
        }
        found.dedup();
        if found.is_empty() {
            Answer::Nothing("no address".to_owned())
        } else {
            Answer::Other(found)
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&dns_name::of(self.service.namespace(), self.service.name()))
    }
}

/// The judgement of the answers so far.
#[derive(Default, Debug)]
pub struct Names {
    is_answered: Option<bool>,
    wrong: u32,
}

impl Names {
    /// Whether names are answered. `None`: none was answered yet; some clusters need no names.
    pub const fn is_answered(&self) -> Option<bool> {
        self.is_answered
    }

    /// Records a round of answers, and logs when names stop or start to be answered. A single import can lack an answer,
    /// for example without ports: a round is wrong if every answer is.
    pub fn note(&mut self, round: &[(Question, Answer)]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::fixture::name;

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
            question().judge(found.iter().map(|text| text.parse().unwrap()).collect())
        };
        assert_eq!(judge(&["fd00::1"]), Answer::Right);
        assert_eq!(judge(&["10.96.0.1"]), Answer::Other(vec!["10.96.0.1".parse().unwrap()]));
        assert_eq!(judge(&[]), Answer::Nothing("no address".to_owned()));
    }
}
