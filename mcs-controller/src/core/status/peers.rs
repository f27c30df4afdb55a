//! The status of a ClusterPeer.

mod conditions;
mod membership;

use std::{collections::BTreeMap, time::Instant};

use mcs_kube::reasons::{Reason, Rejection};
use serde_json::{Value, json};

use self::conditions::{
    accepted, connected, fresh, identity, of_broken, synced, within_limits, written,
};
pub(crate) use self::conditions::{condition, former, plain};
use self::membership::compatible;
use super::{Notice, Regarding};
use crate::core::{
    apply::{Action, Request},
    clock,
    clusterset::{ClusterId, ServiceName, well_known},
    objects::{
        ClusterPeerStatus, Membership, OWN_VERSION, PEER_CONDITIONS, PeerCondition, PeerVersion,
    },
    peers::{Peer, PeerName, Peers},
};

/// The knowledge about a peer that its status needs.
#[derive(Clone, Default, Debug)]
pub struct PeerNotes<'a> {
    /// The number of its rejected endpoints, by reason.
    pub rejected: BTreeMap<Rejection, usize>,
    /// Why the token of its kubeconfig could not be renewed.
    pub token_problem: Option<&'a str>,
    /// The conditions of features.
    pub conditions: Vec<PeerCondition>,
    /// The services that it exports whose namespace this cluster lacks.
    pub without_namespace: Vec<&'a ServiceName>,
    /// What the API server of this cluster refuses of its services.
    pub refused: Option<String>,
    /// Whether this replica has written everything of its services, or tried to.
    pub has_tried: bool,
}

/// The status of every peer as it should be, without times.
pub fn peer_statuses<'a>(
    peers: &'a Peers,
    own: &ClusterId,
    membership: &Membership,
    notes: impl Fn(&'a PeerName, &'a Peer) -> PeerNotes<'a>,
    now: Instant,
) -> Vec<(PeerName, ClusterPeerStatus)> {
    let own = (own, membership);
    let status = |(name, peer): (&'a PeerName, &'a Peer)| {
        (name.clone(), status(peer, own, &notes(name, peer), now))
    };
    let broken = peers.broken().iter().map(|(name, broken)| {
        let connected = condition("Connected", Reason::InvalidSpec, broken.error.clone());
        let accepted = condition("Accepted", Reason::InvalidSpec, of_broken(&broken.error));
        let mut conditions = vec![accepted, connected];
        for condition in &mut conditions {
            condition.observed_generation = broken.version.generation;
        }
        (name.clone(), ClusterPeerStatus { conditions, ..ClusterPeerStatus::default() })
    });
    peers.all().iter().map(status).chain(broken).collect()
}

/// Whether a condition has changed between holding and not holding.
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
    peer: &Peer,
    (own, membership): (&ClusterId, &Membership),
    notes: &PeerNotes<'_>,
    now: Instant,
) -> ClusterPeerStatus {
    let believed = peer.view.believed();
    let mut conditions = vec![
        accepted(peer),
        connected(peer, notes),
        synced(peer, notes),
        written(peer, notes),
        within_limits(peer),
        fresh(peer, now),
        identity(peer, own),
        compatible(peer, membership),
    ];
    conditions.extend(notes.conditions.iter().cloned());
    conditions
        .sort_by_key(|one| PEER_CONDITIONS.iter().position(|kind| *kind == one.condition_type));
    for condition in &mut conditions {
        condition.observed_generation = peer.object.version.generation;
    }
    // 0 would be a statement.
    let is_read = peer.view.counts() || !believed.is_empty();
    let has_judged = notes.has_tried || !notes.rejected.is_empty();
    ClusterPeerStatus {
        conditions,
        services: is_read.then(|| count(believed.len())),
        endpoints: is_read.then(|| count(peer.view.endpoints())),
        refused_endpoints: has_judged.then(|| count(notes.rejected.values().sum())),
        token_expires: peer.token.as_ref().map(|token| token.expires.to_string()),
        last_contact: peer.last_contact.map(|time| time.strftime("%Y-%m-%dT%H:%M:00Z").to_string()),
    }
}

/// The notices about a peer whose conditions have changed.
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
    // A newly linked peer gets notices of problems only.
    let is_new = actual.conditions.is_empty();
    turned.map(notice).filter(|notice| notice.is_warning || !is_new).collect()
}

