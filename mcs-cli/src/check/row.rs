//! A row of `mcs check`: what one check says of a cluster, how it prints, and which status the command ends with.

use mcs_kube::{
    program::Style,
    reasons::{ClusterCheck, Coded as _},
    told,
};
use serde::Serialize;

use super::{chain::Difference, nodes, pods::Probe};
use crate::exit::UNASKED;

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// The id of the cluster; its kubeconfig if it does not answer.
    pub(super) cluster: String,
    pub(super) check: ClusterCheck,
    pub(super) ok: bool,
    /// It may be on purpose.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) warning: bool,
    /// The check did not get an answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) skipped: bool,
    pub(super) message: String,
    /// The link to the explanation of the check.
    pub(super) see: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer: Option<String>,
    /// The node from which it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) probes: Vec<Probe>,
    /// The services whose chain breaks at this link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) differences: Vec<Difference>,
}

impl Finding {
    /// The result of a check. An error is advice, or a [`Warning`], or [`Unknown`]. It counts as unknown if the caller
    /// lacks a right.
    pub(super) fn new(cluster: &str, check: ClusterCheck, result: anyhow::Result<String>) -> Self {
        let mut finding = Self {
            cluster: cluster.to_owned(),
            check,
            ok: true,
            warning: false,
            skipped: false,
            message: String::new(),
            see: check.link(),
            peer: None,
            node: None,
            probes: vec![],
            differences: vec![],
        };
        finding.message = match result {
            Ok(message) => message,
            Err(error) => {
                if let Some(right) = missing_right(&error) {
                    finding.skipped = true;
                    format!("not checked, as you may not {right}: let somebody run `check` who may")
                } else {
                    finding.warning = error.is::<Warning>();
                    finding.skipped = error.is::<Unknown>();
                    finding.ok = finding.warning || finding.skipped;
                    told(&error)
                }
            }
        };
        finding
    }

    /// What is said of a node.
    pub(super) fn of_node(
        cluster: &str,
        node: &str,
        check: ClusterCheck,
        result: anyhow::Result<String>,
    ) -> Self {
        let result = result.map(|message| format!("{node}: {message}"));
        let result = result.map_err(|error| error.context(node.to_owned()));
        Self { node: Some(node.to_owned()), ..Self::new(cluster, check, result) }
    }

    pub(super) const fn result(&self) -> &'static str {
        match self {
            Self { ok: false, .. } => "FAILED",
            Self { warning: true, .. } => "warning",
            Self { skipped: true, .. } => "skipped",
            _ => "ok",
        }
    }
}

/// A problem that may be on purpose.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Warning(pub(super) String);

/// A check without an answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unknown(pub(super) String);

/// The first of many, and the number of the others.
pub(super) fn listed(all: &[String]) -> String {
    const NAMED: usize = 5;
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// The right that the caller lacks, if a request failed for that reason. Admission also answers 403, with another text.
pub(super) fn missing_right(error: &anyhow::Error) -> Option<&str> {
    error.chain().find_map(|cause| match cause.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) if status.code == 403 => {
            Some(status.message.split_once("\" cannot ")?.1)
        }
        _ => None,
    })
}

/// A cluster that does not answer is unknown, as a peer is of which its controller does not say now whether it is read.
pub(super) fn exit_code(findings: &[Finding]) -> u8 {
    let is_unasked = |one: &Finding| match one.check {
        ClusterCheck::ApiServer => !one.ok,
        ClusterCheck::Peer => one.skipped,
        _ => false,
    };
    if findings.iter().any(|one| !one.ok && !is_unasked(one)) {
        1
    } else if findings.iter().any(is_unasked) {
        UNASKED
    } else {
        0
    }
}

/// Failures come first.
pub(super) fn table(findings: &[Finding], style: Style) -> anyhow::Result<()> {
    let mut sorted: Vec<_> = findings.iter().collect();
    sorted.sort_by_key(|one| (one.ok, !one.warning, !one.skipped));
    let rows = nodes::folded(&sorted).into_iter().map(|(one, message)| {
        let result = one.result();
        let see = if result == "ok" { String::new() } else { format!("\nsee {}", one.see) };
        let (cluster, check) = (one.cluster.clone(), one.check.to_string());
        vec![cluster, check, result.to_owned(), format!("{message}{see}")]
    });
    style.table(&["CLUSTER", "CHECK", "RESULT", "MESSAGE"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_now_is_no_success() {
        let find = |check, result| Finding::new("east", check, result);
        let good = || find(ClusterCheck::Id, Ok(String::new()));
        let skipped = || find(ClusterCheck::DnsVersion, Err(Unknown("no tag".to_owned()).into()));
        let begun = || find(ClusterCheck::Peer, Err(Unknown("not yet".to_owned()).into()));
        let away = || find(ClusterCheck::ApiServer, Err(anyhow::anyhow!("refused")));
        let failed = || find(ClusterCheck::Exports, Err(anyhow::anyhow!("no Service")));
        for (findings, code) in [
            (vec![good(), skipped()], 0),
            (vec![skipped(), begun()], 3),
            (vec![good(), away()], 3),
            (vec![away(), begun(), failed()], 1),
            (vec![find(ClusterCheck::Types, Err(anyhow::anyhow!("no CRD")))], 1),
        ] {
            assert_eq!(exit_code(&findings), code, "{findings:?}");
        }
        assert_eq!(begun().result(), "skipped");
    }

    #[test]
    fn a_right_that_the_caller_lacks_is_named() {
        let refused = |code, message: &str| {
            let status =
                kube::core::Status { code, message: message.to_owned(), ..Default::default() };
            let error = kube::Error::Api(Box::new(status));
            anyhow::Error::new(mcs_controller::core::apply::ApplyError::Refused(error))
                .context("Deployment")
        };
        let message = "deployments.apps \"coredns\" is forbidden: User \"operator\" cannot get resource \
                       \"deployments\" in API group \"apps\" in the namespace \"kube-system\"";
        let right =
            "get resource \"deployments\" in API group \"apps\" in the namespace \"kube-system\"";
        assert_eq!(missing_right(&refused(403, message)), Some(right));
        let message = "pods \"mcs-probe\" is forbidden: violates PodSecurity \"restricted:latest\"";
        assert_eq!(missing_right(&refused(403, message)), None);
        assert_eq!(missing_right(&refused(404, "not found")), None);
    }
}
