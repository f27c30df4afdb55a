//! What the condition says, and what metrics name.

use clap::Command;
use mcs_kube::{ResourceEvent, reach::Outcome};
use serde_json::json;

use super::*;
use crate::core::{
    clusterset::{Reserved, fixture::name},
    peers::Peers,
};

fn flags(flags: &[&str]) -> ReachFlags {
    let command = ReachFlags::augment_args(Command::new("run").no_binary_name(true));
    ReachFlags::from_arg_matches(&command.get_matches_from(flags)).unwrap()
}

fn of(arguments: &[&str]) -> Reach {
    Reach::new(&flags(arguments), &Metrics::new().unwrap()).unwrap()
}

fn west() -> Peers {
    let mut peers = Peers::default();
    let spec = json!({"clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ["10.2.0.0/16"]});
    let object = serde_json::from_value(json!({"metadata": {"name": "west"}, "spec": spec}));
    peers.apply(ResourceEvent::Changed(object.unwrap()), &Reserved::default());
    peers
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
    let mut reach = of(&[]);
    reach.has_begun = true;
    for ((family, way), rounds) in [IpFamily::V4, IpFamily::V6].into_iter().zip(ways).zip(rounds) {
        if !rounds.is_empty() {
            reach.ways.by_peer.insert(("west".into(), family), way);
        }
    }
    if let Some((seen, own)) = masqueraded.split_once(" instead of ") {
        let source = Source { own: own.parse().unwrap(), seen: seen.parse().unwrap() };
        let asked = ("west".into(), "10.2.0.7:16460".parse().unwrap());
        reach.sources.note(vec![(asked, Some(source))]);
    }
    let one = reach.reachable(&"west".into(), &peers.all()["west"]);
    (one.status.clone(), one.reason.clone(), one.message.clone())
}

#[test]
fn pods_that_are_not_reached_are_named() {
    for (rounds, status, reason, part) in [
        (["", ""], "Unknown", "NoEndpoints", "No ready endpoint"),
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
    let expected =
        format!("reached by IPv4. Addresses are masqueraded on the way: pods there see {other}, ");
    assert!(message.contains(&expected), "{message}");
    assert_eq!(reach_seen(["xxx", ""], other).1, "NotReached", "that is worse");
}

#[test]
fn who_connects_to_no_pods_says_so() {
    let reach = of(&["--probe-peers=off"]);
    assert_eq!(reach.reachable(&"west".into(), &west().all()["west"]).reason, "Off");
}

#[test]
fn peers_ask_where_health_is_served() {
    let flags = flags(&["--pod-ip=10.1.0.7,fd01::7"]);
    assert!(flags.asked_at(None).is_empty(), "health is off");
    let asked_at = |health: &str| {
        let places = flags.asked_at(Some(health.parse().unwrap()));
        places.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(asked_at("[::]:16460"), ["10.1.0.7:16460", "[fd01::7]:16460"]);
    assert_eq!(asked_at("10.1.0.7:1"), ["10.1.0.7:1"]);
    assert_eq!(asked_at("127.0.0.1:16460"), [""; 0]);
}

#[test]
fn a_peer_that_is_gone_has_no_metrics() {
    let metrics = Metrics::new().unwrap();
    let reach = Reach::new(&flags(&[]), &metrics).unwrap();
    let mut way = Way::default();
    let address = SocketAddr::from(([10, 2, 0, 1], 80));
    let took = Duration::from_millis(30);
    way.note(vec![(name("shop/web"), Attempt { address, outcome: Outcome::Answered, took })]);
    reach.set("west", &[(IpFamily::V6, &way)]);
    let text = metrics.text().unwrap();
    assert!(text.contains("probed_endpoints{") && text.contains("round_trip_seconds{"), "{text}");
    reach.set("west", &[]);
    assert!(!metrics.text().unwrap().contains("west"));
}
