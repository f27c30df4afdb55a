//! The answers to `/livez`, `/readyz`, `/healthz` and `/metrics`.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, SystemTime},
};

use hyper::{StatusCode, Uri};
use mcs_kube::{
    program::http::{Answer, ListenerReport, Serve, Serves},
    reasons::Coded as _,
};
use prometheus::TEXT_FORMAT;
use serde::Serialize;

use crate::core::{
    control::{
        health::{Attachments, Check, is_of_readiness},
        metrics::scrape,
        published::Published,
    },
    feature::{AgentView, Definition, Route, failings},
    kernel::loader::Pins,
};

const JSON: &str = "application/json";

/// What is needed to answer.
pub(in crate::core::control) struct Answers {
    pub(super) published: Arc<Published>,
    pub(super) pins: Pins,
    pub(super) features: &'static [Definition],
    /// How long the control task may be silent, or a change wait.
    pub(super) patience: Duration,
    /// What features answer.
    pub(super) routes: Vec<Box<dyn Route>>,
}

/// The body of `/healthz`, with the fields of kube-proxy's that mean something here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Healthz {
    last_updated: jiff::Timestamp,
    current_time: jiff::Timestamp,
    healthy: bool,
}

/// Something that has a name and can be wrong.
struct Verdict {
    name: &'static str,
    failings: Vec<String>,
}

impl Serve for Answers {
    fn answer(&self, serves: Serves, uri: &Uri) -> Answer {
        if !self.routes.is_empty() {
            let report = self.published.report();
            let (pins, features) = (&self.pins, self.features);
            let agent = AgentView { report: report.as_deref(), pins, features };
            if let Some(answer) =
                self.routes.iter().find_map(|route| route.answer(&agent, serves, uri))
            {
                return answer;
            }
        }
        let verbose = uri.query().is_some_and(|query| {
            query.split('&').any(|one| one.split('=').next() == Some("verbose"))
        });
        match (uri.path(), serves) {
            ("/livez", Serves { health: true, .. }) => self.livez(verbose),
            ("/readyz", Serves { health: true, .. }) => self.readyz(verbose),
            ("/healthz", Serves { health: true, .. }) => self.healthz(),
            ("/metrics", Serves { metrics: true, .. }) => self.metrics(),
            _ => Answer::text(StatusCode::NOT_FOUND, format!("there is {}\n", paths(serves))),
        }
    }

    fn note_listener(&self, report: ListenerReport) {
        self.published.set_listener(report);
    }
}

impl Answers {
    fn livez(&self, verbose: bool) -> Answer {
        let answer = tell("livez", &[self.control()], verbose);
        self.published.metrics.count_livez(answer.status.as_u16());
        answer
    }

    fn control(&self) -> Verdict {
        let silence = self.published.silence();
        let stuck = format!("no sign of life for {:.0} s", silence.as_secs_f64());
        let failings = if silence > self.patience { vec![stuck] } else { Vec::new() };
        Verdict { name: "control", failings }
    }

    fn readyz(&self, verbose: bool) -> Answer {
        let ending = "the agent was told to end; the dataplane stays".to_owned();
        let starting = "no maps and programs yet; the log says what is waited for".to_owned();
        let stop = if self.published.life.is_stopping() { vec![ending] } else { Vec::new() };
        let mut verdicts = vec![Verdict { name: "shutdown", failings: stop }, self.control()];
        match self.published.report() {
            None => verdicts.push(Verdict { name: "start", failings: vec![starting] }),
            Some(report) => {
                let failings = failings(self.features, &report, &Attachments::read(&self.pins));
                let checks = Check::ALL.iter().filter(|check| is_of_readiness(**check));
                verdicts.extend(checks.map(|check| {
                    let of_check = failings.iter().filter(|(failed, _)| failed == check);
                    let failings = of_check.map(|(_, failing)| failing.clone()).collect();
                    Verdict { name: check.name(), failings }
                }));
            }
        }
        tell("readyz", &verdicts, verbose)
    }

    fn healthz(&self) -> Answer {
        let waited =
            self.published.oldest_change().unwrap_or_default().max(self.published.silence());
        let healthy = waited <= self.patience;
        let now = SystemTime::now();
        let current_time = jiff::Timestamp::try_from(now).unwrap_or_default();
        // As kube-proxy: what is healthy is up to date now.
        let last_updated = if healthy { now } else { now - waited };
        let body = Healthz {
            last_updated: jiff::Timestamp::try_from(last_updated).unwrap_or_default(),
            current_time,
            healthy,
        };
        let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        self.published.metrics.count_healthz(status.as_u16());
        let body = serde_json::to_string(&body).unwrap_or_default();
        Answer { status, content: JSON, body }
    }

    fn metrics(&self) -> Answer {
        match scrape(&self.published, self.features, &self.pins) {
            Ok(body) => Answer { status: StatusCode::OK, content: TEXT_FORMAT, body },
            Err(error) => Answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

fn paths(serves: Serves) -> &'static str {
    match (serves.health, serves.metrics) {
        (true, true) => "/livez, /readyz, /healthz and /metrics",
        (true, false) => "/livez, /readyz and /healthz",
        (false, _) => "/metrics",
    }
}

/// `ok`, or a line for each check, as the API server writes it.
fn tell(name: &str, verdicts: &[Verdict], verbose: bool) -> Answer {
    let passed = verdicts.iter().all(|verdict| verdict.failings.is_empty());
    if passed && !verbose {
        return Answer::text(StatusCode::OK, "ok");
    }
    let mut body = String::new();
    for Verdict { name, failings } in verdicts {
        // Writing to a string cannot fail.
        let _ = match failings.as_slice() {
            [] => writeln!(body, "[+]{name} ok"),
            failings => writeln!(body, "[-]{name} failed: {}", failings.join("; ")),
        };
    }
    let _ = writeln!(body, "{name} check {}", if passed { "passed" } else { "failed" });
    let status = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Answer::text(status, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &'static str, failings: &[&str]) -> Verdict {
        Verdict { name, failings: failings.iter().map(|&failing| failing.to_owned()).collect() }
    }

    #[test]
    fn a_check_that_fails_says_why_without_being_asked() {
        let good = [verdict("sync", &[]), verdict("hooks", &[])];
        assert_eq!(tell("readyz", &good, false).body, "ok");
        let verbose = tell("readyz", &good, true);
        assert_eq!(verbose.body, "[+]sync ok\n[+]hooks ok\nreadyz check passed\n");
        assert_eq!(verbose.status, StatusCode::OK);
        let bad = [verdict("sync", &[]), verdict("hooks", &["no connect4", "no connect6"])];
        for verbose in [false, true] {
            let answer = tell("readyz", &bad, verbose);
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(
                answer.body,
                "[+]sync ok\n[-]hooks failed: no connect4; no connect6\nreadyz check failed\n"
            );
        }
    }
}
