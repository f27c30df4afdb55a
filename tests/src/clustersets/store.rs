//! The objects of an API server, and what has changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use mcs_controller::core::clock::Skew;
use mcs_kube::testing::in_memory::Asked;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{journal::Journal, kinds::Kind, ownership::Owners, schema};

/// What names an object: the plural of its kind, namespace and name.
pub(super) type Key = (&'static str, String, String);

/// What an object was and is.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) at: Instant,
    pub(super) key: Key,
    pub(super) before: Option<Arc<Value>>,
    pub(super) after: Option<Arc<Value>>,
}

#[derive(Clone, Debug)]
struct Stored {
    object: Arc<Value>,
    owners: Arc<Owners>,
}

/// Why a request fails: code, reason and message.
pub(super) type Failure = (u16, &'static str, String);

/// What somebody has kept of a whole API server.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    objects: BTreeMap<Key, Stored>,
}

/// All objects.
#[derive(Debug)]
pub(super) struct Store {
    objects: BTreeMap<Key, Stored>,
    changes: Vec<Arc<Change>>,
    /// How often each object was made.
    made: BTreeMap<Key, u32>,
    /// What is not declared in the types of this server: plurals, and the ways to fields.
    pruned: Vec<(String, Vec<String>)>,
    version: u64,
    began: Instant,
    skew: Skew,
    /// The uids of two clusters differ.
    cluster: String,
    /// Who changes objects now: a cluster, by its controller; empty: somebody else.
    pub(super) by: String,
    pub(super) journal: Journal,
}

impl Store {
    pub(super) fn new(cluster: &str, journal: Journal, skew: Skew) -> Self {
        Self {
            cluster: cluster.to_owned(),
            by: String::new(),
            journal,
            objects: BTreeMap::new(),
            changes: Vec::new(),
            made: BTreeMap::new(),
            pruned: Vec::new(),
            version: 100,
            began: Instant::now(),
            skew,
        }
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// The changes after a version.
    pub(super) fn since(&self, version: u64) -> impl Iterator<Item = &Arc<Change>> {
        let first = self.changes.partition_point(|change| change.version <= version);
        self.changes[first..].iter()
    }

    /// The objects of a kind in a cache that is so late, but has this version at least; and the version that it has.
    pub(super) fn cached(
        &self,
        plural: &'static str,
        late: Duration,
        least: u64,
    ) -> (u64, Vec<Arc<Value>>) {
        let now = Instant::now();
        let has = |one: &Arc<Change>| one.version <= least || one.at + late <= now;
        let known = self.changes.partition_point(has);
        let all = self.objects.range((plural, String::new(), String::new())..);
        let all = all.take_while(|((of, ..), _)| *of == plural);
        let mut all: BTreeMap<_, _> = all.map(|(key, stored)| (key, &stored.object)).collect();
        let unknown = &self.changes[known..];
        for change in unknown.iter().rev().filter(|change| change.key.0 == plural) {
            match &change.before {
                Some(before) => all.insert(&change.key, before),
                None => all.remove(&change.key),
            };
        }
        let version = unknown.first().map_or(self.version, |change| change.version - 1);
        (version, all.into_values().cloned().collect())
    }

    /// The types of a plural do not declare this field.
    pub(super) fn prune(&mut self, plural: &str, field: &str) {
        let way = field.split('.').map(str::to_owned).collect();
        self.pruned.push((plural.to_owned(), way));
    }

    /// All that there is, for somebody who brings it back later.
    pub(super) fn keep(&self) -> Kept {
        Kept { objects: self.objects.clone() }
    }

    /// Brings back what somebody has kept. Versions go on, as etcdutl restores with `--bump-revision`.
    pub(super) fn rewind(&mut self, kept: &Kept) {
        let former = mem::replace(&mut self.objects, kept.objects.clone());
        self.version += 1;
        let keys: BTreeSet<_> = former.keys().chain(kept.objects.keys()).collect();
        let of = |all: &BTreeMap<Key, Stored>, key| {
            all.get(key).map(|stored: &Stored| Arc::clone(&stored.object))
        };
        for key in keys {
            let (before, after) = (of(&former, key), of(&kept.objects, key));
            if before != after {
                self.note(key, before, after);
            }
        }
        self.changes.clear();
    }

    /// Forgets all but the latest changes. Returns the version after which it knows all.
    pub(super) fn compact(&mut self, left: usize) -> u64 {
        let gone = self.changes.len().saturating_sub(left);
        self.changes.drain(..gone).next_back().map_or(0, |change| change.version)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key).map(|stored| &stored.object)
    }

