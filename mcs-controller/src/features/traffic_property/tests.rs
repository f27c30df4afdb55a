//! What agents are told of source clusters.

use mcs_kube::{Drain, ResourceEvent};
use serde_json::{Value, json};

use super::{
    wanted::{is_told, own_drain_said, traffic_property},
    *,
};
use crate::core::{
    control::{
        MailboxId, Update,
        state::tests::{object, property, state},
    },
    mailbox::MailboxEvent,
    objects::{PublisherLease, complete_lease, publisher_lease},
    own_cluster::OwnEvent,
};

/// A ClusterProperty of this cluster says this now.
fn of_traffic(state: &mut State, name: &str, value: &str) {
    property(state, &format!("{name}.clusterset.mcs-agent.io"), value);
}

/// Why that value cannot be used.
fn problem(state: &State, name: &str) -> Option<String> {
    problem_of(state, &format!("{name}.clusterset.mcs-agent.io"))
}

/// The ClusterPeer of west says this now, beside what it has to say.
fn peer(state: &mut State, more: &Value) {
    let mut peer = json!({"metadata": {"name": "west"}, "spec": {
        "clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ["10.2.0.0/16"],
    }});
    for (name, value) in more.as_object().unwrap() {
        peer["spec"][name] = value.clone();
    }
    state.update(Update::Peers(ResourceEvent::Changed(object(peer))));
}

/// West says of itself whether it drains.
fn says(state: &mut State, sequence: u64, drain: &str) {
    let drain = Drain::parse(drain).unwrap();
    let lease = PublisherLease { drain, ..complete_lease("west", 0, sequence) };
    let renewed = jiff::Timestamp::from_second(sequence.cast_signed()).unwrap();
    let lease = publisher_lease("mcs-mailbox", &lease, renewed);
    let event = MailboxEvent::Lease(ResourceEvent::Changed(object(lease)));
    state.update(Update::Mailbox(MailboxId::Peer("west".into(), 1), event));
}

/// What agents are told next, and are told from then on; nothing if that is what they were told.
fn told(state: &mut State) -> String {
    told_at(state, Instant::now())
}

fn told_at(state: &mut State, now: Instant) -> String {
    let Some(traffic) = traffic_property(state, now) else { return String::new() };
    of_traffic(state, "traffic", &traffic.to_value());
    assert_eq!(traffic_property(state, now), None);
    traffic.to_string()
}

#[test]
fn operators_and_the_cluster_itself_have_a_say() {
    let mut state = state();
    peer(&mut state, &json!({}));
    assert_eq!(told(&mut state), "", "nobody wants anything");
    peer(&mut state, &json!({"weight": 10}));
    assert_eq!(told(&mut state), "west weight 10");
    of_traffic(&mut state, "weight", "90");
    assert_eq!(told(&mut state), "east weight 90, west weight 10");
    says(&mut state, 1, "true");
    assert_eq!(told(&mut state), "east weight 90, west weight 10 drained");
    peer(&mut state, &json!({"drain": true}));
    assert_eq!(told(&mut state), "east weight 90, west drained");
    says(&mut state, 2, "false");
    assert_eq!(told(&mut state), "", "it is drained here");
    peer(&mut state, &json!({}));
    assert_eq!(told(&mut state), "east weight 90");

    says(&mut state, 3, "2026-12-01T07:00:00Z");
    assert_eq!(told(&mut state), "east weight 90, west drained until 2026-12-01T07:00:00Z");
    peer(&mut state, &json!({"drain": true, "drainDeadline": "2026-12-01T06:00:00Z"}));
    assert_eq!(told(&mut state), "east weight 90, west drained until 2026-12-01T06:00:00Z");
    peer(&mut state, &json!({"drainDeadline": "2026-12-01T06:00:00Z"}));
    says(&mut state, 4, "false");
    assert_eq!(told(&mut state), "east weight 90", "a deadline alone drains nothing");

    assert!(own_drain_said(&state).is_none());
    of_traffic(&mut state, "drain", "true");
    assert!(own_drain_said(&state).is_some());
    assert_eq!(told(&mut state), "east weight 90 drained");
    of_traffic(&mut state, "drain", "soon");
    assert_eq!(told(&mut state), "", "what cannot be used changes nothing");
    assert!(problem(&state, "drain").unwrap().contains("\"soon\" is neither"));
    of_traffic(&mut state, "drain", "true");
    of_traffic(&mut state, "preference", "local-first");
    assert_eq!(told(&mut state), "east weight 90 drained preferred");
    of_traffic(&mut state, "preference", "nearest");
    assert_eq!(told(&mut state), "", "what cannot be used changes nothing");
    assert!(problem(&state, "preference").unwrap().contains("\"nearest\" is not local-first"));
}

