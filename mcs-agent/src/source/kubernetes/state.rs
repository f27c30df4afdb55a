//! Collects what the watches report into batches: nothing before everything was read once, then each
//! change.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use mcs_kube::{
    Decoder, PropertyDecoder, ResourceEvent, WatchTarget, WatchedObject, discovery::ApiGroups,
};
use tokio::sync::watch;

use super::{
    WatchTargets,
    adoption::Adoption,
    decoders::{
        AdoptableSliceDecoder, ImportDecoder, NodeDecoder, NodeValues, ServiceDecoder,
        ServiceRangeDecoder, SliceDecoder,
    },
    object_list::{ObjectList, WatchedResource},
};
use crate::{
    model::{
        AdoptableGroup, Controller, EventBatch, Kind, NodeFacts, ObjectEvent, ObjectKey,
        SourceStatus,
    },
    source::adopt::{self, List},
};

/// An event of one of the watches, or the addresses of the API server.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ClusterUpdate {
    Imports(ResourceEvent<ImportDecoder>),
    Slices(ResourceEvent<SliceDecoder>),
    OtherImports(ResourceEvent<ImportDecoder>),
    Services(ResourceEvent<ServiceDecoder>),
    AdoptableSlices(ResourceEvent<AdoptableSliceDecoder>),
    /// The watch of local slices begins anew, for the Services of these names.
    LocalServices(BTreeSet<String>),
    LocalSlices(ResourceEvent<AdoptableSliceDecoder>),
    Node(ResourceEvent<NodeDecoder>),
    ClusterId(ResourceEvent<PropertyDecoder>),
    ServiceRanges(ResourceEvent<ServiceRangeDecoder>),
    ApiServers(BTreeSet<IpAddr>),
    Groups(ApiGroups),
}

/// The state of the cluster, as far as the watches have reported it.
///
/// It produces no object events before every watched resource was listed: an import without its slices
/// has no backends, and without the zone a slice has others.
pub(super) struct ClusterState {
    name: String,
    imports: ObjectList,
    slices: ObjectList,
    adoption: Adoption,
    /// `None` if no Node is watched.
    node: Option<ValueList<NodeValues>>,
    /// `None` if no ClusterProperty is watched.
    cluster_id: Option<ValueList<Option<String>>>,
    /// `None` if no ServiceCIDR is watched.
    service_ranges: Option<ValueList<Vec<IpNet>>>,
    api_servers: BTreeSet<IpAddr>,
    adopt: BTreeSet<Controller>,
    /// Groups of controllers that are not adopted.
    adoptable_groups: Vec<AdoptableGroup>,
    /// Whether the object events have begun.
    synced: bool,
    /// What the latest batch said beside its events.
    last: Option<Facts>,
}

/// What a batch says beside its events.
#[derive(Clone, PartialEq)]
struct Facts {
    node: Arc<NodeFacts>,
    status: Arc<SourceStatus>,
}

/// A resource with few objects, of each of which one value is used. A cluster need not have it.
struct ValueList<V> {
    resource: WatchedResource,
    values: BTreeMap<ObjectKey, V>,
}

impl ClusterState {
    /// The state before the first event. The local slices of the Services in the channel have to be watched.
    pub(super) fn new(
        name: String,
        targets: &WatchTargets,
        local_services: watch::Sender<BTreeSet<String>>,
    ) -> Self {
        let WatchTargets { imports, slices, node, cluster_id, service_ranges, .. } = targets;
        let imports = ObjectList::new(Kind::ServiceImport, imports);
        Self {
            name,
            // Adopted Services need no CRD.
            imports: if targets.adopt.is_empty() { imports } else { imports.optional() },
            slices: ObjectList::new(Kind::EndpointSlice, slices),
            adoption: Adoption::new(targets, local_services),
            node: node.as_ref().map(ValueList::new),
            cluster_id: cluster_id.as_ref().map(ValueList::new),
            service_ranges: service_ranges.as_ref().map(ValueList::new),
            api_servers: BTreeSet::new(),
            adopt: targets.adopt.clone(),
            adoptable_groups: Vec::new(),
            synced: false,
            last: None,
        }
    }