    /// The objects of a kind.
    pub(super) fn all(&self, plural: &'static str) -> impl Iterator<Item = (&Key, &Value)> {
        let all = self.objects.range((plural, String::new(), String::new())..);
        let all = all.take_while(move |((of, ..), _)| *of == plural);
        all.map(|(key, stored)| (key, &*stored.object))
    }

    /// Every API server has `default`, where events of the cluster's own objects are.
    pub(super) fn has_namespace(&self, name: &str) -> bool {
        name == "default" || self.get(&("namespaces", String::new(), name.to_owned())).is_some()
    }

    pub(super) fn note_arrival(&self, asked: &Asked, is_write: bool) {
        self.journal.note_arrival(&self.cluster, asked, is_write);
    }

    pub(super) fn note_request(
        &self,
        verb: &'static str,
        plural: &'static str,
        asked: &Asked,
        code: u16,
    ) {
        self.journal.note_request(&self.cluster, (verb, plural), asked, code);
    }

    /// How often an object was made.
    pub(super) fn made(&self, key: &Key) -> u32 {
        self.made.get(key).copied().unwrap_or_default()
    }

    /// Server-side apply, of the status alone or of all else.
    pub(super) fn apply(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        (manager, force): (&str, bool),
        fields: &Value,
        is_status: bool,
    ) -> Result<Arc<Value>, Failure> {
        let there = self.objects.get(key);
        if there.is_none() && is_status {
            return Err(not_found(key));
        }
        let mut object =
            there.map_or_else(|| empty(kind, key), |stored| Value::clone(&stored.object));
        let mut owners = there.map(|stored| Owners::clone(&stored.owners)).unwrap_or_default();
        let manager = if is_status { format!("{manager}/status") } else { manager.to_owned() };
        let fields = part(kind, fields, is_status);
        owners.apply(&mut object, &manager, &fields, force).map_err(|other| {
            (409, "Conflict", format!("Apply failed with 1 conflict: conflict with \"{other}\""))
        })?;
        Ok(self.put(kind, key, object, Arc::new(owners)))
    }

    /// Whether an object has not the fields that a manager would apply.
    pub(super) fn lacks(&self, kind: &Kind, key: &Key, fields: &Value, is_status: bool) -> bool {
        let Some(stored) = self.objects.get(key) else { return true };
        let mut object = Value::clone(&stored.object);
        let fields = part(kind, fields, is_status);
        Owners::default().apply(&mut object, "", &fields, true).is_ok() && object != *stored.object
    }

    /// Changes the given fields; those that are null go.
    pub(super) fn merge(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        fields: &Value,
        is_status: bool,
    ) -> Result<Arc<Value>, Failure> {
        let stored = self.objects.get(key).ok_or_else(|| not_found(key))?;
        let (mut object, owners) = (Value::clone(&stored.object), Arc::clone(&stored.owners));
        check_version(fields, &object)?;
        merge(&mut object, &part(kind, fields, is_status));
        Ok(self.put(kind, key, object, owners))
    }

    pub(super) fn create(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        object: &Value,
    ) -> Result<Arc<Value>, Failure> {
        if self.objects.contains_key(key) {
            let message = format!("{} \"{}\" already exists", key.0, key.2);
            return Err((409, "AlreadyExists", message));
        }
        Ok(self.put(kind, key, part(kind, object, false), Arc::default()))
    }

    /// Replaces all but the status.
    pub(super) fn replace(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        object: &Value,
    ) -> Result<Arc<Value>, Failure> {
        let stored = self.objects.get(key).ok_or_else(|| not_found(key))?;
        check_version(object, &stored.object)?;
        let mut fresh = part(kind, object, false);
        for field in ["uid", "creationTimestamp", "generation"] {
            fresh["metadata"][field] = stored.object["metadata"][field].clone();
        }
        if kind.has_status {
            fresh["status"] = stored.object["status"].clone();
        }
        // The controller clears who owns what with each replacement.
        Ok(self.put(kind, key, fresh, Arc::default()))
    }