#[test]
fn what_is_not_known_stays_as_it_was_told() {
    let mut state = state();
    of_traffic(
        &mut state,
        "traffic",
        r#"{"east":{"weight":9},"north":{"drain":true},"south":{"weight":5},"west":{"drain":true}}"#,
    );
    peer(&mut state, &json!({}));
    let broken = json!({"metadata": {"name": "north"}, "spec": {"clusterId": "north"}});
    state.update(Update::Peers(ResourceEvent::Changed(object(broken))));
    of_traffic(&mut state, "weight", "much");
    assert_eq!(told(&mut state), "east weight 9, north drained, west drained", "south is no peer");
    assert!(problem(&state, "weight").unwrap().contains("\"much\" is no weight"));
    says(&mut state, 1, "false");
    assert_eq!(told(&mut state), "east weight 9, north drained");
    of_traffic(&mut state, "weight", "1001");
    assert!(problem(&state, "weight").unwrap().contains("use 0 to 1000"));
    of_traffic(&mut state, "weight", "1000");
    assert_eq!(
        (told(&mut state), problem(&state, "weight")),
        ("east weight 1000, north drained".to_owned(), None)
    );
    of_traffic(&mut state, "traffic", "[");
    assert_eq!(told(&mut state), "east weight 1000", "nobody knows what it said of north");
}

#[test]
fn a_silent_peer_is_treated_as_its_operator_wants() {
    let later = Instant::now() + std::time::Duration::from_hours(1);
    for (when_stale, silent) in
        [("keep", ""), ("eject-unreachable", "west silent"), ("withdraw", "west withdrawn")]
    {
        let mut first = state();
        peer(&mut first, &json!({"whenStale": when_stale}));
        says(&mut first, 1, "false");
        says(&mut first, 2, "false");
        assert_eq!(told(&mut first), "", "{when_stale}: it is alive");
        assert_eq!(told_at(&mut first, later), silent, "{when_stale}");

        // The next replica has seen nothing of the peer.
        let mut next = state();
        let told = first.own.property("traffic.clusterset.mcs-agent.io").unwrap_or("{}");
        of_traffic(&mut next, "traffic", told);
        peer(&mut next, &json!({"whenStale": when_stale}));
        assert_eq!(self::told(&mut next), "", "{when_stale}: not known");
        says(&mut next, 1, "false");
        assert_eq!(self::told(&mut next), "", "{when_stale}: its old Lease is read");
        assert_eq!(told_at(&mut next, later), "", "{when_stale}: still silent");
        says(&mut next, 2, "false");
        let ended = traffic_property(&next, Instant::now()).map(|traffic| traffic.to_string());
        assert_eq!(ended, (!silent.is_empty()).then(String::new), "{when_stale}: it is back");
    }
}

