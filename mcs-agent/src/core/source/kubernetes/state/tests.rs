//! What the state of a cluster makes of updates: batches, facts and problems.

use std::time::{Duration, UNIX_EPOCH};

use mcs_kube::WatchedObject;
use serde_json::{Value, from_value, json};

use super::*;
use crate::core::{
    model::{Object, ObjectEvent},
    source::SourceOptions,
};

/// A state that needs no ClusterProperty about traffic.
pub(crate) fn new(options: &SourceOptions, filter: Filter) -> ClusterState {
    let targets = WatchTargets::new(options, &filter);
    let mut state = ClusterState::new("Kubernetes".to_owned(), &targets, filter);
    state.traffic.resource_mut().set_unneeded();
    state
}

fn state(node: bool, cluster_id: bool) -> ClusterState {
    let node = node.then(|| "n1".to_owned());
    let options = SourceOptions { node, zone: true, cluster_id, ..SourceOptions::default() };
    new(&options, Filter::default())
}

/// A state that needs neither the Node nor the ServiceCIDRs.
fn state_with_ranges() -> ClusterState {
    let node = Some("n1".to_owned());
    let options = SourceOptions { node, service_ranges: true, ..SourceOptions::default() };
    let mut state = new(&options, Filter::default());
    state.update(ClusterUpdate::Imports(listed([])));
    state.update(ClusterUpdate::Slices(listed([])));
    state
}

pub(crate) fn decode<D: Decoder>(object: Value) -> WatchedObject<D> {
    from_value(object).unwrap()
}

fn import(name: &str) -> WatchedObject<ImportDecoder> {
    decode(json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"type": "ClusterSetIP", "ports": []},
    }))
}

fn broken_import(name: &str) -> WatchedObject<ImportDecoder> {
    decode(json!({"metadata": {"namespace": "shop", "name": name}, "spec": {}}))
}

fn slice(name: &str, service: &str) -> WatchedObject<SliceDecoder> {
    let labels = json!({"multicluster.kubernetes.io/service-name": service});
    decode(json!({
        "metadata": {"namespace": "shop", "name": name, "labels": labels},
        "addressType": "IPv4", "endpoints": [],
    }))
}

pub(crate) fn listed<D: Decoder>(
    objects: impl IntoIterator<Item = WatchedObject<D>>,
) -> ResourceEvent<D> {
    let objects = objects.into_iter().collect();
    ResourceEvent::Listed { version: "v1beta1".to_owned(), objects }
}

/// One line for each event.
pub(crate) fn events(batch: Option<EventBatch>) -> Vec<String> {
    let name = |object: &Object| object.reference().key.name;
    let events = batch.into_iter().flat_map(|batch| batch.events);
    let event = |event| match event {
        ObjectEvent::Apply(object) => format!("apply {}", name(&object)),
        ObjectEvent::Delete(object) => format!("delete {}", object.key.name),
        ObjectEvent::Malformed { object, message } => {
            format!("malformed {}: {message}", object.key.name)
        }
        ObjectEvent::Relist { kind, objects } => {
            let names: Vec<_> = objects.iter().map(name).collect();
            format!("{kind}s: {}", names.join(" "))
        }
    };
    events.map(event).collect()
}

#[test]
fn no_object_event_comes_before_everything_was_read() {
    let mut state = state(true, true);
    let mut quiet = |update| {
        let batch = state.update(update);
        assert_eq!(events(batch.clone()), [""; 0]);
        batch
    };
    quiet(ClusterUpdate::Imports(listed([import("web"), import("gone"), broken_import("broken")])));
    quiet(ClusterUpdate::Imports(ResourceEvent::Deleted(import("gone"))));
    quiet(ClusterUpdate::Imports(ResourceEvent::Changed(import("late"))));
    quiet(ClusterUpdate::Slices(ResourceEvent::Failing {
        reason: "no".to_owned(),
        is_forbidden: true,
        last_heard: None,
    }));
    quiet(ClusterUpdate::Slices(listed([slice("web-a", "web"), slice("none", "")])));
    quiet(ClusterUpdate::Node(listed([decode(json!({
        "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
    }))])));
    let batch =
        state.update(ClusterUpdate::ClusterId(ResourceEvent::NotServed { last_heard: None }));
    assert_eq!(batch.clone().unwrap().node.zone.as_deref(), Some("z1"));
    assert!(batch.clone().unwrap().status.problems.is_empty());
    assert_eq!(
        events(batch),
        [
            "ServiceImports: late web",
            "malformed broken: spec: missing field `ports`",
            "EndpointSlices: web-a",
        ]
    );
}

#[test]
fn an_imported_slice_that_is_only_of_a_service_now_is_withdrawn() {
    let mut state = state(false, false);
    state.update(ClusterUpdate::Imports(listed([])));
    state.update(ClusterUpdate::Slices(listed([slice("web-a", "web")])));
    let labels = json!({
        "kubernetes.io/service-name": "web",
        "multicluster.kubernetes.io/service-name": "",
    });
    let unlabelled = decode(json!({
        "metadata": {"namespace": "shop", "name": "web-a", "labels": labels},
        "addressType": "IPv4", "endpoints": [],
    }));
    let changed = ClusterUpdate::Slices(ResourceEvent::Changed(unlabelled));
    assert_eq!(events(state.update(changed)), ["delete web-a"]);
}

