//! Collects what the watches report into batches: nothing before everything was read once, then each
//! change.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    decoder::{Decoder, ImportDecoder, PropertyDecoder, SliceDecoder, WatchedObject, ZoneDecoder},
    watch::{ResourceEvent, WatchTarget},
};
use crate::model::{
    EventBatch, Kind, KindStatus, NodeFacts, Object, ObjectEvent, ObjectKey, ObjectRef,
    SourceProblem, SourceStatus,
};

/// An event of one of the watches, or the addresses of the API server.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ClusterUpdate {
    Imports(ResourceEvent<ImportDecoder>),
    Slices(ResourceEvent<SliceDecoder>),
    Zone(ResourceEvent<ZoneDecoder>),
    ClusterId(ResourceEvent<PropertyDecoder>),
    ApiServers(BTreeSet<IpAddr>),
}

/// The state of the cluster, as far as the watches have reported it.
///
/// It produces no object events before every watched resource was listed: an import without its slices
/// has no backends, and without the zone a slice has others.
pub(super) struct ClusterState {
    name: String,
    imports: ObjectList,
    slices: ObjectList,
    /// `None` if no Node is watched.
    zone: Option<SingleValue>,
    /// `None` if no ClusterProperty is watched.
    cluster_id: Option<SingleValue>,
    api_servers: BTreeSet<IpAddr>,
    /// Whether the object events have begun.
    synced: bool,
    /// What the latest batch said beside its events.
    last: Option<(NodeFacts, SourceStatus)>,
}

/// The state of one watched resource.
struct WatchedResource {
    /// Plural and group, such as `serviceimports.multicluster.x-k8s.io`.
    resource: String,
    /// The versions that the agent can read.
    versions: Vec<String>,
    /// The version of the latest list.
    version: Option<String>,
    /// Whether it was listed once.
    synced: bool,
    /// Why it cannot be read now.
    failure: Option<String>,
    /// The time of the last answer before that failure.
    last_heard: Option<SystemTime>,
}

/// The objects of one kind, each decoded or with its error. It is empty once the object events have
/// begun, since the receiver then has them.
struct ObjectList {
    resource: WatchedResource,
    kind: Kind,
    objects: BTreeMap<ObjectKey, Result<Object, String>>,
}

/// A resource with one object, of which one value is used.
struct SingleValue {
    resource: WatchedResource,
    value: Option<String>,
}

impl ClusterState {
    /// The state before the first event.
    pub(super) fn new(
        name: String,
        imports: &WatchTarget,
        slices: &WatchTarget,
        zone: Option<&WatchTarget>,
        cluster_id: Option<&WatchTarget>,
    ) -> Self {
        Self {
            name,
            imports: ObjectList::new(Kind::ServiceImport, imports),
            slices: ObjectList::new(Kind::EndpointSlice, slices),
            zone: zone.map(SingleValue::new),
            cluster_id: cluster_id.map(SingleValue::new),
            api_servers: BTreeSet::new(),
            synced: false,
            last: None,
        }
    }

    /// Applies an update. Returns a batch if the update changes anything.
    pub(super) fn update(&mut self, update: ClusterUpdate) -> Option<EventBatch> {
        let synced = self.synced;
        let mut events = match update {
            ClusterUpdate::Imports(event) => self.imports.apply(event, synced),
            ClusterUpdate::Slices(event) => self.slices.apply(event, synced),
            ClusterUpdate::Zone(event) => {
                if let Some(zone) = &mut self.zone {
                    zone.apply(event);
                }
                Vec::new()
            }
            ClusterUpdate::ClusterId(event) => {
                if let Some(cluster_id) = &mut self.cluster_id {
                    cluster_id.apply(event);
                }
                Vec::new()
            }
            ClusterUpdate::ApiServers(addresses) => {
                self.api_servers = addresses;
                Vec::new()
            }
        };
        if !synced && self.resources().all(|resource| resource.synced) {
            self.synced = true;
            events = [&mut self.imports, &mut self.slices].map(ObjectList::relist).concat();
        }
        let facts = (self.node(), self.status());
        if events.is_empty() && self.last.as_ref() == Some(&facts) {
            return None;
        }
        let (node, status) = self.last.insert(facts).clone();
        Some(EventBatch { events, node, status })
    }

