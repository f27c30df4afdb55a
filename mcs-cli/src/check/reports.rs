//! What some agents of a cluster report of themselves, by kubectl.

use std::collections::BTreeMap;

use anyhow::ensure;
use mcs_kube::told;
use serde::Deserialize;

use crate::{
    agent_pod::{self, AgentPod},
    cluster::Cluster,
    tool::said_last,
};

/// The agents that are asked: as many as at a time.
const ASKED: usize = 8;

/// The fields of `mcs-agent status -o json` that are read.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Status {
    pub(super) degraded: Vec<String>,
    report: Option<Report>,
    #[serde(default)]
    start: Option<Start>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Report {
    #[serde(default)]
    agent: Agent,
    #[serde(default)]
    pub(super) source: Source,
    #[serde(default)]
    pub(super) rejections: Vec<Rejection>,
    /// All, by reason: the list has a limited number.
    #[serde(default)]
    pub(super) rejection_counts: BTreeMap<String, usize>,
}

#[derive(Debug, Deserialize)]
struct Start {
    agent: Agent,
}

#[derive(PartialEq, Eq, Debug, Default, Deserialize)]
struct Agent {
    started: u64,
    pid: u32,
    host: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Source {
    #[serde(default)]
    pub(super) kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kind {
    /// When the API server last answered, in seconds since the Unix epoch; absent while the kind is followed.
    pub(super) known_until: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rejection {
    pub(super) object: Object,
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Object {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Status {
    /// The report of the agent that runs.
    pub(super) fn report(&self) -> Option<&Report> {
        let is_own = |report: &&Report| {
            self.start.as_ref().is_none_or(|start| {
                start.agent == report.agent || start.agent.started < report.agent.started
            })
        };
        self.report.as_ref().filter(is_own)
    }
}

/// The answers of some agents.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// By node.
    pub(super) said: Vec<(String, Status)>,
    /// The agents that are ready.
    ready: usize,
    /// Why an agent, or all, said nothing.
    why: Option<String>,
}

impl Reports {
    /// Asks ready agents.
    pub(super) async fn of(cluster: &Cluster) -> Self {
        let mut pods = match agent_pod::pods(cluster, None).await {
            Ok(pods) => pods,
            Err(error) => return Self { why: Some(told(&error)), ..Self::default() },
        };
        pods.retain(|pod| pod.obstacle.is_none());
        let mut reports = Self { ready: pods.len(), ..Self::default() };
        pods.truncate(ASKED);
        for (pod, said) in agent_pod::ask_each(&pods, async |pod| read(cluster, pod).await).await {
            reports.note(&pod.node, said);
        }
        reports
    }

    pub(super) fn note(&mut self, node: &str, said: anyhow::Result<Status>) {
        let said = said.and_then(|said| {
            ensure!(said.report().is_some(), "it has not reported: {}", said.degraded.join("; "));
            Ok(said)
        });
        match said {
            Ok(status) => self.said.push((node.to_owned(), status)),
            Err(error) => _ = self.why.get_or_insert_with(|| format!("{node}: {}", told(&error))),
        }
    }

    /// `3 of 12 agents were asked`, or the reason why none has answered.
    pub(super) fn share(&self) -> Result<String, String> {
        match (self.said.len(), &self.why) {
            (0, why) => Err(why.clone().unwrap_or_else(|| "no agent is ready".to_owned())),
            (said, _) => Ok(format!("{said} of {} agents were asked", self.ready.max(said))),
        }
    }
}

/// What the agent of a pod says. One that is degraded ends the command with another status than 0.
pub(super) async fn read(cluster: &Cluster, pod: &AgentPod) -> anyhow::Result<Status> {
    let output = pod.run(cluster, &["status", "--output", "json"]).await?;
    serde_json::from_slice(&output.stdout).map_err(|_| anyhow::anyhow!(said_last(&output)))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The answers of these nodes.
    pub(crate) fn reports(said: impl IntoIterator<Item = (&'static str, Value)>) -> Reports {
        let mut reports = Reports::default();
        for (node, status) in said {
            reports.note(node, serde_json::from_value(status).map_err(Into::into));
        }
        reports
    }

    #[test]
    fn the_report_of_an_agent_before_says_nothing() {
        let of = |started: u64, degraded: &[&str]| {
            let agent = |started: u64| json!({"started": started, "pid": 1, "host": "n"});
            json!({
                "degraded": degraded, "report": {"agent": agent(started)}, "start": {"agent": agent(7)},
            })
        };
        let former = || of(5, &["by the agent before"]);
        let why = reports([("n1", former())]).share().unwrap_err();
        assert_eq!(why, "n1: it has not reported: by the agent before");
        let unread = json!({"degraded": ["no such file"], "report": null, "start": null});
        assert!(reports([("n1", unread)]).share().unwrap_err().contains("no such file"));
        let some = reports([("n1", former()), ("n2", of(7, &[]))]);
        assert_eq!(some.share().unwrap(), "1 of 1 agents were asked");
        assert_eq!(Reports::default().share().unwrap_err(), "no agent is ready");
    }
}