#[test]
fn an_event_about_a_value_names_the_property_that_has_it() {
    let mut state = state();
    let notice = |state: &mut State| {
        tell_of(state, "weight.clusterset.mcs-agent.io", Reason::InvalidValue, String::new());
        state.take_notices().pop()
    };
    assert_eq!(notice(&mut state), None, "there is none");
    let property = json!({
        "metadata": {"name": "weight.clusterset.mcs-agent.io", "uid": "u7"}, "spec": {"value": "1.5"},
    });
    state.update(Update::Own(OwnEvent::Properties(ResourceEvent::Changed(object(property)))));
    let regarding = notice(&mut state).unwrap().regarding;
    assert_eq!((regarding.kind, &*regarding.uid), ("ClusterProperty", "u7"));
    assert_eq!(regarding.namespace, None);
}

#[test]
fn what_agents_were_not_told_is_known_of_each_cluster() {
    let mut state = state();
    peer(&mut state, &json!({"weight": 10}));
    of_traffic(&mut state, "weight", "90");
    let now = Instant::now();
    let wanted = traffic_property(&state, now).unwrap();
    let told = |state: &State| {
        ["east", "west", "north"].map(|id| is_told(state, &wanted, &id.parse().unwrap()))
    };
    assert_eq!(told(&state), [false, false, true]);
    of_traffic(&mut state, "traffic", r#"{"west":{"weight":10}}"#);
    assert_eq!(told(&state), [false, true, true]);
    of_traffic(&mut state, "traffic", "[");
    assert_eq!(told(&state), [false; 3], "agents cannot read it");
}

/// A weight that the API server keeps from the agents does nothing.
#[test]
fn what_agents_are_not_told_is_said_on_what_asks_for_it() {
    let (mut state, mut teller) = (state(), Teller::new());
    peer(&mut state, &json!({"weight": 10}));
    let name = "weight.clusterset.mcs-agent.io";
    let weight = json!({"metadata": {"name": name, "uid": "u"}, "spec": {"value": "90"}});
    let weight = ResourceEvent::Changed(object(weight));
    state.update(Update::Own(OwnEvent::Properties(weight)));
    let of = |teller: &Teller, state: &State, cluster: &str| {
        teller.unwritten(&cluster.parse().unwrap(), state)
    };
    let events = |teller: &mut Teller, state: &mut State| {
        teller.note_settings(state);
        state.take_notices().len()
    };
    assert_eq!(events(&mut teller, &mut state), 0, "it is on its way");
    teller.told.note("write", Some("the API server is silent".to_owned()), &mut state);
    teller.untold = traffic_property(&state, Instant::now());
    let said = of(&teller, &state, "west").unwrap();
    assert!(said.contains("agents go by what they were told of west before"), "{said}");
    assert_eq!(of(&teller, &state, "south"), None);
    let counts = [(); 2].map(|()| events(&mut teller, &mut state));
    assert_eq!(counts, [1, 0], "on the weight, once");
    teller.told.note("write", None, &mut state);
    let counts = [(); 2].map(|()| events(&mut teller, &mut state));
    assert_eq!(counts, [1, 0], "and its end");
    assert_eq!(of(&teller, &state, "west"), None);
}

#[test]
fn a_value_that_cannot_be_used_is_said_on_its_object_and_so_is_one_that_agents_are_not_told() {
    let (mut state, mut teller) = (state(), Teller::new());
    let said = |state: &mut State| {
        state.take_notices().into_iter().map(|one| (one.is_warning, one.reason)).collect::<Vec<_>>()
    };
    let one = |is_warning, reason: &str| vec![(is_warning, reason.to_owned())];
    of_traffic(&mut state, "weight", "much");
    teller.note_settings(&mut state);
    assert_eq!(said(&mut state), one(true, "InvalidValue"));
    of_traffic(&mut state, "weight", "10");
    teller.note_settings(&mut state);
    assert_eq!(said(&mut state), one(false, "ValueUsed"));
    of_traffic(&mut state, "traffic", "{}");
    teller.told.note("write", Some("403".to_owned()), &mut state);
    assert_eq!(said(&mut state), one(true, "NotTold"));
    teller.told.note("write", None, &mut state);
    assert_eq!(said(&mut state), one(false, "Told"));
}