    fn resources(&self) -> impl Iterator<Item = &WatchedResource> {
        let values = [&self.zone, &self.cluster_id].into_iter().flatten();
        let lists = [&self.imports, &self.slices].map(|list| &list.resource);
        lists.into_iter().chain(values.map(|value| &value.resource))
    }

    fn node(&self) -> NodeFacts {
        let value =
            |value: &Option<SingleValue>| value.as_ref().and_then(|value| value.value.clone());
        NodeFacts {
            zone: value(&self.zone),
            cluster_id: value(&self.cluster_id),
            api_servers: self.api_servers.clone(),
            ..NodeFacts::default()
        }
    }

    fn status(&self) -> SourceStatus {
        SourceStatus {
            name: self.name.clone(),
            kinds: self.resources().map(WatchedResource::status).collect(),
            problems: self.resources().filter_map(WatchedResource::problem).collect(),
            skipped: BTreeMap::new(),
        }
    }
}

impl WatchedResource {
    fn new(target: &WatchTarget) -> Self {
        let resource = target.versions.first().map(|api| match api.group.as_str() {
            "" => api.plural.clone(),
            group => format!("{}.{group}", api.plural),
        });
        Self {
            resource: resource.unwrap_or_default(),
            versions: target.versions.iter().map(|api| api.version.clone()).collect(),
            version: None,
            synced: false,
            failure: None,
            last_heard: None,
        }
    }

    /// Records what an event says beside objects.
    fn record<D: Decoder>(&mut self, event: &ResourceEvent<D>) {
        match event {
            ResourceEvent::Listed { version, .. } => {
                self.version = Some(version.clone());
                self.synced = true;
                self.failure = None;
            }
            ResourceEvent::Changed(_) | ResourceEvent::Deleted(_) => {}
            ResourceEvent::Recovered => self.failure = None,
            ResourceEvent::Failing { reason, last_heard } => {
                self.failure = Some(reason.clone());
                self.last_heard = *last_heard;
            }
            ResourceEvent::NotServed { last_heard } => {
                let versions = self.versions.join(" or ");
                self.failure = Some(format!(
                    "the API server does not serve it as {versions}: install its CRD"
                ));
                self.last_heard = *last_heard;
            }
        }
    }

    fn status(&self) -> KindStatus {
        KindStatus {
            resource: self.resource.clone(),
            version: self.version.clone(),
            synced: self.synced,
            known_until: self.known_until(),
        }
    }

