use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    reading::{Imports, Property, Read, Reading, Slices, Zone},
    watch::{News, Target},
};
use crate::model::{
    EventBatch, Kind, KindStatus, NodeFacts, Object, ObjectEvent, ObjectKey, ObjectRef,
    SourceProblem, SourceStatus,
};

/// News of one of the watches, or of the way to the API server.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Update {
    Imports(News<Imports>),
    Slices(News<Slices>),
    Zone(News<Zone>),
    ClusterId(News<Property>),
    Servers(BTreeSet<IpAddr>),
}

/// What is known of the cluster.
///
/// Before everything that is followed was read, nothing of it is told: without the slices an import
/// has no backends, without the zone a slice has others.
pub(super) struct ClusterState {
    name: String,
    imports: Listing,
    slices: Listing,
    /// Absent if it is not followed.
    zone: Option<Fact>,
    /// Absent if it is not followed.
    cluster_id: Option<Fact>,
    servers: BTreeSet<IpAddr>,
    /// Whether objects were told.
    told: bool,
    /// What was told beside objects.
    last: Option<(NodeFacts, SourceStatus)>,
}

/// How a resource is followed.
struct Followed {
    /// `serviceimports.multicluster.x-k8s.io`.
    resource: String,
    /// The versions that can be read.
    versions: Vec<String>,
    /// The one that was.
    version: Option<String>,
    synced: bool,
    trouble: Option<String>,
    /// When it was last heard of, as of that trouble.
    heard: Option<SystemTime>,
}

/// Every object of a kind, or why it cannot be read. Empty once they were told.
struct Listing {
    followed: Followed,
    kind: Kind,
    objects: BTreeMap<ObjectKey, Result<Object, String>>,
}

/// What one object says.
struct Fact {
    followed: Followed,
    value: Option<String>,
}

impl ClusterState {
    /// Nothing is known.
    pub(super) fn new(
        name: String,
        imports: &Target,
        slices: &Target,
        zone: Option<&Target>,
        cluster_id: Option<&Target>,
    ) -> Self {
        Self {
            name,
            imports: Listing::new(Kind::ServiceImport, imports),
            slices: Listing::new(Kind::EndpointSlice, slices),
            zone: zone.map(Fact::new),
            cluster_id: cluster_id.map(Fact::new),
            servers: BTreeSet::new(),
            told: false,
            last: None,
        }
    }

    /// Takes an update in, and tells what is different after it, if anything is.
    pub(super) fn update(&mut self, update: Update) -> Option<EventBatch> {
        let told = self.told;
        let mut events = match update {
            Update::Imports(news) => self.imports.take(news, told),
            Update::Slices(news) => self.slices.take(news, told),
            Update::Zone(news) => {
                if let Some(zone) = &mut self.zone {
                    zone.take(news);
                }
                Vec::new()
            }
            Update::ClusterId(news) => {
                if let Some(cluster_id) = &mut self.cluster_id {
                    cluster_id.take(news);
                }
                Vec::new()
            }
            Update::Servers(servers) => {
                self.servers = servers;
                Vec::new()
            }
        };
        if !told && self.followed().all(|followed| followed.synced) {
            self.told = true;
            events = [&mut self.imports, &mut self.slices].map(Listing::relist).concat();
        }
        let facts = (self.node(), self.status());
        if events.is_empty() && self.last.as_ref() == Some(&facts) {
            return None;
        }
        let (node, status) = self.last.insert(facts).clone();
        Some(EventBatch { events, node, status })
    }

    fn followed(&self) -> impl Iterator<Item = &Followed> {
        let facts = [&self.zone, &self.cluster_id].into_iter().flatten();
        let listings = [&self.imports, &self.slices].map(|listing| &listing.followed);
        listings.into_iter().chain(facts.map(|fact| &fact.followed))
    }

    fn node(&self) -> NodeFacts {
        let value = |fact: &Option<Fact>| fact.as_ref().and_then(|fact| fact.value.clone());
        NodeFacts {
            zone: value(&self.zone),
            cluster_id: value(&self.cluster_id),
            api_servers: self.servers.clone(),
        }
    }

    fn status(&self) -> SourceStatus {
        SourceStatus {
            name: self.name.clone(),
            kinds: self.followed().map(Followed::status).collect(),
            problems: self.followed().filter_map(Followed::problem).collect(),
            skipped: BTreeMap::new(),
        }
    }
}

impl Followed {
    fn new(target: &Target) -> Self {
        let resource = target.versions.first().map(|api| match api.group.as_str() {
            "" => api.plural.clone(),
            group => format!("{}.{group}", api.plural),
        });
        Self {
            resource: resource.unwrap_or_default(),
            versions: target.versions.iter().map(|api| api.version.clone()).collect(),
            version: None,
            synced: false,
            trouble: None,
            heard: None,
        }
    }