#[test]
fn then_each_change_is_an_event() {
    let mut state = state(false, false);
    state.update(ClusterUpdate::Imports(listed([])));
    let all = events(state.update(ClusterUpdate::Slices(listed([]))));
    assert_eq!(all, ["ServiceImports: ", "EndpointSlices: "]);

    let mut import_events = |event| events(state.update(ClusterUpdate::Imports(event)));
    assert_eq!(import_events(ResourceEvent::Changed(import("web"))), ["apply web"]);
    assert_eq!(
        import_events(ResourceEvent::Changed(broken_import("web"))),
        ["malformed web: spec: missing field `ports`"]
    );
    assert_eq!(import_events(ResourceEvent::Deleted(import("web"))), ["delete web"]);
    assert_eq!(
        import_events(listed([import("web"), broken_import("broken")])),
        ["ServiceImports: web", "malformed broken: spec: missing field `ports`"]
    );
    let mut slice_events = |event| events(state.update(ClusterUpdate::Slices(event)));
    assert_eq!(slice_events(ResourceEvent::Changed(slice("a", "web"))), ["apply a"]);
    assert_eq!(slice_events(ResourceEvent::Changed(slice("a", ""))), ["delete a"]);
}

#[test]
fn a_failure_changes_no_object_and_is_reported_once() {
    let mut state = state(false, true);
    let failing = || {
        let last_heard = Some(UNIX_EPOCH + Duration::from_millis(7500));
        ClusterUpdate::Imports(ResourceEvent::Failing {
            reason: "forbidden".to_owned(),
            is_forbidden: true,
            last_heard,
        })
    };
    let known_until =
        |state: &ClusterState| state.status().kinds.iter().find_map(|kind| kind.known_until);
    let problems = |batch: Option<EventBatch>| {
        let problems = batch.expect("a batch").status.problems.clone().into_iter();
        problems.map(|one| format!("{}: {}", one.place, one.message)).collect::<Vec<_>>()
    };
    let place = "serviceimports.multicluster.x-k8s.io";
    let granted = "; grant it as the ClusterRole of the chart does";
    let unread =
        format!("{place}: forbidden{granted}; the agent changes nothing until it can read it");
    assert_eq!(problems(state.update(failing())), [unread]);
    assert_eq!(state.update(failing()), None);
    let absent = format!(
        "{place}: the API server does not serve it as v1beta1 or v1alpha1: install its CRD; \
         the agent changes nothing until it can read it"
    );
    assert_eq!(
        problems(
            state.update(ClusterUpdate::Imports(ResourceEvent::NotServed { last_heard: None }))
        ),
        [absent]
    );
    assert_eq!(known_until(&state), None);

    let east = || decode(json!({"metadata": {"name": "id"}, "spec": {"value": "east"}}));
    state.update(ClusterUpdate::ClusterId(listed([east()])));
    state.update(ClusterUpdate::Slices(listed([])));
    let batch = state.update(ClusterUpdate::Imports(listed([])));
    assert_eq!(problems(batch), [""; 0]);
    let kept = format!("{place}: forbidden{granted}; the agent keeps using what it last read");
    assert_eq!(problems(state.update(failing())), [kept]);
    assert_eq!(known_until(&state), Some(7));
    assert_eq!(state.update(failing()), None);
    let batch = state.update(ClusterUpdate::Imports(ResourceEvent::Recovered));
    assert_eq!(problems(batch), [""; 0]);
    assert_eq!(known_until(&state), None);

    let batch = state
        .update(ClusterUpdate::ClusterId(ResourceEvent::NotServed { last_heard: None }))
        .unwrap();
    assert_eq!(batch.node.cluster_id.as_deref(), Some("east"));
    let batch = state.update(ClusterUpdate::ClusterId(ResourceEvent::Deleted(east()))).unwrap();
    assert_eq!(batch.node.cluster_id, None);
}

