//! The conditions of a ClusterPeer, one function each.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr, sync::Arc, time::Instant};

use ipnet::IpNet;
use mcs_kube::one_line;

use super::PeerNotes;
use crate::{
    clusterset::{ClusterId, Rejection, overlap},
    mailbox::MailboxProblem,
    objects::{PeerCondition, WhenStale},
    peers::{AccessProblem, Peer},
    reach,
};

/// The reason of `Connected` while a token is not renewed. The condition holds.
pub const TOKEN_NOT_RENEWED: &str = "TokenNotRenewed";
/// The reason of `Synced` while namespaces are missing. The condition holds: it may be meant so.
pub const NAMESPACES_MISSING: &str = "NamespacesMissing";
/// The reason of the condition `PodsReachable` of a peer whose pods see other source addresses than those of this cluster's pods.
pub const MASQUERADED: &str = "Masqueraded";
/// The reason of `Accepted` while `spec` cannot be used.
pub(super) const INVALID_SPEC: &str = "InvalidSpec";
/// How many services without a namespace a message names.
const NAMED: usize = 8;

/// The addresses of this cluster, which no peer's pods can have.
#[derive(Clone, Debug)]
pub struct OwnRanges<'a> {
    /// The ranges of its pods, sorted, none within another: there can be one for each node.
    pods: Vec<IpNet>,
    /// The VIP ranges, and the ranges of Services.
    reserved: &'a [IpNet],
    /// The addresses that nodes report.
    nodes: &'a BTreeMap<IpAddr, Arc<str>>,
}

impl<'a> OwnRanges<'a> {
    /// `pods`: the ranges of its pods. `reserved`: the VIP ranges, and the ranges of Services. `nodes`: the addresses that
    /// nodes report.
    pub fn new(
        pods: &[IpNet],
        reserved: &'a [IpNet],
        nodes: &'a BTreeMap<IpAddr, Arc<str>>,
    ) -> Self {
        let mut pods = IpNet::aggregate(&pods.to_vec());
        pods.sort_unstable_by_key(IpNet::network);
        Self { pods, reserved, nodes }
    }

    /// The overlaps of a peer's pod ranges with this cluster.
    fn overlap(&self, peer: &Peer, rejected: &BTreeMap<Rejection, usize>) -> Option<String> {
        let ranges = peer.object.pod_ranges.as_deref().unwrap_or_default();
        let with_pods = |range: &IpNet| Some((*range, *self.pods_of(range)?));
        if let Some((range, own)) = ranges.iter().find_map(with_pods) {
            let rejected = number_of(rejected, Rejection::OwnPods);
            let consequence = if peer.rules.endpoints.own_pods.is_empty() {
                "pods with such addresses are not told apart. With --pod-cidr (chart: podCidrs) endpoints with addresses of \
                 this cluster's pods are refused"
                    .to_owned()
            } else {
                format!(
                    "endpoints are refused where the range of this cluster is not the wider one, {rejected} now"
                )
            };
            return Some(format!(
                "{range} overlaps with {own}, the pods of this cluster: {consequence}"
            ));
        }
        let with_reserved = |range: &IpNet| {
            let own = self.reserved.iter().find(|own| overlap(range, own))?;
            Some((*range, *own))
        };
        if let Some((range, own)) = ranges.iter().find_map(with_reserved) {
            return Some(format!(
                "{range} overlaps with {own}, the range of this cluster's Services or ClusterSetIPs: endpoints with \
                 addresses of both are refused"
            ));
        }
        ranges.iter().find_map(|range| {
            let (ip, node) = self.nodes.range(range.network()..=range.broadcast()).next()?;
            Some(format!(
                "Node {node} of this cluster says that {ip} of {range} is its own address. Endpoints with it are used: \
                 look whether the node is right"
            ))
        })
    }

    fn pods_of(&self, range: &IpNet) -> Option<&IpNet> {
        let after = self.pods.partition_point(|own| own.network() <= range.network());
        let before = after.checked_sub(1).and_then(|place| self.pods.get(place));
        before.into_iter().chain(self.pods.get(after)).find(|own| overlap(range, own))
    }
}

fn number_of(rejected: &BTreeMap<Rejection, usize>, reason: Rejection) -> usize {
    rejected.get(&reason).copied().unwrap_or_default()
}

pub(in crate::status) fn condition(
    condition_type: &str,
    holds: Option<bool>,
    reason: &str,
    message: impl AsRef<str>,
) -> PeerCondition {
    let status = match holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    PeerCondition {
        condition_type: condition_type.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        // The text can come from a proxy, or from a peer.
        message: one_line(message.as_ref()),
        last_transition_time: String::new(),
        observed_generation: None,
    }
}

