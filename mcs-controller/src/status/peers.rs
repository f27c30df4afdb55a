//! The status of a ClusterPeer.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr, sync::Arc, time::Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use mcs_kube::one_line;
use serde_json::{Value, json};

use crate::{
    apply::{Action, Request},
    clusterset::{ClusterId, Refusal, ServiceName, overlap, well_known},
    mailbox::MailboxProblem,
    objects::{ClusterPeerStatus, Membership, OWN_VERSION, PeerCondition, PeerVersion},
    peers::{AccessProblem, Peer, PeerName, Peers},
};

use super::{Notice, Regarding, membership::compatible};

/// The reason of `Connected` while a token is not renewed. The condition holds.
pub const TOKEN_NOT_RENEWED: &str = "TokenNotRenewed";
/// The reason of `Synced` while namespaces are missing. The condition holds: it may be meant so.
pub const NAMESPACES_MISSING: &str = "NamespacesMissing";
/// The reason of `Accepted` while `spec` cannot be used.
const INVALID_SPEC: &str = "InvalidSpec";
/// How many services without a namespace a message names.
const NAMED: usize = 8;

/// The addresses of this cluster, which no peer's pods can have.
#[derive(Clone, Debug)]
pub struct OwnRanges<'a> {
    /// Those of its pods, sorted, and none within another: there can be one for each node.
    pods: Vec<IpNet>,
    /// The VIP ranges and those of Services.
    reserved: &'a [IpNet],
    /// What nodes say their addresses are.
    nodes: &'a BTreeMap<IpAddr, Arc<str>>,
}

impl<'a> OwnRanges<'a> {
    /// `pods`: the ranges of its pods. `reserved`: the VIP ranges and those of Services. `nodes`: what nodes say their
    /// addresses are.
    pub fn new(
        pods: &[IpNet],
        reserved: &'a [IpNet],
        nodes: &'a BTreeMap<IpAddr, Arc<str>>,
    ) -> Self {
        let mut pods = IpNet::aggregate(&pods.to_vec());
        pods.sort_unstable_by_key(IpNet::network);
        Self { pods, reserved, nodes }
    }