    pub(super) fn delete(&mut self, key: &Key, uid: Option<&str>) -> Result<Arc<Value>, Failure> {
        let stored = self.objects.get(key).ok_or_else(|| not_found(key))?;
        if uid.is_some_and(|uid| stored.object["metadata"]["uid"] != uid) {
            return Err((409, "Conflict", "the uid is another one".to_owned()));
        }
        self.version += 1;
        let mut object = Value::clone(&stored.object);
        self.objects.remove(key);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        self.note(key, Some(Arc::clone(&object)), None);
        Ok(object)
    }

    /// Deletes what is in a namespace.
    pub(super) fn empty(&mut self, namespace: &str) {
        let keys: Vec<_> =
            self.objects.keys().filter(|(_, of, _)| of == namespace).cloned().collect();
        for key in keys {
            // It is there.
            let _ = self.delete(&key, None);
        }
    }

    fn put(
        &mut self,
        kind: &Kind,
        key: &Key,
        mut object: Value,
        owners: Arc<Owners>,
    ) -> Arc<Value> {
        let before = self.objects.get(key).map(|stored| Arc::clone(&stored.object));
        let made = self.made.entry(key.clone()).or_default();
        let skew = SignedDuration::from_millis(self.skew.load(Ordering::Relaxed));
        let passed = SignedDuration::try_from(self.began.elapsed()).unwrap_or_default();
        let now = SignedDuration::from_secs((passed + skew).as_secs());
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name);
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(key.2);
        if kind.is_namespaced {
            metadata["namespace"] = json!(key.1);
        }
        metadata.as_object_mut().map(|fields| fields.remove("managedFields"));
        if before.is_none() {
            *made += 1;
            metadata["uid"] =
                json!(format!("{}-{}-{}-{}-{made}", self.cluster, key.0, key.1, key.2));
            metadata["creationTimestamp"] = json!((beginning() + now).to_string());
            metadata["generation"] = json!(1);
        }
        for (_, way) in self.pruned.iter().filter(|(plural, _)| plural == key.0) {
            remove(&mut object, way);
        }
        if kind.name == "Service" {
            complete(&mut object, self.version);
        }
        if let Some(before) = &before {
            object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            if **before == object {
                return Arc::clone(before);
            }
            if before["spec"] != object["spec"] {
                let generation = before["metadata"]["generation"].as_u64().unwrap_or_default();
                object["metadata"]["generation"] = json!(generation + 1);
            }
        }
        if !self.by.is_empty()
            && let Some(refusal) = schema::refusal(kind, &object)
        {
            self.journal.note_malformed(refusal);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        self.objects.insert(key.clone(), Stored { object: Arc::clone(&object), owners });
        self.note(key, before, Some(Arc::clone(&object)));
        object
    }

    fn note(&mut self, key: &Key, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        let (version, key, at) = (self.version, key.clone(), Instant::now());
        let change = Arc::new(Change { version, at, key, before, after });
        self.journal.note_change(&self.cluster, &self.by, &change);
        self.changes.push(change);
    }
}

/// When every story begins.
pub(super) fn beginning() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 56)
}

/// Removes a field, from each entry of a list on the way.
fn remove(value: &mut Value, way: &[String]) {
    let Some((first, rest)) = way.split_first() else { return };
    match value {
        Value::Array(entries) => entries.iter_mut().for_each(|entry| remove(entry, way)),
        Value::Object(fields) if rest.is_empty() => drop(fields.remove(first)),
        Value::Object(fields) => {
            if let Some(below) = fields.get_mut(first) {
                remove(below, rest);
            }
        }
        _ => {}
    }
}

fn empty(kind: &Kind, (_, _, name): &Key) -> Value {
    json!({ "apiVersion": kind.api_version(), "kind": kind.name, "metadata": { "name": name } })
}