/// The condition that the API server has already, if it says something: a new leader keeps it until it knows better.
fn former(peer: &Peer, kind: &str) -> Option<PeerCondition> {
    let former = peer.object.status.conditions.iter().find(|one| one.condition_type == kind);
    let former = former.filter(|one| one.status != "Unknown")?;
    Some(condition(kind, Some(former.status == "True"), &former.reason, &former.message))
}

/// A condition of what the mailbox has, before everything of it was listed.
fn unread(kind: &str) -> PeerCondition {
    condition(kind, None, "Pending", "the mailbox was not read yet")
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
    let rejected = |reason, message| condition(kind, Some(false), reason, message);
    if let Some(error) = &peer.rejected {
        let message = format!("{error}. Nothing of this change counts: the spec of before does");
        return rejected(INVALID_SPEC, message);
    }
    match &peer.access_problem {
        Some(AccessProblem::NoSecret(problem)) => {
            let message = format!(
                "{problem}. The mailbox is not read, and what was imported stays as it is. Delete the ClusterPeer to end the import"
            );
            rejected("NoSecret", message)
        }
        Some(AccessProblem::Unusable(problem)) if peer.is_connected => {
            rejected("InvalidKubeconfig", format!("{problem}. The former kubeconfig counts"))
        }
        Some(AccessProblem::Unusable(problem)) => rejected(
            "InvalidKubeconfig",
            format!("{problem}. The mailbox is not read, and what was imported stays as it is"),
        ),
        None if peer.is_connected => {
            condition(kind, Some(true), "Accepted", "spec and kubeconfig count as they are")
        }
        None => condition(kind, None, "Pending", "the Secret was not read yet"),
    }
}

pub(super) fn connected(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
    let kind = "Connected";
    if let Some(AccessProblem::NoSecret(problem) | AccessProblem::Unusable(problem)) =
        peer.access_problem.as_ref().filter(|_| !peer.is_connected)
    {
        return condition(kind, Some(false), "NoCredentials", problem);
    }
    match peer.view.unreadable() {
        Some(problem) => condition(kind, Some(false), "Unreadable", problem.to_string()),
        None if peer.view.is_listed() => match notes.token_problem {
            None => condition(kind, Some(true), "Connected", "the mailbox can be read"),
            Some(problem) => {
                let expires = peer.token.as_ref().map(|token| token.expires.to_string());
                let message = format!(
                    "the mailbox can be read, until its token expires at {}: it cannot be renewed: {problem}",
                    expires.unwrap_or_default()
                );
                condition(kind, Some(true), TOKEN_NOT_RENEWED, message)
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
                return condition(kind, Some(true), "Synced", message);
            }
            let named: Vec<_> = services.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if services.len() > NAMED { " and more" } else { "" };
            let _ = write!(
                message,
                ". This cluster lacks the namespaces of {} services, and does not import them: {}{more}",
                services.len(),
                named.join(", ")
            );
            condition(kind, Some(true), NAMESPACES_MISSING, message)
        }
        // Nobody says that something is missing.
        Some(MailboxProblem::Incomplete)
            if peer.view.lease().is_none_or(|lease| lease.complete) =>
        {
            unread(kind)
        }
        Some(problem) => {
            let reason = match problem {
                MailboxProblem::Unreadable { .. } => "Unreadable",
                MailboxProblem::OverLimit { .. } => "OverLimit",
                MailboxProblem::NoPublisher => "NoPublisher",
                MailboxProblem::OtherCluster(_) | MailboxProblem::OtherUid(_) => "OtherCluster",
                MailboxProblem::Past => "OlderThanBefore",
                MailboxProblem::Incomplete => "Incomplete",
                MailboxProblem::Count { .. } => "CountDiffers",
            };
            let message = format!("{problem}. What was imported stays");
            condition(kind, Some(false), reason, message)
        }
    }
}

/// Whether the API server of this cluster takes what is imported.
pub(super) fn written(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
    let kind = "ImportsWritten";
    match &notes.refused {
        Some(told) => condition(kind, Some(false), "Refused", told),
        None if notes.has_tried => {
            condition(kind, Some(true), "Written", "no object of its imports is refused")
        }
        None => former(peer, kind).unwrap_or_else(|| {
            condition(kind, None, "Pending", "its imports were not written yet")
        }),
    }
}