    fn known_until(&self) -> Option<u64> {
        let last_heard = self.last_heard.filter(|_| self.synced && self.failure.is_some())?;
        Some(last_heard.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    fn problem(&self) -> Option<SourceProblem> {
        let consequence = if self.synced {
            "the agent keeps using what it last read"
        } else {
            "the agent changes nothing until it can read it"
        };
        let failure = self.failure.as_ref()?;
        let message = format!("{failure}; {consequence}");
        Some(SourceProblem { place: self.resource.clone(), message })
    }
}

impl ObjectList {
    fn new(kind: Kind, target: &WatchTarget) -> Self {
        Self { resource: WatchedResource::new(target), kind, objects: BTreeMap::new() }
    }

    /// Applies an event of the watch. Returns the object events if the source is `synced`, and else
    /// keeps the objects.
    fn apply<D>(&mut self, event: ResourceEvent<D>, synced: bool) -> Vec<ObjectEvent>
    where
        D: Decoder<Value = Option<Object>>,
    {
        self.resource.record(&event);
        match event {
            ResourceEvent::Listed { objects, .. } => {
                self.objects = objects.into_iter().filter_map(entry).collect();
                if synced { self.relist() } else { Vec::new() }
            }
            ResourceEvent::Changed(object) => {
                self.set(object.key(), entry(object).map(|(_, decoded)| decoded), synced)
            }
            ResourceEvent::Deleted(object) => self.set(object.key(), None, synced),
            ResourceEvent::NotServed { .. }
            | ResourceEvent::Failing { .. }
            | ResourceEvent::Recovered => Vec::new(),
        }
    }

    fn set(
        &mut self,
        key: ObjectKey,
        decoded: Option<Result<Object, String>>,
        synced: bool,
    ) -> Vec<ObjectEvent> {
        if !synced {
            match decoded {
                Some(decoded) => self.objects.insert(key, decoded),
                None => self.objects.remove(&key),
            };
            return Vec::new();
        }
        let object = ObjectRef { kind: self.kind, key };
        vec![match decoded {
            Some(Ok(object)) => ObjectEvent::Apply(object),
            Some(Err(message)) => ObjectEvent::Malformed { object, message },
            None => ObjectEvent::Delete(object),
        }]
    }

    /// Returns events with every object, and forgets the objects.
    fn relist(&mut self) -> Vec<ObjectEvent> {
        let mut objects = Vec::new();
        let mut malformed = Vec::new();
        for (key, decoded) in std::mem::take(&mut self.objects) {
            match decoded {
                Ok(object) => objects.push(object),
                Err(message) => {
                    let object = ObjectRef { kind: self.kind, key };
                    malformed.push(ObjectEvent::Malformed { object, message });
                }
            }
        }
        let relist = ObjectEvent::Relist { kind: self.kind, objects };
        std::iter::once(relist).chain(malformed).collect()
    }
}

/// The key and value for [`ObjectList::objects`]; `None` for a slice that is not imported.
fn entry<D>(object: WatchedObject<D>) -> Option<(ObjectKey, Result<Object, String>)>
where
    D: Decoder<Value = Option<Object>>,
{
    let key = object.key();
    Some((key, object.decoded.transpose()?))
}

impl SingleValue {
    fn new(target: &WatchTarget) -> Self {
        Self { resource: WatchedResource::new(target), value: None }
    }

    fn apply<D: Decoder<Value = Option<String>>>(&mut self, event: ResourceEvent<D>) {
        self.resource.record(&event);
        match event {
            ResourceEvent::Listed { objects, .. } => {
                self.value = objects.into_iter().next().and_then(|one| one.decoded.ok()).flatten();
            }
            ResourceEvent::Changed(object) => self.value = object.decoded.ok().flatten(),
            ResourceEvent::Deleted(_) => self.value = None,
            // A cluster need not have the resource.
            ResourceEvent::NotServed { .. } if self.value.is_none() => {
                self.resource.synced = true;
                self.resource.failure = None;
            }
            ResourceEvent::NotServed { .. }
            | ResourceEvent::Failing { .. }
            | ResourceEvent::Recovered => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::source::kubernetes::{KubernetesOptions, WatchTargets};

    fn state(zone: bool, cluster_id: bool) -> ClusterState {
        let WatchTargets { imports, slices, zone: of_zone, cluster_id: of_cluster_id } =
            WatchTargets::new(KubernetesOptions {
                kubeconfig: None,
                import_group: "multicluster.x-k8s.io".to_owned(),
                import_selector: None,
                zone_of: zone.then(|| "n1".to_owned()),
                cluster_id,
            });
        let name = "Kubernetes".to_owned();
        ClusterState::new(name, &imports, &slices, of_zone.as_ref(), of_cluster_id.as_ref())
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
            last_heard: None,
        }));
        quiet(ClusterUpdate::Slices(listed([slice("web-a", "web"), slice("none", "")])));
        quiet(ClusterUpdate::Zone(listed([decode(json!({
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
                last_heard,
            })
        };
        let known_until =
            |state: &ClusterState| state.status().kinds.iter().find_map(|kind| kind.known_until);
        let problems = |batch: Option<EventBatch>| {
            let problems = batch.expect("a batch").status.problems.into_iter();
            problems.map(|one| format!("{}: {}", one.place, one.message)).collect::<Vec<_>>()
        };
        let place = "serviceimports.multicluster.x-k8s.io";
        let unread = format!("{place}: forbidden; the agent changes nothing until it can read it");
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
        let kept = format!("{place}: forbidden; the agent keeps using what it last read");
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
}