#[test]
fn traffic_that_is_malformed_changes_nothing() {
    let mut state = state(false, false);
    let property = |value: &str| {
        let object = json!({"metadata": {"name": "traffic"}, "spec": {"value": value}});
        ClusterUpdate::Traffic(ResourceEvent::Changed(decode(object)))
    };
    let mut after = |update| {
        let batch = state.update(update).unwrap();
        let problems: Vec<_> = batch
            .status
            .problems
            .iter()
            .map(|one| format!("{}: {}", one.place, one.message))
            .collect();
        (batch.node.traffic.to_string(), problems)
    };
    assert_eq!(after(property(r#"{"west":{"weight":10}}"#)), ("west weight 10".to_owned(), vec![]));
    let (traffic, problems) = after(property(r#"{"west":{"weight":-1}}"#));
    let [problem] = &*problems else { panic!("{problems:?}") };
    assert!(problem.starts_with("ClusterProperty traffic.clusterset.mcs-agent.io: spec.value: "));
    assert_eq!(traffic, "west weight 10", "{problem}");
    let (traffic, problems) = after(property(r#"{"west":{"drain":true}}"#));
    assert_eq!((&*traffic, problems.len()), ("west drained", 0));
    let gone = decode(json!({"metadata": {"name": "traffic"}, "spec": {}}));
    let (traffic, _) = after(ClusterUpdate::Traffic(ResourceEvent::Deleted(gone)));
    assert_eq!(traffic, "");
}

#[test]
fn vip_ranges_of_the_cluster_are_read_before_any_object() {
    let options = SourceOptions { vip_ranges: true, ..SourceOptions::default() };
    let mut state = new(&options, Filter::default());
    state.update(ClusterUpdate::Imports(listed([import("web")])));
    assert_eq!(events(state.update(ClusterUpdate::Slices(listed([])))), [""; 0]);
    let property = json!({"metadata": {"name": "ranges"}, "spec": {"value": "241.0.0.0/8"}});
    let batch = state.update(ClusterUpdate::VipRanges(listed([decode(property)])));
    let ranges = batch.as_ref().map(|batch| batch.node.vip_ranges.clone());
    assert_eq!(ranges, Some(vec!["241.0.0.0/8".parse().unwrap()]));
    assert_eq!(events(batch), ["ServiceImports: web", "EndpointSlices: "]);
}

#[test]
fn addresses_of_the_api_server_are_passed_on() {
    let mut state = state(false, false);
    let servers = BTreeSet::from(["10.0.0.1".parse().unwrap()]);
    let batch = state.update(ClusterUpdate::ApiServers(servers.clone())).unwrap();
    assert_eq!(batch.node.api_servers, servers);
    assert_eq!(batch.status.name, "Kubernetes");
    assert_eq!(state.update(ClusterUpdate::ApiServers(servers)), None);
}

#[test]
fn ranges_of_services_and_pods_are_facts() {
    let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let service = |name: &str, range: &str| {
        decode(json!({"metadata": {"name": name}, "spec": {"cidrs": [range]}}))
    };
    let mut state = state_with_ranges();
    let listing = listed([service("kubernetes", "10.96.0.0/16")]);
    assert_eq!(events(state.update(ClusterUpdate::ServiceRanges(listing))), [""; 0]);
    let node = json!({"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.244.1.0/24"]}});
    let batch = state.update(ClusterUpdate::Node(listed([decode(node)]))).unwrap();
    assert_eq!(batch.node.service_ranges, Some(ranges(&["10.96.0.0/16"])));
    assert_eq!(batch.node.pod_ranges, ranges(&["10.244.1.0/24"]));
    assert_eq!(batch.node.zone, None);
    assert_eq!(batch.events.len(), 2, "everything was read");

    let more = ResourceEvent::Changed(service("more", "10.112.0.0/16"));
    let batch = state.update(ClusterUpdate::ServiceRanges(more)).unwrap();
    assert_eq!(batch.node.service_ranges, Some(ranges(&["10.96.0.0/16", "10.112.0.0/16"])));
    let gone = ResourceEvent::Deleted(service("more", "10.112.0.0/16"));
    let batch = state.update(ClusterUpdate::ServiceRanges(gone)).unwrap();
    assert_eq!(batch.node.service_ranges, Some(ranges(&["10.96.0.0/16"])));
}

#[test]
fn what_is_not_needed_may_be_forbidden_or_absent() {
    let forbidden = || "servicecidrs is forbidden".to_owned();
    let failing = |is_forbidden| {
        let reason = forbidden();
        let event = ResourceEvent::Failing { reason, is_forbidden, last_heard: None };
        ClusterUpdate::ServiceRanges(event)
    };
    let node = || ClusterUpdate::Node(listed([]));
    let absent = ClusterUpdate::ServiceRanges(ResourceEvent::NotServed { last_heard: None });
    for (update, is_read, problems) in
        [(failing(true), true, 1), (failing(false), false, 1), (absent, true, 0)]
    {
        let mut state = state_with_ranges();
        state.update(node());
        let name = format!("{update:?}");
        let batch = state.update(update).unwrap();
        assert_eq!(!batch.events.is_empty(), is_read, "{name}");
        assert_eq!(batch.node.service_ranges, None);
        assert_eq!(batch.status.problems.len(), problems, "{name}");
        let says = |part| batch.status.problems.iter().any(|one| one.message.contains(part));
        assert_eq!(says("set --service-cidr"), is_read && problems > 0, "{name}");
    }
    // A right that is withdrawn takes nothing away.
    let mut state = state_with_ranges();
    state.update(node());
    let range = json!({"metadata": {"name": "a"}, "spec": {"cidrs": ["10.96.0.0/16"]}});
    state.update(ClusterUpdate::ServiceRanges(listed([decode(range)])));
    let batch = state.update(failing(true)).unwrap();
    assert!(batch.node.service_ranges.is_some());
    assert!(batch.status.problems[0].message.contains("keeps using"));
}