/// The write of a status. `None`: the present status is right.
pub fn peer_status_request(
    name: &str,
    wanted: &ClusterPeerStatus,
    actual: &ClusterPeerStatus,
) -> Option<Request> {
    let former = |one: &PeerCondition| {
        actual.conditions.iter().find(|former| former.condition_type == one.condition_type)
    };
    let now = clock::time_of_day().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
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
    // Fields that became unknown are removed.
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

    use jiff::Timestamp;
    use mcs_kube::{ResourceEvent, reasons::Coded as _};

    use super::*;
    use crate::core::{
        clusterset::Reserved,
        mailbox::MailboxEvent,
        objects::{PublisherLease, complete_lease, publisher_lease},
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
        let connected = |reason| condition("Connected", reason, "message");
        let of = |reason, services| ClusterPeerStatus {
            conditions: vec![connected(reason)],
            services: Some(services),
            ..ClusterPeerStatus::default()
        };
        let (holds, fails) = (Reason::Connected, Reason::Unreadable);
        assert!(!has_turned(&of(holds, 1), &of(holds, 2)));
        assert!(has_turned(&of(holds, 1), &of(fails, 1)));
        assert!(has_turned(&of(Reason::Pending, 1), &ClusterPeerStatus::default()));
    }

    #[test]
    fn events_say_what_has_turned() {
        use Reason::{Disjoint, Fresh, Overlap, Pending, Stale};
        let status = |fresh: Reason, disjoint: Reason| ClusterPeerStatus {
            conditions: vec![
                condition("Fresh", fresh, "message"),
                condition("CIDRsDisjoint", disjoint, "message"),
            ],
            ..ClusterPeerStatus::default()
        };
        let told = |wanted: &ClusterPeerStatus, actual: &ClusterPeerStatus| {
            let notices = peer_notices("west", &PeerVersion::default(), wanted, actual);
            notices.into_iter().map(|one| (one.is_warning, one.note)).collect::<Vec<_>>()
        };
        let (good, silent) = (status(Fresh, Disjoint), status(Stale, Disjoint));
        assert_eq!(told(&good, &good), []);
        let expected = format!("Fresh is False: message. To do: {}", Stale.advice());
        assert_eq!(told(&silent, &good), [(true, expected)]);
        assert_eq!(told(&good, &silent), [(false, "Fresh is True: message".to_owned())]);
        let new = ClusterPeerStatus::default();
        assert_eq!(told(&good, &new), [], "nothing to do");
        assert_eq!(told(&status(Fresh, Overlap), &new).len(), 1);
        assert_eq!(told(&status(Pending, Disjoint), &good), [], "it is not known yet");
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
        let status = status_of(peers, &PeerNotes::default(), seconds);
        status.conditions.into_iter().find(|one| one.condition_type == kind).unwrap()
    }

    /// The status of the peer west after so many seconds.
    fn status_of<'a>(peers: &'a Peers, notes: &PeerNotes<'a>, seconds: u64) -> ClusterPeerStatus {
        let now = Instant::now() + Duration::from_secs(seconds);
        let (own, membership) = ("east".parse().unwrap(), Membership::default());
        let notes = |_: &PeerName, _: &Peer| notes.clone();
        peer_statuses(peers, &own, &membership, notes, now).remove(0).1
    }

    fn of_west(peers: &mut Peers, event: MailboxEvent) {
        let number = peers.all()["west"].number;
        peers.apply_mailbox(&"west".into(), number, event);
    }

    #[test]
    fn what_was_not_read_yet_is_neither_a_fault_nor_nothing() {
        let mut peers = west();
        let said = |peers: &Peers| {
            let status = status_of(peers, &PeerNotes::default(), 0);
            let synced = found(peers, "Synced", 0);
            let counts = [status.services, status.endpoints, status.refused_endpoints];
            (format!("{}/{}", synced.status, synced.reason), counts)
        };
        assert_eq!(said(&peers), ("Unknown/Pending".to_owned(), [None; 3]));
        let version = || "v1".to_owned();
        let nothing = ResourceEvent::Listed { version: version(), objects: vec![] };
        of_west(&mut peers, MailboxEvent::Services(nothing));
        let begins = PublisherLease { complete: false, ..complete_lease("west", 0, 1) };
        let lease = publisher_lease("m", &begins, Timestamp::UNIX_EPOCH);
        let objects = vec![serde_json::from_value(lease).unwrap()];
        let lease = ResourceEvent::Listed { version: version(), objects };
        of_west(&mut peers, MailboxEvent::Lease(lease));
        assert_eq!(said(&peers), ("False/Incomplete".to_owned(), [None; 3]), "it says so");
        let nothing = ResourceEvent::Listed { version: version(), objects: vec![] };
        of_west(&mut peers, MailboxEvent::Slices(nothing));
        assert_eq!(said(&peers).1, [Some(0), Some(0), None]);
    }

    #[test]
    fn a_mailbox_that_was_read_says_what_is_wrong_with_it() {
        let mut peers = west();
        let version = || "v1".to_owned();
        let said = |peers: &Peers, kind: &str| {
            let found = found(peers, kind, 0);
            format!("{}/{}", found.status, found.reason)
        };
        let lease = |peers: &mut Peers, services, sequence| {
            let lease = complete_lease("west", services, sequence);
            let membership = Some(Membership::default());
            let lease = PublisherLease { membership, ..lease };
            let lease = publisher_lease("m", &lease, Timestamp::UNIX_EPOCH);
            let objects = vec![serde_json::from_value(lease).unwrap()];
            let lease = ResourceEvent::Listed { version: version(), objects };
            of_west(peers, MailboxEvent::Lease(lease));
        };
        let nothing = || ResourceEvent::Listed { version: version(), objects: vec![] };
        of_west(&mut peers, MailboxEvent::Services(nothing()));
        let slices = ResourceEvent::Listed { version: version(), objects: vec![] };
        of_west(&mut peers, MailboxEvent::Slices(slices));
        lease(&mut peers, 3, 5);
        assert_eq!(said(&peers, "Synced"), "False/CountDiffers");
        lease(&mut peers, 0, 6);
        assert_eq!(said(&peers, "Synced"), "True/Synced");
        assert_eq!(said(&peers, "IdentityMatches"), "True/Matches");
        assert_eq!(said(&peers, "Compatible"), "True/Compatible");
        lease(&mut peers, 0, 2);
        assert_eq!(said(&peers, "Synced"), "False/OlderThanBefore");
        let notes = PeerNotes { token_problem: Some("403"), ..PeerNotes::default() };
        let connected = status_of(&peers, &notes, 0).conditions.swap_remove(1);
        assert_eq!((&*connected.status, &*connected.reason), ("True", "TokenNotRenewed"));
        let own =
            json!({"clusterId": "east", "kubeconfigSecretRef": {"name": "e"}, "podCIDRs": []});
        let own = json!({"metadata": {"name": "west"}, "spec": own});
        let mut peers = Peers::default();
        let own = serde_json::from_value(own).unwrap();
        peers.apply(ResourceEvent::Changed(own), &Reserved::default());
        assert_eq!(said(&peers, "IdentityMatches"), "False/OwnId");
    }

    #[test]
    fn a_new_leader_keeps_what_was_said_of_refusals_until_it_has_tried() {
        let written = |former: &str, has_tried| {
            let condition = json!({
                "type": "ImportsWritten", "status": former, "reason": "Former", "message": "words",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            });
            let mut peers = west();
            let spec = json!({"clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ["10.2.0.0/16"]});
            let status = json!({"conditions": [condition]});
            let object = json!({"metadata": {"name": "west"}, "spec": spec, "status": status});
            let object = serde_json::from_value(object).unwrap();
            peers.apply(ResourceEvent::Changed(object), &Reserved::default());
            let notes = PeerNotes { has_tried, ..PeerNotes::default() };
            let status = status_of(&peers, &notes, 0);
            assert_eq!(status.refused_endpoints, has_tried.then_some(0));
            let mut conditions = status.conditions.into_iter();
            let found = conditions.find(|one| one.condition_type == "ImportsWritten").unwrap();
            format!("{}/{}", found.status, found.reason)
        };
        assert_eq!(written("False", false), "False/Former");
        assert_eq!(written("True", false), "True/Former");
        assert_eq!(written("Unknown", false), "Unknown/Pending");
        assert_eq!(written("False", true), "True/Written");
    }

    #[test]
    fn a_page_of_a_proxy_is_no_message() {
        let mut peers = west();
        let page = format!("<html> {}", "blocked ".repeat(1 << 17));
        let number = peers.all()["west"].number;
        peers.note_access(&"west".into(), number, Some(page));
        let message = found(&peers, "Connected", 0).message;
        assert!(message.starts_with("<html> blocked") && message.len() < 1200, "{}", message.len());
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
            of_west(peers, MailboxEvent::Lease(ResourceEvent::Changed(lease)));
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