    /// Applies an update. Returns a batch if the update changes anything.
    pub(super) fn update(&mut self, update: ClusterUpdate) -> Option<EventBatch> {
        let synced = self.synced;
        // Most updates are of slices, and most of these are changes of one.
        let may_be_new_facts = !matches!(
            update,
            ClusterUpdate::Slices(ResourceEvent::Changed(_) | ResourceEvent::Deleted(_))
        );
        let mut events = match update {
            ClusterUpdate::Imports(event) => {
                self.adoption.take_main(self.imports.apply(event, synced))
            }
            ClusterUpdate::Slices(event) => {
                self.adoption.take_main(self.slices.apply(event, synced))
            }
            ClusterUpdate::OtherImports(event) => self.adoption.take(List::OtherImports, event),
            ClusterUpdate::Services(event) => self.adoption.take(List::Services, event),
            ClusterUpdate::AdoptableSlices(event) => self.adoption.take(List::Slices, event),
            ClusterUpdate::LocalServices(services) => self.adoption.set_watched(services),
            ClusterUpdate::LocalSlices(event) => self.adoption.take(List::LocalSlices, event),
            ClusterUpdate::Node(event) => apply_values(self.node.as_mut(), event),
            ClusterUpdate::ClusterId(event) => apply_values(self.cluster_id.as_mut(), event),
            ClusterUpdate::ServiceRanges(event) => {
                apply_values(self.service_ranges.as_mut(), event)
            }
            ClusterUpdate::ApiServers(addresses) => {
                self.api_servers = addresses;
                Vec::new()
            }
            ClusterUpdate::Groups(groups) => {
                let names = groups.keys().map(String::as_str);
                self.adoptable_groups = adopt::adoptable_groups(names, &self.adopt);
                Vec::new()
            }
        };
        if !synced {
            events = Vec::new();
            if self.resources().all(|resource| resource.synced) && self.adoption.is_complete() {
                self.synced = true;
                let lists = [&mut self.imports, &mut self.slices].map(ObjectList::relist);
                events = self.adoption.take_main(lists.concat());
            }
        }
        let known = self.last.clone().filter(|_| !may_be_new_facts);
        let facts = known.unwrap_or_else(|| self.facts());
        let is_new = self.last.as_ref() != Some(&facts);
        if is_new {
            self.last = Some(facts);
        }
        let Facts { node, status } = self.last.clone()?;
        (is_new || !events.is_empty()).then_some(EventBatch { events, node, status })
    }

    fn resources(&self) -> impl Iterator<Item = &WatchedResource> {
        let values = [
            self.node.as_ref().map(|node| &node.resource),
            self.cluster_id.as_ref().map(|cluster_id| &cluster_id.resource),
            self.service_ranges.as_ref().map(|ranges| &ranges.resource),
        ];
        let lists = [&self.imports, &self.slices].map(|list| &list.resource);
        let lists = lists.into_iter().chain(self.adoption.resources());
        lists.chain(values.into_iter().flatten())
    }

    fn facts(&self) -> Facts {
        Facts { node: self.node().into(), status: self.status().into() }
    }

    fn node(&self) -> NodeFacts {
        let node = self.node.as_ref().and_then(ValueList::first);
        let ranges = self.service_ranges.iter().flat_map(|ranges| ranges.values.values());
        let ranges: BTreeSet<IpNet> = ranges.flatten().copied().collect();
        NodeFacts {
            zone: node.and_then(|node| node.zone.clone()),
            cluster_id: self.cluster_id.as_ref().and_then(ValueList::first).cloned().flatten(),
            api_servers: self.api_servers.clone(),
            // Every cluster has a range. Without an object, the API server has not written it yet.
            service_ranges: (!ranges.is_empty()).then_some(ranges),
            pod_ranges: node.into_iter().flat_map(|node| &node.pod_ranges).copied().collect(),
        }
    }