    /// What is wrong with the pod ranges of a peer.
    fn overlap(&self, peer: &Peer, refused: &BTreeMap<Refusal, usize>) -> Option<String> {
        let ranges = peer.object.pod_ranges.as_deref().unwrap_or_default();
        let with_pods = |range: &IpNet| Some((*range, *self.pods_of(range)?));
        if let Some((range, own)) = ranges.iter().find_map(with_pods) {
            let refused = number_of(refused, Refusal::OwnPods);
            let consequence = if peer.rules.endpoints.own_pods.is_empty() {
                "pods with such addresses are not told apart. With --pod-cidr (chart: podCidrs) endpoints with addresses of \
                 this cluster's pods are refused"
                    .to_owned()
            } else {
                format!(
                    "endpoints are refused where the range of this cluster is not the wider one, {refused} now"
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

fn number_of(refused: &BTreeMap<Refusal, usize>, reason: Refusal) -> usize {
    refused.get(&reason).copied().unwrap_or_default()
}

/// What this cluster makes of a peer.
#[derive(Clone, Default, Debug)]
pub struct PeerNotes<'a> {
    /// The number of its endpoints that are refused, by reason.
    pub refused: BTreeMap<Refusal, usize>,
    /// Why the token of its kubeconfig could not be renewed.
    pub token_problem: Option<&'a str>,
    /// The services that it exports, and of which this cluster lacks the namespace.
    pub without_namespace: Vec<&'a ServiceName>,
}

/// The status of every peer as it should be, without times.
pub fn peer_statuses<'a>(
    peers: &'a Peers,
    own: &ClusterId,
    ranges: &OwnRanges<'_>,
    membership: &Membership,
    notes: impl Fn(&'a Peer) -> PeerNotes<'a>,
    now: Instant,
) -> Vec<(PeerName, ClusterPeerStatus)> {
    let own = (own, ranges, membership);
    let status = |(name, peer): (&'a PeerName, &'a Peer)| {
        (name.clone(), status(name, peer, peers, own, &notes(peer), now))
    };
    let broken = peers.broken().iter().map(|(name, broken)| {
        let connected = condition("Connected", Some(false), "Invalid", broken.error.clone());
        let accepted = condition("Accepted", Some(false), INVALID_SPEC, of_broken(&broken.error));
        let mut conditions = vec![accepted, connected];
        for condition in &mut conditions {
            condition.observed_generation = broken.version.generation;
        }
        (name.clone(), ClusterPeerStatus { conditions, ..ClusterPeerStatus::default() })
    });
    peers.all().iter().map(status).chain(broken).collect()
}

/// Whether a condition holds that did not, or the other way round.
pub fn has_turned(wanted: &ClusterPeerStatus, actual: &ClusterPeerStatus) -> bool {
    let statuses = |status: &ClusterPeerStatus| -> BTreeMap<String, String> {
        let one = |one: &PeerCondition| (one.condition_type.clone(), one.status.clone());
        status.conditions.iter().map(one).collect()
    };
    statuses(wanted) != statuses(actual)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn status(
    name: &PeerName,
    peer: &Peer,
    peers: &Peers,
    (own, own_ranges, membership): (&ClusterId, &OwnRanges<'_>, &Membership),
    notes: &PeerNotes<'_>,
    now: Instant,
) -> ClusterPeerStatus {
    let believed = peer.view.believed();
    let mut conditions = vec![
        accepted(peer),
        connected(peer, notes),
        synced(peer, notes),
        within_limits(peer),
        fresh(peer, now),
        identity(peer, own),
        disjoint(name, peer, peers, (own_ranges, &notes.refused)),
        compatible(peer, membership),
    ];
    for condition in &mut conditions {
        condition.observed_generation = peer.object.version.generation;
    }
    ClusterPeerStatus {
        conditions,
        services: Some(count(believed.len())),
        endpoints: Some(count(peer.view.endpoints())),
        refused_endpoints: Some(count(notes.refused.values().sum())),
        token_expires: peer.token.as_ref().map(|token| token.expires.to_string()),
        #[cfg(feature = "next")]
        moon: Some("full".to_owned()),
        last_contact: peer.last_contact.map(|time| time.strftime("%Y-%m-%dT%H:%M:00Z").to_string()),
    }
}

pub(super) fn condition(
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
        // It may have the words of a proxy, or of a peer.
        message: one_line(message.as_ref()),
        last_transition_time: String::new(),
        observed_generation: None,
    }
}

fn of_broken(error: &str) -> String {
    format!(
        "{error}. The controller has started since, and knows no spec of before: what was imported stays as it is, and nothing \
         new is"
    )
}

/// Whether the ClusterPeer as it is now counts, and its Secret.
fn accepted(peer: &Peer) -> PeerCondition {
    let kind = "Accepted";
    let refused = |reason, message| condition(kind, Some(false), reason, message);
    if let Some(error) = &peer.rejected {
        let message = format!("{error}. Nothing of this change counts: the spec of before does");
        return refused(INVALID_SPEC, message);
    }
    match &peer.access_problem {
        Some(AccessProblem::NoSecret(problem)) => {
            let message = format!(
                "{problem}. The mailbox is not read, and what was imported stays as it is. Delete the ClusterPeer to end the import"
            );
            refused("NoSecret", message)
        }
        Some(AccessProblem::Unusable(problem)) if peer.is_connected => {
            refused("InvalidKubeconfig", format!("{problem}. The former kubeconfig counts"))
        }
        Some(AccessProblem::Unusable(problem)) => refused(
            "InvalidKubeconfig",
            format!("{problem}. The mailbox is not read, and what was imported stays as it is"),
        ),
        None if peer.is_connected => {
            condition(kind, Some(true), "Accepted", "spec and kubeconfig count as they are")
        }
        None => condition(kind, None, "Pending", "the Secret was not read yet"),
    }
}

fn connected(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
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
        None => condition(kind, None, "Pending", "the mailbox is being read"),
    }
}

fn synced(peer: &Peer, notes: &PeerNotes<'_>) -> PeerCondition {
    let kind = "Synced";
    match peer.view.doubt() {
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

fn within_limits(peer: &Peer) -> PeerCondition {
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
        None => condition(kind, None, "Pending", "the mailbox is being read"),
    }
}

fn fresh(peer: &Peer, now: Instant) -> PeerCondition {
    let kind = "Fresh";
    let silence = now.saturating_duration_since(peer.last_beat);
    let limit = peer.object.stale_after;
    if silence > limit {
        let message = format!(
            "the publisher has given no sign of life for more than {} s. Its endpoints stay",
            limit.as_secs()
        );
        return condition(kind, Some(false), "Stale", message);
    }
    // The Lease that is there may be that of a publisher which died long ago.
    if !peer.view.is_renewed() {
        let message =
            "the publisher has not renewed its Lease since this replica started".to_owned();
        return condition(kind, None, "Pending", message);
    }
    condition(kind, Some(true), "Fresh", "the publisher renews its Lease")
}

fn identity(peer: &Peer, own: &ClusterId) -> PeerCondition {
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

fn disjoint(
    name: &PeerName,
    peer: &Peer,
    peers: &Peers,
    (own_ranges, refused): (&OwnRanges<'_>, &BTreeMap<Refusal, usize>),
) -> PeerCondition {
    let kind = "CIDRsDisjoint";
    let ranges = peer.object.pod_ranges.as_deref().unwrap_or_default();
    if let Some(message) = own_ranges.overlap(peer, refused) {
        return condition(kind, Some(false), "OverlapsOwn", message);
    }
    match peers.overlap(name) {
        Some((range, other)) => {
            let refused = number_of(refused, Refusal::OtherPeer);
            let message = format!(
                "{range} overlaps with a range of ClusterPeer {other}. An address belongs to the narrower range: {refused} endpoints \
                 are refused now"
            );
            condition(kind, Some(false), "Overlap", message)
        }
        None if ranges.is_empty() => {
            let message = "spec.podCIDRs is empty: endpoints can have any address".to_owned();
            condition(kind, None, "NoRanges", message)
        }
        None => {
            let message = "no other cluster that is known has addresses of these ranges".to_owned();
            condition(kind, Some(true), "Disjoint", message)
        }
    }
}

/// What is said about a peer whose conditions have turned.
pub fn peer_notices(
    name: &str,
    version: &PeerVersion,
    wanted: &ClusterPeerStatus,
    actual: &ClusterPeerStatus,
) -> Vec<Notice> {
    let status_of = |one: &PeerCondition| {
        let former =
            actual.conditions.iter().find(|former| former.condition_type == one.condition_type);
        former.map_or("Unknown", |former| &*former.status).to_owned()
    };
    let has_turned = |one: &&PeerCondition| one.status != "Unknown" && one.status != status_of(one);
    let notice = |one: &PeerCondition| Notice {
        regarding: Regarding {
            api_version: format!("{}/{OWN_VERSION}", well_known::GROUP),
            kind: "ClusterPeer",
            namespace: None,
            name: name.to_owned(),
            uid: version.uid.clone(),
        },
        is_warning: one.status == "False",
        reason: one.reason.clone(),
        note: format!("{} is {}: {}", one.condition_type, one.status, one.message),
    };
    let turned = wanted.conditions.iter().filter(has_turned);
    // A peer that is linked for the first time has nothing to tell but problems.
    let is_new = actual.conditions.is_empty();
    turned.map(notice).filter(|notice| notice.is_warning || !is_new).collect()
}

/// The write of a status. `None`: it is as it should be.
pub fn peer_status_request(
    name: &str,
    wanted: &ClusterPeerStatus,
    actual: &ClusterPeerStatus,
) -> Option<Request> {
    let former = |one: &PeerCondition| {
        actual.conditions.iter().find(|former| former.condition_type == one.condition_type)
    };
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let conditions = wanted.conditions.iter().map(|one| {
        let same = former(one).filter(|former| former.status == one.status);
        let last_transition_time =
            same.map_or_else(|| now.clone(), |same| same.last_transition_time.clone());
        PeerCondition { last_transition_time, ..one.clone() }
    });
    let wanted = ClusterPeerStatus { conditions: conditions.collect(), ..wanted.clone() };
    if wanted == *actual {
        return None;
    }
    let mut status = json!(wanted);
    // What is known no longer goes.
    for field in json!(actual).as_object().into_iter().flat_map(|fields| fields.keys()) {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    let api = (well_known::GROUP, OWN_VERSION, "ClusterPeer", "clusterpeers");
    Some(Request::new(api, None, name, Action::MergeStatus(status)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcs_kube::ResourceEvent;

    use super::*;
    use crate::{
        clusterset::Reserved,
        mailbox::MailboxEvent,
        objects::{PublisherLease, publisher_lease},
    };

    #[test]
    fn what_is_known_no_longer_goes() {
        let before = ClusterPeerStatus { services: Some(3), ..ClusterPeerStatus::default() };
        let now = ClusterPeerStatus { endpoints: Some(1), ..ClusterPeerStatus::default() };
        let request = peer_status_request("west", &now, &before).unwrap();
        let Action::MergeStatus(status) = &request.action else { panic!("{request:?}") };
        let expected = json!({"conditions": [], "endpoints": 1, "services": null});
        assert_eq!(*status, expected);
        assert!(peer_status_request("west", &now, &now).is_none());
    }

    #[test]
    fn counts_are_not_urgent() {
        let connected = |holds| condition("Connected", holds, "Reason", "message");
        let of = |holds, services| ClusterPeerStatus {
            conditions: vec![connected(holds)],
            services: Some(services),
            ..ClusterPeerStatus::default()
        };
        assert!(!has_turned(&of(Some(true), 1), &of(Some(true), 2)));
        assert!(has_turned(&of(Some(true), 1), &of(Some(false), 1)));
        assert!(has_turned(&of(None, 1), &ClusterPeerStatus::default()));
    }

    #[test]
    fn events_say_what_has_turned() {
        let status = |fresh: Option<bool>, disjoint: Option<bool>| ClusterPeerStatus {
            conditions: vec![
                condition("Fresh", fresh, "Reason", "message"),
                condition("CIDRsDisjoint", disjoint, "Reason", "message"),
            ],
            ..ClusterPeerStatus::default()
        };
        let told = |wanted: &ClusterPeerStatus, actual: &ClusterPeerStatus| {
            let notices = peer_notices("west", &PeerVersion::default(), wanted, actual);
            notices.into_iter().map(|one| (one.is_warning, one.note)).collect::<Vec<_>>()
        };
        let (good, silent) = (status(Some(true), Some(true)), status(Some(false), Some(true)));
        assert_eq!(told(&good, &good), []);
        assert_eq!(told(&silent, &good), [(true, "Fresh is False: message".to_owned())]);
        assert_eq!(told(&good, &silent), [(false, "Fresh is True: message".to_owned())]);
        let new = ClusterPeerStatus::default();
        assert_eq!(told(&good, &new), [], "nothing to do");
        assert_eq!(told(&status(Some(true), Some(false)), &new).len(), 1);
        assert_eq!(told(&status(None, Some(true)), &good), [], "it is not known yet");
    }

    fn west() -> Peers {
        let mut peers = Peers::default();
        let spec = json!({"clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ["10.2.0.0/16"]});
        let object = json!({"metadata": {"name": "west", "generation": 7}, "spec": spec});
        let object = serde_json::from_value(object).unwrap();
        peers.apply(mcs_kube::ResourceEvent::Changed(object), &Reserved::default());
        peers
    }

    /// The condition of the peer west after so many seconds.
    fn found(peers: &Peers, kind: &str, seconds: u64) -> PeerCondition {
        let now = Instant::now() + Duration::from_secs(seconds);
        let nobody = BTreeMap::new();
        let ranges = OwnRanges::new(&[], &[], &nobody);
        let (own, membership) = ("east".parse().unwrap(), Membership::default());
        let notes = |_: &Peer| PeerNotes::default();
        let statuses = peer_statuses(peers, &own, &ranges, &membership, notes, now);
        let conditions = &statuses[0].1.conditions;
        conditions.iter().find(|one| one.condition_type == kind).unwrap().clone()
    }

    #[test]
    fn a_page_of_a_proxy_is_no_message() {
        let mut peers = west();
        let page = format!("<html> {}", "blocked ".repeat(1 << 17));
        let number = peers.all()["west"].number;
        peers.note_access(&"west".into(), number, Some(page));
        let message = found(&peers, "Connected", 0).message;
        assert!(message.starts_with("<html> blocked") && message.len() < 1100, "{}", message.len());
    }

    #[test]
    fn a_publisher_lives_once_somebody_renews_its_lease() {
        let mut peers = west();
        let fresh = |peers: &Peers, seconds| {
            let condition = found(peers, "Fresh", seconds);
            (condition.status, condition.reason)
        };
        let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
        let renew = |peers: &mut Peers, second| {
            let said = PublisherLease { cluster: "west".to_owned(), ..PublisherLease::default() };
            let lease = publisher_lease("m", &said, Timestamp::from_second(second).unwrap());
            let lease = serde_json::from_value(lease).unwrap();
            let number = peers.all()["west"].number;
            let event = MailboxEvent::Lease(ResourceEvent::Changed(lease));
            peers.apply_mailbox(&"west".into(), number, event);
        };
        assert_eq!(fresh(&peers, 1), is("Unknown", "Pending"));
        renew(&mut peers, 1000);
        assert_eq!(fresh(&peers, 1), is("Unknown", "Pending"), "it may be dead for weeks");
        assert_eq!(fresh(&peers, 41), is("False", "Stale"));
        renew(&mut peers, 1010);
        assert_eq!(fresh(&peers, 1), is("True", "Fresh"));
        assert_eq!(fresh(&peers, 41), is("False", "Stale"));
    }

    #[test]
    fn ranges_of_this_cluster_are_no_peers() {
        let peers = west();
        let own = "east".parse().unwrap();
        let disjoint = |range: &str, node: &str| {
            let said = [(node.parse().unwrap(), "node-1".into())].into();
            let [range, other] = [range, "10.9.0.0/16"].map(|range| [range.parse().unwrap()]);
            let own_ranges =
                [OwnRanges::new(&range, &other, &said), OwnRanges::new(&other, &range, &said)];
            own_ranges.map(|ranges| {
                let (membership, notes) = (Membership::default(), |_: &Peer| PeerNotes::default());
                let statuses =
                    peer_statuses(&peers, &own, &ranges, &membership, notes, Instant::now());
                let conditions = &statuses[0].1.conditions;
                let is_disjoint = |one: &&PeerCondition| one.condition_type == "CIDRsDisjoint";
                let condition = conditions.iter().find(is_disjoint).unwrap().clone();
                assert_eq!(condition.observed_generation, Some(7));
                condition.reason
            })
        };
        assert_eq!(disjoint("10.1.0.0/16", "192.0.2.1"), ["Disjoint"; 2]);
        assert_eq!(disjoint("10.2.3.0/24", "192.0.2.1"), ["OverlapsOwn"; 2]);
        assert_eq!(disjoint("10.0.0.0/8", "192.0.2.1"), ["OverlapsOwn"; 2]);
        assert_eq!(disjoint("10.1.0.0/16", "10.2.0.9"), ["OverlapsOwn"; 2], "a node says so");
    }

    #[test]
    fn an_overlap_says_what_is_refused() {
        let mut peers = west();
        let range: IpNet = "10.2.3.0/24".parse().unwrap();
        let (own, membership) = ("east".parse().unwrap(), Membership::default());
        let message = |peers: &Peers| {
            let refused = [(Refusal::OwnPods, 3), (Refusal::NoPodAddress, 4)];
            let notes = |_: &Peer| PeerNotes { refused: refused.into(), ..PeerNotes::default() };
            let nobody = BTreeMap::new();
            let ranges = OwnRanges::new(&[range], &[], &nobody);
            let statuses = peer_statuses(peers, &own, &ranges, &membership, notes, Instant::now());
            assert_eq!(statuses[0].1.refused_endpoints, Some(7));
            let is_disjoint = |one: &&PeerCondition| one.condition_type == "CIDRsDisjoint";
            statuses[0].1.conditions.iter().find(is_disjoint).unwrap().message.clone()
        };
        assert!(message(&peers).contains("are not told apart"), "{}", message(&peers));
        assert!(peers.claim(&[range]) && !peers.claim(&[range]));
        assert!(message(&peers).ends_with(", 3 now"), "{}", message(&peers));
    }

    #[test]
    fn a_wrong_edit_says_that_nothing_of_it_counts() {
        let mut peers = west();
        let edit = |peers: &mut Peers, range: &str, generation: i64| {
            let spec = json!({"clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": [range],
                "namespaces": {"deny": ["shop"]}});
            let metadata = json!({"name": "west", "generation": generation});
            let object =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            peers.apply(ResourceEvent::Changed(object), &Reserved::default());
            let condition = found(peers, "Accepted", 0);
            (condition.status, condition.reason, condition.observed_generation, condition.message)
        };
        let number = peers.all()["west"].number;
        peers.note_access(&"west".into(), number, None);
        assert_eq!(found(&peers, "Accepted", 0).status, "True");
        let before = peers.all()["west"].rules.clone();
        let (status, reason, generation, message) = edit(&mut peers, "10.2.0.0/33", 8);
        assert_eq!((&*status, &*reason, generation), ("False", "InvalidSpec", Some(8)));
        assert!(message.contains("10.2.0.0/33") && message.contains("spec of before"), "{message}");
        assert_eq!(peers.all()["west"].rules, before);
        assert_eq!(edit(&mut peers, "10.2.0.0/24", 9).0, "True");
        assert_ne!(peers.all()["west"].rules, before);
        // A controller that starts knows no earlier spec.
        let mut peers = Peers::default();
        let object = json!({"metadata": {"name": "west"}, "spec": {"clusterId": "west"}});
        let object = serde_json::from_value(object).unwrap();
        peers.apply(ResourceEvent::Changed(object), &Reserved::default());
        let condition = found(&peers, "Accepted", 0);
        assert_eq!((&*condition.status, &*condition.reason), ("False", "InvalidSpec"));
        assert!(condition.message.contains("nothing new"), "{}", condition.message);
    }

    #[test]
    fn credentials_that_cannot_be_used_are_not_accepted() {
        let mut peers = west();
        let (name, number) = ("west".into(), peers.all()["west"].number);
        let told = |peers: &Peers| {
            let of = |kind| found(peers, kind, 0);
            let [accepted, connected] = ["Accepted", "Connected"].map(of);
            format!(
                "{}/{} {}/{}",
                accepted.status, accepted.reason, connected.status, connected.reason
            )
        };
        assert_eq!(told(&peers), "Unknown/Pending Unknown/Pending");
        peers.note_access(&name, number, Some("it has exec".to_owned()));
        assert_eq!(told(&peers), "False/InvalidKubeconfig False/NoCredentials");
        peers.note_access(&name, number, None);
        assert_eq!(told(&peers), "True/Accepted Unknown/Pending");
        peers.note_access(&name, number, Some("it has exec".to_owned()));
        assert_eq!(
            told(&peers),
            "False/InvalidKubeconfig Unknown/Pending",
            "the former one counts"
        );
        peers.note_no_secret(&name, number, "there is no Secret".to_owned());
        assert_eq!(told(&peers), "False/NoSecret False/NoCredentials");
    }
}
