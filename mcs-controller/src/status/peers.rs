//! The status of a ClusterPeer.

mod conditions;
mod membership;

use std::{collections::BTreeMap, time::Instant};

use jiff::Timestamp;
use mcs_kube::reach::Way;
use serde_json::{Value, json};

use self::conditions::{
    INVALID_SPEC, accepted, condition, connected, disjoint, fresh, identity, of_broken, reachable,
    synced, within_limits, written,
};
pub use self::conditions::{MASQUERADED, NAMESPACES_MISSING, OwnRanges, TOKEN_NOT_RENEWED};
use self::membership::compatible;
use super::{Notice, Regarding};
use crate::{
    apply::{Action, Request},
    clusterset::{ClusterId, IpFamily, Rejection, ServiceName, well_known},
    objects::{ClusterPeerStatus, Membership, OWN_VERSION, PeerCondition, PeerVersion},
    peers::{Peer, PeerName, Peers},
};

/// The knowledge about a peer that its status needs.
#[derive(Clone, Default, Debug)]
pub struct PeerNotes<'a> {
    /// The number of its rejected endpoints, by reason.
    pub rejected: BTreeMap<Rejection, usize>,
    /// Why the token of its kubeconfig could not be renewed.
    pub token_problem: Option<&'a str>,
    /// The ways to its pods, one for each IP family; `None`: probes are off.
    pub ways: Option<Vec<(IpFamily, &'a Way<ServiceName>)>>,
    /// The source addresses that its controller sees instead of this pod's; empty: none, as far as is known.
    pub masqueraded: String,
    /// Whether this replica has begun to connect to pods.
    pub has_probed: bool,
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
    ranges: &OwnRanges<'_>,
    membership: &Membership,
    notes: impl Fn(&'a PeerName, &'a Peer) -> PeerNotes<'a>,
    now: Instant,
) -> Vec<(PeerName, ClusterPeerStatus)> {
    let own = (own, ranges, membership);
    let status = |(name, peer): (&'a PeerName, &'a Peer)| {
        (name.clone(), status(peer, own, &notes(name, peer), now))
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
    (own, own_ranges, membership): (&ClusterId, &OwnRanges<'_>, &Membership),
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
        disjoint(peer, (own_ranges, &notes.rejected)),
        compatible(peer, membership),
        reachable(peer, notes),
    ];
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
        #[cfg(feature = "next")]
        moon: Some("full".to_owned()),
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

    use mcs_kube::{
        ResourceEvent,
        reach::{Attempt, Outcome},
    };

    use super::*;
    use crate::{
        clusterset::{Reserved, fixture::name},
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
        let status = status_of(peers, &PeerNotes::default(), seconds);
        status.conditions.into_iter().find(|one| one.condition_type == kind).unwrap()
    }

    /// The status of the peer west after so many seconds.
    fn status_of<'a>(peers: &'a Peers, notes: &PeerNotes<'a>, seconds: u64) -> ClusterPeerStatus {
        let now = Instant::now() + Duration::from_secs(seconds);
        let nobody = BTreeMap::new();
        let ranges = OwnRanges::new(&[], &[], &nobody);
        let (own, membership) = ("east".parse().unwrap(), Membership::default());
        let notes = |_: &PeerName, _: &Peer| notes.clone();
        peer_statuses(peers, &own, &ranges, &membership, notes, now).remove(0).1
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
    fn ranges_of_this_cluster_are_no_peers() {
        let peers = west();
        let own = "east".parse().unwrap();
        let disjoint = |range: &str, node: &str| {
            let said = [(node.parse().unwrap(), "node-1".into())].into();
            let [range, other] = [range, "10.9.0.0/16"].map(|range| [range.parse().unwrap()]);
            let own_ranges =
                [OwnRanges::new(&range, &other, &said), OwnRanges::new(&other, &range, &said)];
            own_ranges.map(|ranges| {
                let (membership, notes) =
                    (Membership::default(), |_: &PeerName, _: &Peer| PeerNotes::default());
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
        let unknown = found(&peers, "CIDRsDisjoint", 0);
        assert_eq!((&*unknown.status, &*unknown.reason), ("Unknown", "OwnRangesUnknown"));
    }

    #[test]
    fn an_overlap_says_what_is_refused() {
        let mut peers = west();
        let range: ipnet::IpNet = "10.2.3.0/24".parse().unwrap();
        let (own, membership) = ("east".parse().unwrap(), Membership::default());
        let message = |peers: &Peers| {
            let rejected = [(Rejection::OwnPods, 3), (Rejection::NoPodAddress, 4)];
            let notes = |_: &PeerName, _: &Peer| PeerNotes {
                rejected: rejected.into(),
                ..PeerNotes::default()
            };
            let nobody = BTreeMap::new();
            let ranges = OwnRanges::new(&[range], &[], &nobody);
            let statuses = peer_statuses(peers, &own, &ranges, &membership, notes, Instant::now());
            assert_eq!(statuses[0].1.refused_endpoints, Some(7));
            let is_disjoint = |one: &&PeerCondition| one.condition_type == "CIDRsDisjoint";
            statuses[0].1.conditions.iter().find(is_disjoint).unwrap().message.clone()
        };
        assert!(message(&peers).contains("are not told apart"), "{}", message(&peers));
        assert!(peers.set_own_pods(&[range]) && !peers.set_own_pods(&[range]));
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

    /// What is said after these rounds of IPv4 and IPv6: `+` is one in which both endpoints answer.
    fn reach(rounds: [&str; 2]) -> (String, String, String) {
        reach_seen(rounds, "")
    }

    /// The same, where the peer sees other source addresses.
    fn reach_seen(rounds: [&str; 2], masqueraded: &str) -> (String, String, String) {
        let peers = west();
        let addresses = [["10.2.0.1:80", "10.2.0.2:80"], ["[fd02::1]:80", "[fd02::2]:80"]];
        let ways = [0, 1].map(|family: usize| {
            let mut way = Way::default();
            for round in rounds[family].chars() {
                let outcomes = match round {
                    '+' => [Outcome::Answered; 2],
                    '-' => [Outcome::Answered, Outcome::Timeout],
                    _ => [Outcome::Unreachable; 2],
                };
                let attempt = |(address, outcome): (&str, Outcome)| {
                    let address = address.parse().unwrap();
                    (name("shop/web"), Attempt { address, outcome, took: Duration::ZERO })
                };
                way.note(addresses[family].into_iter().zip(outcomes).map(attempt).collect());
            }
            way
        });
        let notes = |_: &PeerName, _: &Peer| {
            let all = [IpFamily::V4, IpFamily::V6].into_iter().zip(&ways).zip(rounds);
            let ways = all.filter(|(_, rounds)| !rounds.is_empty()).map(|(way, _)| way).collect();
            let masqueraded = masqueraded.to_owned();
            PeerNotes { ways: Some(ways), has_probed: true, masqueraded, ..PeerNotes::default() }
        };
        let nobody = BTreeMap::new();
        let ranges = OwnRanges::new(&[], &[], &nobody);
        let (own, membership) = ("east".parse().unwrap(), Membership::default());
        let statuses = peer_statuses(&peers, &own, &ranges, &membership, notes, Instant::now());
        let mut conditions = statuses[0].1.conditions.iter();
        let one = conditions.find(|one| one.condition_type == "PodsReachable").unwrap();
        (one.status.clone(), one.reason.clone(), one.message.clone())
    }

    #[test]
    fn pods_that_are_not_reached_are_named() {
        for (rounds, status, reason, part) in [
            (["", ""], "Unknown", "NoEndpoints", "no ready endpoint"),
            (["xx", "+"], "Unknown", "Pending", "too few"),
            (["---", "+"], "True", "Reached", "are reached by IPv4 and IPv6"),
            (["+--", ""], "True", "Reached", "are reached by IPv4"),
            (["+", "+"], "True", "Reached", "by IPv4 and IPv6"),
            (
                ["+---", "+"],
                "False",
                "PartlyReached",
                "IPv4: 1 of 2 pods are not reached, 3 times in a row or more: 10.2.0.2:80 does not answer. Packets are lost",
            ),
            (
                ["xxx", "+"],
                "False",
                "NotReached",
                "10.2.0.1:80 is unreachable; 10.2.0.2:80 is unreachable. A router",
            ),
            (["+", "xxx+"], "False", "NotReached", "IPv6: 2 of 2"),
            (["+", "xxx++"], "True", "Reached", "IPv6"),
        ] {
            let said = reach(rounds);
            assert_eq!((&*said.0, &*said.1), (status, reason), "{rounds:?}: {}", said.2);
            assert!(said.2.contains(part), "{rounds:?}: {}", said.2);
        }
        let message = reach(["xxx", "+---"]).2;
        assert!(
            message.contains("route 10.2.0.0/16 to") && message.contains(". IPv6: 1 of 2"),
            "{message}"
        );
    }

    #[test]
    fn a_peer_that_sees_other_addresses_is_reached_and_says_so() {
        let other = "10.210.0.11 instead of 10.211.1.0";
        let (status, reason, message) = reach_seen(["+", ""], other);
        assert_eq!((&*status, &*reason), ("True", "Masqueraded"));
        let expected = format!(
            "reached by IPv4. Addresses are masqueraded on the way: pods there see {other}, "
        );
        assert!(message.contains(&expected), "{message}");
        assert_eq!(reach_seen(["xxx", ""], other).1, "NotReached", "that is worse");
    }

    #[test]
    fn who_connects_to_no_pods_says_so() {
        assert_eq!(found(&west(), "PodsReachable", 0).reason, "Off");
    }
}