    fn status(&self) -> SourceStatus {
        SourceStatus {
            name: self.name.clone(),
            kinds: self.resources().map(WatchedResource::status).collect(),
            problems: self.resources().filter_map(WatchedResource::problem).collect(),
            adoptable: self.adoption.adoptable(),
            adoptable_groups: self.adoptable_groups.clone(),
            skipped: BTreeMap::new(),
        }
    }
}

/// Applies an event to a resource that is watched. None of its events is an object event.
fn apply_values<D: Decoder>(
    values: Option<&mut ValueList<D::Value>>,
    event: ResourceEvent<D>,
) -> Vec<ObjectEvent> {
    if let Some(values) = values {
        values.apply(event);
    }
    Vec::new()
}

impl<V> ValueList<V> {
    fn new(target: &WatchTarget) -> Self {
        Self { resource: WatchedResource::new(target), values: BTreeMap::new() }
    }

    fn first(&self) -> Option<&V> {
        self.values.values().next()
    }

    fn apply<D: Decoder<Value = V>>(&mut self, event: ResourceEvent<D>) {
        self.resource.record(&event);
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let value = |object: WatchedObject<D>| Some((object.key(), object.decoded.ok()?));
                self.values = objects.into_iter().filter_map(value).collect();
            }
            ResourceEvent::Changed(object) => {
                let key = object.key();
                match object.decoded {
                    Ok(value) => self.values.insert(key, value),
                    Err(_) => self.values.remove(&key),
                };
            }
            ResourceEvent::Deleted(object) => {
                self.values.remove(&object.key());
            }
            ResourceEvent::NotServed { .. } if self.values.is_empty() => {
                self.resource.set_unneeded();
            }
            ResourceEvent::NotServed { .. }
            | ResourceEvent::Failing { .. }
            | ResourceEvent::Recovered => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::{
        model::Object,
        source::{ReadScope, kubernetes::KubernetesOptions},
    };

    fn new(options: &KubernetesOptions) -> ClusterState {
        let targets = WatchTargets::new(options);
        ClusterState::new("Kubernetes".to_owned(), &targets, watch::Sender::default())
    }

    /// Those of a state that needs imports and slices alone.
    fn options() -> KubernetesOptions {
        KubernetesOptions {
            kubeconfig: None,
            scope: ReadScope::default(),
            import_selector: None,
            node: None,
            zone: false,
            cluster_id: false,
            service_ranges: false,
        }
    }

    fn state(node: bool, cluster_id: bool) -> ClusterState {
        let node = node.then(|| "n1".to_owned());
        let options = KubernetesOptions { node, zone: true, cluster_id, ..options() };
        new(&options)
    }

    /// A state that needs neither the Node nor the ServiceCIDRs.
    fn state_with_ranges() -> ClusterState {
        let node = Some("n1".to_owned());
        let options = KubernetesOptions { node, service_ranges: true, ..options() };
        let mut state = new(&options);
        state.update(ClusterUpdate::Imports(listed([])));
        state.update(ClusterUpdate::Slices(listed([])));
        state
    }