    /// What news say beside objects.
    fn note<R: Reading>(&mut self, news: &News<R>) {
        match news {
            News::Listed { version, .. } => {
                self.version = Some(version.clone());
                self.synced = true;
                self.trouble = None;
            }
            News::Changed(_) | News::Gone(_) => {}
            News::Recovered => self.trouble = None,
            News::Failing { why, heard } => {
                self.trouble = Some(why.clone());
                self.heard = *heard;
            }
            News::Absent { heard } => {
                let versions = self.versions.join(" or ");
                self.trouble = Some(format!(
                    "the API server does not have it, in {versions}: install its CRD"
                ));
                self.heard = *heard;
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
        let heard = self.heard.filter(|_| self.synced && self.trouble.is_some())?;
        Some(heard.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    fn problem(&self) -> Option<SourceProblem> {
        let consequence = if self.synced {
            "what was last read stays in force"
        } else {
            "nothing changes until it is read"
        };
        let trouble = self.trouble.as_ref()?;
        let message = format!("{trouble}; {consequence}");
        Some(SourceProblem { place: self.resource.clone(), message })
    }
}

impl Listing {
    fn new(kind: Kind, target: &Target) -> Self {
        Self { followed: Followed::new(target), kind, objects: BTreeMap::new() }
    }

    /// The events that follow, if objects are `told`; else they are kept.
    fn take<R>(&mut self, news: News<R>, told: bool) -> Vec<ObjectEvent>
    where
        R: Reading<Value = Option<Object>>,
    {
        self.followed.note(&news);
        match news {
            News::Listed { objects, .. } => {
                self.objects = objects.into_iter().filter_map(entry).collect();
                if told { self.relist() } else { Vec::new() }
            }
            News::Changed(object) => {
                self.set(object.key(), entry(object).map(|(_, one)| one), told)
            }
            News::Gone(object) => self.set(object.key(), None, told),
            News::Absent { .. } | News::Failing { .. } | News::Recovered => Vec::new(),
        }
    }

    fn set(
        &mut self,
        key: ObjectKey,
        outcome: Option<Result<Object, String>>,
        told: bool,
    ) -> Vec<ObjectEvent> {
        if !told {
            match outcome {
                Some(outcome) => self.objects.insert(key, outcome),
                None => self.objects.remove(&key),
            };
            return Vec::new();
        }
        let object = ObjectRef { kind: self.kind, key };
        vec![match outcome {
            Some(Ok(object)) => ObjectEvent::Apply(object),
            Some(Err(message)) => ObjectEvent::Malformed { object, message },
            None => ObjectEvent::Delete(object),
        }]
    }

    /// Tells every object.
    fn relist(&mut self) -> Vec<ObjectEvent> {
        let mut objects = Vec::new();
        let mut malformed = Vec::new();
        for (key, outcome) in std::mem::take(&mut self.objects) {
            match outcome {
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

/// Nothing for a slice that is none of ours.
fn entry<R>(read: Read<R>) -> Option<(ObjectKey, Result<Object, String>)>
where
    R: Reading<Value = Option<Object>>,
{
    let key = read.key();
    Some((key, read.outcome.transpose()?))
}

impl Fact {
    fn new(target: &Target) -> Self {
        Self { followed: Followed::new(target), value: None }
    }

    fn take<R: Reading<Value = Option<String>>>(&mut self, news: News<R>) {
        self.followed.note(&news);
        match news {
            News::Listed { objects, .. } => {
                self.value = objects.into_iter().next().and_then(|one| one.outcome.ok()).flatten();
            }
            News::Changed(object) => self.value = object.outcome.ok().flatten(),
            News::Gone(_) => self.value = None,
            // Clusters need not have it.
            News::Absent { .. } if self.value.is_none() => {
                self.followed.synced = true;
                self.followed.trouble = None;
            }
            News::Absent { .. } | News::Failing { .. } | News::Recovered => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::source::kubernetes::{KubernetesOptions, Targets};

    fn state(zone: bool, cluster_id: bool) -> ClusterState {
        let Targets { imports, slices, zone: of_zone, cluster_id: of_cluster_id } =
            Targets::new(KubernetesOptions {
                kubeconfig: None,
                import_group: "multicluster.x-k8s.io".to_owned(),
                import_selector: None,
                zone_of: zone.then(|| "n1".to_owned()),
                cluster_id,
            });
        let name = "Kubernetes".to_owned();
        ClusterState::new(name, &imports, &slices, of_zone.as_ref(), of_cluster_id.as_ref())
    }

    fn read<R: Reading>(object: Value) -> Read<R> {
        from_value(object).unwrap()
    }

    fn import(name: &str) -> Read<Imports> {
        read(json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"type": "ClusterSetIP", "ports": []},
        }))
    }

    fn broken_import(name: &str) -> Read<Imports> {
        read(json!({"metadata": {"namespace": "shop", "name": name}, "spec": {}}))
    }

    fn slice(name: &str, service: &str) -> Read<Slices> {
        let labels = json!({"multicluster.kubernetes.io/service-name": service});
        read(json!({
            "metadata": {"namespace": "shop", "name": name, "labels": labels},
            "addressType": "IPv4", "endpoints": [],
        }))
    }

    fn listed<R: Reading>(objects: impl IntoIterator<Item = Read<R>>) -> News<R> {
        let objects = objects.into_iter().collect();
        News::Listed { version: "v1beta1".to_owned(), objects }
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
    fn nothing_is_told_before_everything_was_read() {
        let mut state = state(true, true);
        let mut quiet = |update| {
            let batch = state.update(update);
            assert_eq!(events(batch.clone()), [""; 0]);
            batch
        };
        quiet(Update::Imports(listed([import("web"), import("gone"), broken_import("broken")])));
        quiet(Update::Imports(News::Gone(import("gone"))));
        quiet(Update::Imports(News::Changed(import("late"))));
        quiet(Update::Slices(News::Failing { why: "no".to_owned(), heard: None }));
        quiet(Update::Slices(listed([slice("web-a", "web"), slice("none", "")])));
        quiet(Update::Zone(listed([read(json!({
            "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
        }))])));
        let batch = state.update(Update::ClusterId(News::Absent { heard: None }));
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
    fn then_every_change_is_told() {
        let mut state = state(false, false);
        state.update(Update::Imports(listed([])));
        let all = events(state.update(Update::Slices(listed([]))));
        assert_eq!(all, ["ServiceImports: ", "EndpointSlices: "]);

        let mut import_events = |news| events(state.update(Update::Imports(news)));
        assert_eq!(import_events(News::Changed(import("web"))), ["apply web"]);
        assert_eq!(
            import_events(News::Changed(broken_import("web"))),
            ["malformed web: spec: missing field `ports`"]
        );
        assert_eq!(import_events(News::Gone(import("web"))), ["delete web"]);
        assert_eq!(
            import_events(listed([import("web"), broken_import("broken")])),
            ["ServiceImports: web", "malformed broken: spec: missing field `ports`"]
        );
        let mut slice_events = |news| events(state.update(Update::Slices(news)));
        assert_eq!(slice_events(News::Changed(slice("a", "web"))), ["apply a"]);
        assert_eq!(slice_events(News::Changed(slice("a", ""))), ["delete a"]);
    }

    #[test]
    fn trouble_changes_nothing_and_is_told_once() {
        let mut state = state(false, true);
        let failing = || {
            let heard = Some(UNIX_EPOCH + Duration::from_millis(7500));
            Update::Imports(News::Failing { why: "forbidden".to_owned(), heard })
        };
        let known_until =
            |state: &ClusterState| state.status().kinds.iter().find_map(|kind| kind.known_until);
        let problems = |batch: Option<EventBatch>| {
            let problems = batch.expect("a batch").status.problems.into_iter();
            problems.map(|one| format!("{}: {}", one.place, one.message)).collect::<Vec<_>>()
        };
        let place = "serviceimports.multicluster.x-k8s.io";
        let unread = format!("{place}: forbidden; nothing changes until it is read");
        assert_eq!(problems(state.update(failing())), [unread]);
        assert_eq!(state.update(failing()), None);
        let absent = format!(
            "{place}: the API server does not have it, in v1beta1 or v1alpha1: install its CRD; \
             nothing changes until it is read"
        );
        assert_eq!(problems(state.update(Update::Imports(News::Absent { heard: None }))), [absent]);
        assert_eq!(known_until(&state), None);

        let east = || read(json!({"metadata": {"name": "id"}, "spec": {"value": "east"}}));
        state.update(Update::ClusterId(listed([east()])));
        state.update(Update::Slices(listed([])));
        let batch = state.update(Update::Imports(listed([])));
        assert_eq!(problems(batch), [""; 0]);
        let kept = format!("{place}: forbidden; what was last read stays in force");
        assert_eq!(problems(state.update(failing())), [kept]);
        assert_eq!(known_until(&state), Some(7));
        assert_eq!(state.update(failing()), None);
        let batch = state.update(Update::Imports(News::Recovered));
        assert_eq!(problems(batch), [""; 0]);
        assert_eq!(known_until(&state), None);

        let batch = state.update(Update::ClusterId(News::Absent { heard: None })).unwrap();
        assert_eq!(batch.node.cluster_id.as_deref(), Some("east"));
        let batch = state.update(Update::ClusterId(News::Gone(east()))).unwrap();
        assert_eq!(batch.node.cluster_id, None);
    }

    #[test]
    fn addresses_of_the_api_server_are_passed_on() {
        let mut state = state(false, false);
        let servers = BTreeSet::from(["10.0.0.1".parse().unwrap()]);
        let batch = state.update(Update::Servers(servers.clone())).unwrap();
        assert_eq!(batch.node.api_servers, servers);
        assert_eq!(batch.status.name, "Kubernetes");
        assert_eq!(state.update(Update::Servers(servers)), None);
    }
}
