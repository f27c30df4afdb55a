//! What the agents of a cluster report of themselves, by kubectl.

use anyhow::ensure;
use mcs_kube::{
    report::{NodeReport, Status},
    told,
};

/// What an agent says of itself.
pub(super) type NodeStatus = Status<NodeReport>;

/// The answers of the agents.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// By node.
    pub(super) said: Vec<(String, NodeStatus)>,
    /// Why the agent of a node said nothing.
    pub(super) unsaid: Vec<(String, String)>,
}

impl Reports {
    /// What ready agents have said.
    pub(super) fn of(statuses: Vec<(String, anyhow::Result<NodeStatus>)>) -> Self {
        let mut reports = Self::default();
        for (node, said) in statuses {
            reports.note(&node, said);
        }
        reports
    }

    fn note(&mut self, node: &str, said: anyhow::Result<NodeStatus>) {
        let said = said.and_then(|said| {
            ensure!(
                said.own_report().is_some(),
                "it has not reported: {}",
                said.degraded.join("; ")
            );
            Ok(said)
        });
        match said {
            Ok(status) => self.said.push((node.to_owned(), status)),
            Err(error) => self.unsaid.push((node.to_owned(), told(&error))),
        }
    }

    /// `3 of 12 agents answer`, or the reason why none has answered.
    pub(super) fn share(&self) -> Result<String, String> {
        match (self.said.len(), self.unsaid.first()) {
            (0, None) => Err("no agent is ready".to_owned()),
            (0, Some((node, why))) => Err(format!("{node}: {why}")),
            (said, _) => Ok(format!("{said} of {} agents answer", said + self.unsaid.len())),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::agent_pod::tests::status;

    /// The answers of these nodes, which differ in this from a healthy agent's.
    pub(crate) fn reports(said: impl IntoIterator<Item = (&'static str, Value)>) -> Reports {
        let mut reports = Reports::default();
        for (node, other) in said {
            reports.note(node, Ok(status(other)));
        }
        reports
    }

    #[test]
    fn the_report_of_an_agent_before_says_nothing() {
        let of = |started: u64, degraded: &[&str]| {
            let agent = |started: u64| json!({"version": "1", "pid": 1, "host": "n", "started": started, "updated": started});
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
        assert_eq!(some.share().unwrap(), "1 of 2 agents answer");
        assert_eq!(Reports::default().share().unwrap_err(), "no agent is ready");
    }
}
