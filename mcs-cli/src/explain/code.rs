//! The codes of findings that `mcs explain` makes outside of the agent.

use mcs_kube::program::finding::FindingCode;
pub(super) use mcs_kube::program::finding::{Finding, Severity};

/// A kind of finding. The names are stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    /// The node of the pod has no agent.
    NoAgent,
    /// The pod does not run.
    PodNotRunning,
    /// The cluster of the pod does not import the service.
    NotImported,
    /// The agent did not answer.
    AgentUnasked,
    /// A cluster did not answer.
    ClusterUnasked,
    /// A note of a cluster about its export or its import.
    ClusterNote,
}

impl Code {
    /// Every code.
    #[cfg(test)]
    pub(super) const ALL: [Self; 6] = [
        Self::NoAgent,
        Self::PodNotRunning,
        Self::NotImported,
        Self::AgentUnasked,
        Self::ClusterUnasked,
        Self::ClusterNote,
    ];

    const fn row(self) -> (&'static str, Severity, &'static str) {
        match self {
            Self::NoAgent => (
                "no-agent",
                Severity::Wrong,
                "ClusterSetIPs lead nowhere from this node: let the DaemonSet mcs-agent run there (`kubectl describe daemonset`; \
                 tolerations and nodeSelector of the chart), or move the pod",
            ),
            Self::PodNotRunning => (
                "pod-not-running",
                Severity::Wrong,
                "`kubectl describe pod` says what it waits for",
            ),
            Self::NotImported => (
                "not-imported",
                Severity::Wrong,
                "`mcs status --service` shows every cluster; `kubectl describe serviceimport` and `serviceexport` say why",
            ),
            Self::AgentUnasked => (
                "agent-unasked",
                Severity::Unknown,
                "it takes kubectl in the PATH, list of pods, and create of pods/exec in the agents' namespace; on the node, \
                 `mcs-agent explain` says the same",
            ),
            Self::ClusterUnasked => {
                ("cluster-unasked", Severity::Unknown, "name contexts that answer by --context")
            }
            Self::ClusterNote => {
                ("cluster-note", Severity::Note, "`mcs status --service` shows every cluster")
            }
        }
    }
}

impl FindingCode for Code {
    fn name(self) -> &'static str {
        self.row().0
    }

    fn severity(self) -> Severity {
        self.row().1
    }

    fn advice(self) -> &'static str {
        self.row().2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_code() {
        let document = include_str!("../../../deploy/explain.md");
        for code in Code::ALL {
            let finding = Finding::new(code, "");
            let row = format!("| `{}` | {} |", finding.code, finding.severity.name());
            let own = &document[document.find("## mcs explain").unwrap()..];
            assert!(own.contains(&row), "{row}");
        }
    }
}