pub(super) fn within_limits(peer: &Peer) -> PeerCondition {
    let kind = "WithinLimits";
    match peer.view.over_limit() {
        Some(problem) => {
            let message = format!(
                "{problem}. What was imported stays. Raise the limit, or let the peer export less"
            );
            condition(kind, Some(false), "OverLimit", message)
        }
        None if peer.view.is_listed() => {
            let message = "the mailbox has no more than spec.limits allows".to_owned();
            condition(kind, Some(true), "WithinLimits", message)
        }
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
            condition(kind, Some(false), "Stale", message)
        }
        None => {
            let message =
                "the publisher has not renewed its Lease since this replica started".to_owned();
            condition(kind, None, "Pending", message)
        }
        Some(true) => condition(kind, Some(true), "Fresh", "the publisher renews its Lease"),
    }
}

pub(super) fn identity(peer: &Peer, own: &ClusterId) -> PeerCondition {
    let kind = "IdentityMatches";
    let expected = &peer.object.cluster;
    if expected == own {
        let message = format!("{own} is this cluster itself: correct spec.clusterId");
        return condition(kind, Some(false), "OwnId", message);
    }
    match (peer.view.identity_problem(), peer.view.lease()) {
        (Some(problem), _) => {
            let message =
                format!("{problem}, and spec.clusterId is {expected}. Nothing of it is used");
            condition(kind, Some(false), "OtherCluster", message)
        }
        (None, Some(_)) => {
            condition(kind, Some(true), "Matches", format!("the mailbox is that of {expected}"))
        }
        (None, None) => condition(kind, None, "Pending", "the mailbox does not say whose it is"),
    }
}

pub(super) fn disjoint(
    peer: &Peer,
    (own_ranges, rejected): (&OwnRanges<'_>, &BTreeMap<Rejection, usize>),
) -> PeerCondition {
    let kind = "CIDRsDisjoint";
    let ranges = peer.object.pod_ranges.as_deref().unwrap_or_default();
    if let Some(message) = own_ranges.overlap(peer, rejected) {
        return condition(kind, Some(false), "OverlapsOwn", message);
    }
    match &peer.overlap {
        Some((range, other)) => {
            let rejected = number_of(rejected, Rejection::OtherPeer);
            let message = format!(
                "{range} overlaps with a range of ClusterPeer {other}. An address belongs to the narrower range: {rejected} endpoints \
                 are refused now"
            );
            condition(kind, Some(false), "Overlap", message)
        }
        None if ranges.is_empty() => {
            let message = "spec.podCIDRs is empty: endpoints can have any address".to_owned();
            condition(kind, None, "NoRanges", message)
        }
        None if own_ranges.pods.is_empty() => {
            let message = "the ranges of this cluster's pods are not known, so nothing was compared with them: give them with \
                           --pod-cidr (chart: podCidrs). No other cluster that is known has addresses of these ranges";
            condition(kind, None, "OwnRangesUnknown", message)
        }
        None => {
            let message = "no other cluster that is known has addresses of these ranges".to_owned();
            condition(kind, Some(true), "Disjoint", message)
        }
    }
}

/// Whether pods of this cluster reach pods of the peer, by the probes of this replica.
pub(super) fn reachable(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
    let kind = "PodsReachable";
    let Some(ways) = &notes.ways else {
        return condition(kind, None, "Off", "--probe-peers=off: no pod is connected to");
    };
    let broken = || ways.iter().filter(|(_, way)| way.is_whole() == Some(false));
    let problems: Vec<_> =
        broken().map(|(family, way)| reach::problem(*family, way, peer)).collect();
    if !problems.is_empty() {
        let is_dead = broken().all(|(_, way)| way.lost().0.len() == way.lost().1);
        let reason = if is_dead { "NotReached" } else { "PartlyReached" };
        return condition(kind, Some(false), reason, problems.join(". "));
    }
    let is_known = notes.has_probed && ways.iter().all(|(_, way)| way.is_whole().is_some());
    if let Some(former) = former(peer, kind).filter(|_| !is_known) {
        return former;
    }
    if notes.has_probed && ways.is_empty() {
        let message =
            "no ready endpoint with a TCP port was imported from it: no pod is connected to";
        return condition(kind, None, "NoEndpoints", message);
    }
    if !is_known {
        return condition(kind, None, "Pending", "too few connections were tried yet");
    }
    let families: Vec<_> = ways.iter().map(|(family, _)| family.to_string()).collect();
    let families = families.join(" and ");
    let message = format!("the pods that the controller connects to are reached by {families}");
    if notes.masqueraded.is_empty() {
        return condition(kind, Some(true), "Reached", message);
    }
    let message = format!(
        "{message}. Addresses are masqueraded on the way: pods there see {}, and so do network policies and logs",
        notes.masqueraded
    );
    condition(kind, Some(true), MASQUERADED, message)
}
