//! The conditions of a ClusterPeer, one function each.

use std::{fmt::Write as _, time::Instant};

use mcs_kube::{
    one_line,
    reasons::{Coded as _, Reason, Severity},
};

use super::PeerNotes;
use crate::core::{
    clusterset::ClusterId,
    mailbox::MailboxProblem,
    objects::{PeerCondition, WhenStale},
    peers::{AccessProblem, Peer},
};

/// How many services without a namespace a message names.
const NAMED: usize = 8;

/// The reason says whether the condition holds.
pub(crate) fn condition(
    condition_type: &str,
    reason: Reason,
    message: impl AsRef<str>,
) -> PeerCondition {
    let status = match reason.severity() {
        Severity::Wrong => "False",
        Severity::Unknown => "Unknown",
        Severity::Note => "True",
    };
    // The text can come from a proxy, or from a peer.
    let mut message = one_line(message.as_ref());
    let advice = reason.advice();
    if status != "True" && !advice.is_empty() {
        message = format!("{}. To do: {advice}", message.trim_end_matches('.'));
    }
    PeerCondition {
        condition_type: condition_type.to_owned(),
        status: status.to_owned(),
        reason: reason.to_string(),
        message,
        last_transition_time: String::new(),
        observed_generation: None,
    }
}

/// The condition whose message the table of reasons has.
pub(crate) fn plain(condition_type: &str, reason: Reason) -> PeerCondition {
    condition(condition_type, reason, reason.meaning())
}

/// The condition that the API server has already, if it says something: a new leader keeps it until it knows better.
pub(crate) fn former(peer: &Peer, kind: &str) -> Option<PeerCondition> {
    let former = peer.object.status.conditions.iter().find(|one| one.condition_type == kind);
    let former = former.filter(|one| one.status != "Unknown")?;
    let (last_transition_time, observed_generation) = (String::new(), None);
    Some(PeerCondition { last_transition_time, observed_generation, ..former.clone() })
}

/// A condition of what the mailbox has, before everything of it was listed.
fn unread(kind: &str) -> PeerCondition {
    condition(kind, Reason::Pending, "the mailbox was not read yet")
}

pub(super) fn of_broken(error: &str) -> String {
    format!(
        "{error}. The controller has started since, and knows no spec of before: what was imported stays as it is, and nothing \
         new is"
    )
}

/// Whether the present ClusterPeer and its Secret are used.
pub(super) fn accepted(peer: &Peer) -> PeerCondition {
    let kind = "Accepted";
    if let Some(error) = &peer.rejected {
        let message = format!("{error}. Nothing of this change counts: the spec of before does");
        return condition(kind, Reason::InvalidSpec, message);
    }
    match &peer.access_problem {
        Some(AccessProblem::NoSecret(problem)) => {
            let message = format!("{problem}. {}", Reason::NoSecret.meaning());
            condition(kind, Reason::NoSecret, message)
        }
        Some(AccessProblem::Unusable(problem)) => {
            let message = format!("{problem}. {}", Reason::InvalidKubeconfig.meaning());
            condition(kind, Reason::InvalidKubeconfig, message)
        }
        None if peer.is_connected => plain(kind, Reason::Accepted),
        None => condition(kind, Reason::Pending, "the Secret was not read yet"),
    }
}

pub(super) fn connected(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
    let kind = "Connected";
    if let Some(AccessProblem::NoSecret(problem) | AccessProblem::Unusable(problem)) =
        peer.access_problem.as_ref().filter(|_| !peer.is_connected)
    {
        return condition(kind, Reason::NoCredentials, problem);
    }
    match peer.view.unreadable() {
        Some(problem) => condition(kind, Reason::Unreadable, problem.to_string()),
        None if peer.view.is_listed() => match notes.token_problem {
            None => plain(kind, Reason::Connected),
            Some(problem) => {
                let expires = peer.token.as_ref().map(|token| token.expires.to_string());
                let message = format!(
                    "the mailbox can be read, until its token expires at {}: it cannot be renewed: {problem}",
                    expires.unwrap_or_default()
                );
                condition(kind, Reason::TokenNotRenewed, message)
            }
        },
        None => unread(kind),
    }
}