    fn decode<D: Decoder>(object: Value) -> WatchedObject<D> {
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

    fn listed<D: Decoder>(objects: impl IntoIterator<Item = WatchedObject<D>>) -> ResourceEvent<D> {
        let objects = objects.into_iter().collect();
        ResourceEvent::Listed { version: "v1beta1".to_owned(), objects }
    }

    /// One line for each event.
    fn events(batch: Option<EventBatch>) -> Vec<String> {
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
        quiet(ClusterUpdate::Imports(listed([
            import("web"),
            import("gone"),
            broken_import("broken"),
        ])));
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
    fn addresses_of_the_api_server_are_passed_on() {
        let mut state = state(false, false);
        let servers = BTreeSet::from(["10.0.0.1".parse().unwrap()]);
        let batch = state.update(ClusterUpdate::ApiServers(servers.clone())).unwrap();
        assert_eq!(batch.node.api_servers, servers);
        assert_eq!(batch.status.name, "Kubernetes");
        assert_eq!(state.update(ClusterUpdate::ApiServers(servers)), None);
    }

    #[test]
    fn groups_of_controllers_that_are_not_adopted_are_named() {
        let groups = |names: &[&str]| {
            let versions = |name: &&str| ((*name).to_owned(), vec!["v1".to_owned()]);
            ClusterUpdate::Groups(names.iter().map(versions).collect())
        };
        let mut state = state(false, false);
        let known = [
            "apps",
            "multicluster.crd.antrea.io",
            "net.gke.io",
            "networking.karmada.io",
            "work.karmada.io",
        ];
        let batch = state.update(groups(&known)).unwrap();
        let lines: Vec<_> = batch.status.adoptable_groups.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "the API server has the group multicluster.crd.antrea.io: --adopt=antrea serves its \
                 ServiceImports, if it exports pod addresses (endpointIPType: PodIP)",
                "the API server has the group net.gke.io: --adopt=gke serves its ServiceImports",
                "the API server has the group networking.karmada.io: --adopt=karmada serves the \
                 Services and ServiceImports that Karmada propagates",
            ]
        );
        assert_eq!(state.update(groups(&known)), None);
        state.adopt = [Controller::Antrea, Controller::Gke].into();
        let batch = state.update(groups(&known[..3])).unwrap();
        assert_eq!(batch.status.adoptable_groups, []);
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
            let batch = state.update(update.clone()).unwrap();
            assert_eq!(!batch.events.is_empty(), is_read, "{update:?}");
            assert_eq!(batch.node.service_ranges, None);
            assert_eq!(batch.status.problems.len(), problems, "{update:?}");
            let says = |part| batch.status.problems.iter().any(|one| one.message.contains(part));
            assert_eq!(says("set --service-cidr"), is_read && problems > 0, "{update:?}");
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

    /// A Service is adopted once its local slices were listed, and not before.
    #[test]
    fn an_adopted_service_waits_for_its_local_slices() {
        let scope = ReadScope { adopt: [Controller::Karmada].into(), ..ReadScope::default() };
        let options = KubernetesOptions { scope, ..options() };
        let (wanted, services) = watch::channel(BTreeSet::new());
        let targets = WatchTargets::new(&options);
        let mut state = ClusterState::new("Kubernetes".to_owned(), &targets, wanted);
        let adoptable = |name: &str, manager: &str| {
            decode::<AdoptableSliceDecoder>(json!({
                "metadata": {"namespace": "shop", "name": name, "labels": {
                    "kubernetes.io/service-name": "web",
                    "endpointslice.kubernetes.io/managed-by": manager,
                }},
                "addressType": "IPv4", "endpoints": [],
            }))
        };
        let dispatched = || adoptable("m1-web", "endpointslice-dispatch-controller.karmada.io");
        let own = || adoptable("web-x", "endpointslice-controller.k8s.io");
        let service: WatchedObject<ServiceDecoder> = decode(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
        }));
        let mut quiet = |update| assert_eq!(events(state.update(update)), [""; 0]);
        quiet(ClusterUpdate::LocalServices(BTreeSet::new()));
        quiet(ClusterUpdate::Imports(ResourceEvent::NotServed { last_heard: None }));
        quiet(ClusterUpdate::Slices(listed([])));
        quiet(ClusterUpdate::Services(listed([service])));
        quiet(ClusterUpdate::AdoptableSlices(listed([dispatched()])));
        let names = services.borrow().clone();
        assert_eq!(names, ["web".to_owned()].into());
        quiet(ClusterUpdate::LocalServices(names));
        assert_eq!(
            events(state.update(ClusterUpdate::LocalSlices(listed([own()])))),
            ["ServiceImports: web", "EndpointSlices: m1-web web-x"]
        );
        let gone = ClusterUpdate::AdoptableSlices(ResourceEvent::Deleted(dispatched()));
        let mut gone = events(state.update(gone));
        gone.sort();
        assert_eq!(gone, ["delete m1-web", "delete web", "delete web-x"]);
        assert!(services.borrow().is_empty());
    }
}
