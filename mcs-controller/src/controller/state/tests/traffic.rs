//! What agents are told of source clusters.

use mcs_kube::Drain;

use super::*;

/// A ClusterProperty of this cluster says this now.
fn of_traffic(state: &mut State, name: &str, value: &str) {
    property(state, &format!("{name}.clusterset.mcs-agent.io"), value);
}

/// Why that value cannot be used.
fn problem(state: &State, name: &str) -> Option<String> {
    state.setting_problem(&format!("{name}.clusterset.mcs-agent.io"))
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
    let Some(traffic) = state.traffic_property(now) else { return String::new() };
    of_traffic(state, "traffic", &traffic.to_value());
    assert_eq!(state.traffic_property(now), None);
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

    assert!(state.statement().drain.is_none());
    of_traffic(&mut state, "drain", "true");
    assert!(state.statement().drain.is_some());
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
    let later = Instant::now() + Duration::from_hours(1);
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
        assert_eq!(super::traffic::told(&mut next), "", "{when_stale}: not known");
        says(&mut next, 1, "false");
        assert_eq!(super::traffic::told(&mut next), "", "{when_stale}: its old Lease is read");
        assert_eq!(told_at(&mut next, later), "", "{when_stale}: still silent");
        says(&mut next, 2, "false");
        let ended = next.traffic_property(Instant::now()).map(|traffic| traffic.to_string());
        assert_eq!(ended, (!silent.is_empty()).then(String::new), "{when_stale}: it is back");
    }
}

#[test]
fn an_event_about_a_value_names_the_property_that_has_it() {
    let mut state = state();
    let notice = |state: &State| {
        state.setting_notice("weight.clusterset.mcs-agent.io", true, "InvalidValue", String::new())
    };
    assert_eq!(notice(&state), None, "there is none");
    let property = json!({
        "metadata": {"name": "weight.clusterset.mcs-agent.io", "uid": "u7"}, "spec": {"value": "1.5"},
    });
    state.update(Update::Own(OwnEvent::Properties(ResourceEvent::Changed(object(property)))));
    let regarding = notice(&state).unwrap().regarding;
    assert_eq!((regarding.kind, &*regarding.uid), ("ClusterProperty", "u7"));
    assert_eq!(regarding.namespace, None);
}

#[test]
fn what_agents_were_not_told_is_known_of_each_cluster() {
    let mut state = state();
    peer(&mut state, &json!({"weight": 10}));
    of_traffic(&mut state, "weight", "90");
    let now = Instant::now();
    let wanted = state.traffic_property(now).unwrap();
    let told = |state: &State| {
        ["east", "west", "north"].map(|id| state.is_told(&wanted, &id.parse().unwrap()))
    };
    assert_eq!(told(&state), [false, false, true]);
    of_traffic(&mut state, "traffic", r#"{"west":{"weight":10}}"#);
    assert_eq!(told(&state), [false, true, true]);
    of_traffic(&mut state, "traffic", "[");
    assert_eq!(told(&state), [false; 3], "agents cannot read it");
}