pub(super) fn synced(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
    let kind = "Synced";
    match peer.view.problem() {
        None => {
            let mut message = "everything that the cluster exports was read".to_owned();
            let failed = peer.view.lease().map_or(0, |lease| lease.failed);
            if failed > 0 {
                let _ = write!(
                    message,
                    ", but {failed} services that the mailbox's API server refuses"
                );
            }
            let services = &notes.without_namespace;
            if services.is_empty() {
                return condition(kind, Reason::Synced, message);
            }
            let named: Vec<_> = services.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if services.len() > NAMED { " and more" } else { "" };
            let _ = write!(
                message,
                ". This cluster lacks the namespaces of {} services, and does not import them: {}{more}",
                services.len(),
                named.join(", ")
            );
            condition(kind, Reason::NamespacesMissing, message)
        }
        // Nobody says that something is missing.
        Some(MailboxProblem::Incomplete)
            if peer.view.lease().is_none_or(|lease| lease.complete) =>
        {
            unread(kind)
        }
        Some(problem) => {
            let reason = match problem {
                MailboxProblem::Unreadable { .. } => Reason::Unreadable,
                MailboxProblem::OverLimit { .. } => Reason::OverLimit,
                MailboxProblem::NoPublisher => Reason::NoPublisher,
                MailboxProblem::OtherCluster(_) | MailboxProblem::OtherUid(_) => {
                    Reason::OtherCluster
                }
                MailboxProblem::Past => Reason::OlderThanBefore,
                MailboxProblem::Incomplete => Reason::Incomplete,
                MailboxProblem::Count { .. } => Reason::CountDiffers,
            };
            let message = format!("{problem}. What was imported stays");
            condition(kind, reason, message)
        }
    }
}

/// Whether the API server of this cluster takes what is imported.
pub(super) fn written(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
    let kind = "ImportsWritten";
    match &notes.refused {
        Some(told) => condition(kind, Reason::Refused, told),
        None if notes.has_tried => plain(kind, Reason::Written),
        None => former(peer, kind).unwrap_or_else(|| {
            condition(kind, Reason::Pending, "its imports were not written yet")
        }),
    }
}

pub(super) fn within_limits(peer: &Peer) -> PeerCondition {
    let kind = "WithinLimits";
    match peer.view.over_limit() {
        Some(problem) => {
            let message = format!("{problem}. What was imported stays");
            condition(kind, Reason::OverLimit, message)
        }
        None if peer.view.is_listed() => plain(kind, Reason::WithinLimits),
        None => unread(kind),
    }
}

pub(super) fn fresh(peer: &Peer, now: Instant) -> PeerCondition {
    let kind = "Fresh";
    match peer.is_fresh(now) {
        Some(false) => {
            let endpoints = match peer.object.when_stale {
                WhenStale::Keep => "Its endpoints stay",
                WhenStale::EjectUnreachable => {
                    "New clients get other clusters on each node that reaches none of its pods"
                }
                WhenStale::Withdraw => "New clients get other clusters",
            };
            let limit = peer.object.stale_after.as_secs();
            let message = format!(
                "the publisher has given no sign of life for more than {limit} s. {endpoints}"
            );
            condition(kind, Reason::Stale, message)
        }
        None => {
            let message =
                "the publisher has not renewed its Lease since this replica started".to_owned();
            condition(kind, Reason::Pending, message)
        }
        Some(true) => plain(kind, Reason::Fresh),
    }
}

pub(super) fn identity(peer: &Peer, own: &ClusterId) -> PeerCondition {
    let kind = "IdentityMatches";
    let expected = &peer.object.cluster;
    if expected == own {
        let message = format!("{own} is this cluster itself");
        return condition(kind, Reason::OwnId, message);
    }
    match (peer.view.identity_problem(), peer.view.lease()) {
        (Some(problem), _) => {
            let message =
                format!("{problem}, and spec.clusterId is {expected}. Nothing of it is used");
            condition(kind, Reason::OtherCluster, message)
        }
        (None, Some(_)) => {
            condition(kind, Reason::Matches, format!("the mailbox is that of {expected}"))
        }
        (None, None) => condition(kind, Reason::Pending, "the mailbox does not say whose it is"),
    }
}