/// What a request can write: the status, or all else.
fn part(kind: &Kind, object: &Value, is_status: bool) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut().filter(|_| kind.has_status) {
        if is_status {
            fields.retain(|name, _| name == "status");
        } else {
            fields.remove("status");
        }
    }
    object
}

fn check_version(wanted: &Value, object: &Value) -> Result<(), Failure> {
    let version = &wanted["metadata"]["resourceVersion"];
    if version.is_string() && *version != object["metadata"]["resourceVersion"] {
        return Err((409, "Conflict", "the object has been modified".to_owned()));
    }
    Ok(())
}

fn not_found((plural, _, name): &Key) -> Failure {
    (404, "NotFound", format!("{plural} \"{name}\" not found"))
}

/// As RFC 7386.
fn merge(object: &mut Value, fields: &Value) {
    let Value::Object(fields) = fields else {
        object.clone_from(fields);
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(name));
        } else {
            merge(&mut object[name], value);
        }
    }
}

/// Gives a Service what an API server gives it.
fn complete(service: &mut Value, number: u64) {
    let spec = &mut service["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    let is_dual = spec["ipFamilyPolicy"].as_str().is_some_and(|policy| policy != "SingleStack");
    let families = if is_dual { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
    let number = number % 62_500;
    let ip = |family: &Value| match family.as_str() {
        Some("IPv6") => format!("fd96::{number:x}"),
        _ => format!("10.96.{}.{}", number / 250, number % 250),
    };
    for (field, value) in
        [("type", json!("ClusterIP")), ("sessionAffinity", json!("None")), ("ipFamilies", families)]
    {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    if spec["clusterIP"].is_null() {
        let ips: Vec<_> = spec["ipFamilies"].as_array().into_iter().flatten().map(ip).collect();
        spec["clusterIP"] = json!(ips.first());
        spec["clusterIPs"] = json!(ips);
    }
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if port["protocol"].is_null() {
            port["protocol"] = json!("TCP");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(store: &mut Store, name: &str, label: &str) -> Key {
        let (kind, key) = (Kind::named("Node").unwrap(), ("nodes", String::new(), name.to_owned()));
        let object =
            json!({ "metadata": { "labels": { "a": label } }, "spec": { "old": 1, "new": 2 } });
        store.apply(kind, &key, ("user", true), &object, false).unwrap();
        key
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_cache_has_what_there_was() {
        let mut store = Store::new("c1", Journal::default(), Skew::default());
        write(&mut store, "a", "1");
        tokio::time::advance(Duration::from_secs(10)).await;
        let version = store.version();
        write(&mut store, "a", "2");
        let gone = write(&mut store, "b", "1");
        store.delete(&gone, None).unwrap();
        let cached = |late, least| {
            let (version, all) = store.cached("nodes", Duration::from_secs(late), least);
            let labels = all.iter().map(|one| one["metadata"]["labels"]["a"].to_string());
            (version, labels.collect::<Vec<_>>())
        };
        assert_eq!(cached(5, 0), (version, vec!["\"1\"".to_owned()]));
        assert_eq!(cached(5, version + 2).1, ["\"2\"", "\"1\""], "at that version it was there");
        assert_eq!(cached(0, 0), (store.version(), vec!["\"2\"".to_owned()]));
    }

    #[tokio::test(start_paused = true)]
    async fn all_comes_back_as_it_was() {
        let mut store = Store::new("c1", Journal::default(), Skew::default());
        let key = write(&mut store, "a", "1");
        let kept = store.keep();
        let other = write(&mut store, "b", "1");
        write(&mut store, "a", "2");
        let version = store.version();
        store.rewind(&kept);
        assert!(store.version() > version);
        assert!(store.get(&other).is_none());
        assert_eq!(store.get(&key).unwrap()["metadata"]["labels"]["a"], "1");
        assert_eq!(store.since(0).count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_type_lacks_a_field() {
        let mut store = Store::new("c1", Journal::default(), Skew::default());
        store.prune("nodes", "spec.new");
        let key = write(&mut store, "a", "1");
        assert_eq!(store.get(&key).unwrap()["spec"], json!({ "old": 1 }));
    }
}
