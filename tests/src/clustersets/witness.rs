//! Sees all that happens in a played clusterset, and says when something is as it must never be.

mod broken;
#[cfg(test)]
mod tests;
mod truth;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(super) use self::broken::{Broken, Invariant};
use self::truth::{Truth, addresses, strings};
use super::{
    journal::{Entry, Journal, What},
    member::{MAILBOX, Member},
    store::Change,
};

const SERVICE: &str = "multicluster.kubernetes.io/service-name";
const SOURCE: &str = "multicluster.kubernetes.io/source-cluster";
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// A service: its namespace and its name.
type Name = (String, String);
/// What one cluster has of another one: the importer, the service, the exporter.
type Part = (String, Name, String);

/// A witness of one story.
#[derive(Debug, Default)]
pub(super) struct Witness {
    journal: Journal,
    judges: bool,
    /// Whether the journal keeps every line.
    keeps_lines: bool,
    /// What importers had when all had settled, and the endpoints: it stays until somebody takes it away at its source or
    /// forbids it.
    firm: BTreeMap<Part, BTreeSet<String>>,
    /// The addresses of imported slices, by part and slice.
    imported: BTreeMap<Part, BTreeMap<String, BTreeSet<String>>>,
    /// Whose import has an address, by cluster.
    taken: BTreeMap<(String, String), Name>,
    /// The reasons of conditions and of Events that were written.
    pub(super) reasons: BTreeSet<String>,
    /// What was written since all had settled; none: it may be written.
    writes: Option<Vec<String>>,
    /// How often all had settled, and what importers then had of exporters.
    pub(super) settled: (usize, usize),
}

impl Witness {
    /// A story begins, with this journal. One that was not drawn says itself what has to be there.
    pub(super) fn begin(&mut self, journal: Journal, is_drawn: bool) {
        (self.journal, self.judges) = (journal, is_drawn);
        if self.keeps_lines {
            self.journal.keep_lines();
        }
    }

    /// One whose journal keeps every line.
    pub(super) fn with_lines() -> Self {
        Self { keeps_lines: true, ..Self::default() }
    }

    pub(super) const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Looks at what has happened since the last time.
    pub(super) fn look(&mut self, _members: &BTreeMap<String, Member>) -> Result<(), Broken> {
        for entry in self.journal.take() {
            if self.judges {
                self.note(&entry)?;
            }
        }
        self.journal.malformed().map_or(Ok(()), |said| Err(Invariant::Form.broken(said)))
    }

    fn note(&mut self, entry: &Entry) -> Result<(), Broken> {
        match &entry.what {
            What::Asked { verb, plural, path, code } => {
                if let Some(writes) = &mut self.writes
                    && !entry.by.is_empty()
                    && !is_usual(plural)
                {
                    writes.push(format!("{} {verb} {path}: {code}", entry.by));
                }
                Ok(())
            }
            What::Changed(change) => self.note_change(entry, change),
        }
    }

    fn note_change(&mut self, entry: &Entry, change: &Change) -> Result<(), Broken> {
        let (cluster, is_own) = (&entry.cluster, !entry.by.is_empty());
        let (plural, namespace, name) = &change.key;
        let service = (namespace.clone(), name.clone());
        if is_own {
            self.note_reasons(change);
            if let Some(writes) = self.writes.as_mut().filter(|_| !is_usual(plural)) {
                writes.push(format!("{cluster} {plural} {namespace}/{name} has changed"));
            }
        }
        match *plural {
            "serviceimports" => return self.note_import(cluster, is_own, change),
            "endpointslices" if namespace != MAILBOX => {
                return self.note_slice(cluster, is_own, change);
            }
            "services"
                if field(change.before.as_ref(), "spec")
                    != field(change.after.as_ref(), "spec") =>
            {
                self.forget(|(_, of, _)| *of == service);
            }
            "serviceexports" => {
                let annotations = |object: Option<&Value>| {
                    object.map(|one| one["metadata"]["annotations"].clone())
                };
                if annotations(change.before.as_ref()) != annotations(change.after.as_ref()) {
                    self.forget(|(_, of, from)| *of == service && from == cluster);
                }
            }
            "namespaces" if change.after.is_none() => {
                self.forget(|(to, (of, _), from)| of == name && (to == cluster || from == cluster));
            }
            "clusterpeers" => {
                if field(change.before.as_ref(), "spec") != field(change.after.as_ref(), "spec") {
                    self.forget(|(to, ..)| to == cluster);
                } else if let (Some(writes), Some(before), Some(after)) =
                    (&mut self.writes, &change.before, &change.after)
                    && words(before) != words(after)
                {
                    writes.push(format!("{cluster} {name}: {}", words(after)));
                }
            }
            "nodes" => self.forget(|(to, ..)| to == cluster),
            _ => {}
        }
        Ok(())
    }

    fn note_reasons(&mut self, change: &Change) {
        let Some(object) = &change.after else { return };
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let reasons = conditions.chain([object]).filter_map(|one| one["reason"].as_str());
        // A condition may name several.
        self.reasons.extend(reasons.flat_map(|said| said.split(',')).map(str::to_owned));
    }

    fn note_import(&mut self, cluster: &str, is_own: bool, change: &Change) -> Result<(), Broken> {
        let (_, namespace, name) = &change.key;
        let service = (namespace.clone(), name.clone());
        let ips = |object: Option<&Value>| {
            strings(object.map_or(&Value::Null, |one| &one["spec"]["ips"]))
        };
        let (before, after) = (ips(change.before.as_ref()), ips(change.after.as_ref()));
        let is_headless =
            change.after.as_ref().is_some_and(|one| one["spec"]["type"] == "Headless");
        if is_own
            && change.after.is_some()
            && !is_headless
            && let Some(lost) = before.difference(&after).next()
        {
            return Err(Invariant::Address.broken(format!(
                "{cluster} takes {lost} from the import {namespace}/{name}, which now has {after:?}"
            )));
        }
        for ip in before.difference(&after) {
            let key = (cluster.to_owned(), ip.clone());
            if self.taken.get(&key) == Some(&service) {
                self.taken.remove(&key);
            }
        }
        for ip in after.difference(&before) {
            let other = self.taken.insert((cluster.to_owned(), ip.clone()), service.clone());
            if let Some((of, other)) = other.filter(|other| *other != service) {
                return Err(Invariant::Distinct.broken(format!(
                    "{cluster} has {ip} for {of}/{other} and {namespace}/{name}"
                )));
            }
        }
        if !is_own {
            // What somebody deletes comes back, and until then nothing of it is there.
            self.forget(|(to, of, _)| to == cluster && *of == service);
            return Ok(());
        }
        let of = |object: Option<&Value>| object.map(clusters).unwrap_or_default();
        let now = of(change.after.as_ref());
        let lost = self
            .firm
            .keys()
            .find(|(to, of, from)| to == cluster && *of == service && !now.contains(from));
        if let Some((_, _, from)) = lost {
            return Err(Invariant::Kept.broken(format!(
                "the import {namespace}/{name} of {cluster} no longer has {from}, which exports it"
            )));
        }
        Ok(())
    }

    fn note_slice(&mut self, cluster: &str, is_own: bool, change: &Change) -> Result<(), Broken> {
        let (_, namespace, slice) = &change.key;
        let label = |label: &str| {
            let of = |object: &Option<Value>| {
                object.as_ref()?["metadata"]["labels"][label].as_str().map(str::to_owned)
            };
            of(&change.after).or_else(|| of(&change.before))
        };
        let there = change.after.as_ref().map(addresses).unwrap_or_default();
        if let (Some(service), Some(from)) = (label(SERVICE), label(SOURCE)) {
            let part = (cluster.to_owned(), (namespace.clone(), service), from);
            let slices = self.imported.entry(part.clone()).or_default();
            if there.is_empty() {
                slices.remove(slice);
            } else {
                slices.insert(slice.clone(), there);
            }
            let all: BTreeSet<_> = slices.values().flatten().cloned().collect();
            let Some(firm) = self.firm.get_mut(&part) else { return Ok(()) };
            if !is_own {
                firm.retain(|address| all.contains(address));
            }
            if let Some(lost) = firm.difference(&all).next() {
                let (_, (_, service), from) = &part;
                return Err(Invariant::Kept.broken(format!(
                    "{cluster} no longer has the endpoint {lost} of {namespace}/{service} of {from}, where it is"
                )));
            }
        } else if let Some(service) = label(OF_SERVICE) {
            // Nothing moves between the slices of a drawn service.
            let gone = change.before.as_ref().map(addresses).unwrap_or_default();
            for ((_, of, from), firm) in &mut self.firm {
                if from == cluster && *of == (namespace.clone(), service.clone()) {
                    firm.retain(|address| there.contains(address) || !gone.contains(address));
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, is_meant: impl Fn(&Part) -> bool) {
        self.firm.retain(|part, _| !is_meant(part));
    }

    /// All faults have ended some time ago: everything has to be as its sources say.
    pub(super) fn settled(&mut self, members: &BTreeMap<String, Member>) -> Result<(), Broken> {
        let truth = Truth::of(members);
        truth.check(members)?;
        self.firm = truth.firm(members);
        self.writes = Some(Vec::new());
        self.settled = (self.settled.0 + 1, self.settled.1 + self.firm.len());
        Ok(())
    }

    /// Nothing was written since then.
    pub(super) fn still(&mut self, members: &BTreeMap<String, Member>) -> Result<(), Broken> {
        let writes = self.writes.take().unwrap_or_default();
        if !writes.is_empty() && !members.is_empty() {
            let first: Vec<_> = writes.iter().take(8).cloned().collect();
            let said = format!("{} writes, such as\n{}", writes.len(), first.join("\n"));
            return Err(Invariant::Still.broken(said));
        }
        Ok(())
    }
}

/// Whether something is written all the time: signs of life, and events of what lasts, each half an hour.
fn is_usual(plural: &str) -> bool {
    matches!(plural, "leases" | "clusterpeers" | "events")
}

fn field<'a>(object: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    object.map(|object| &object[name])
}

/// What a ClusterPeer says, without what passes.
fn words(peer: &Value) -> Value {
    let mut status = peer["status"].clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("lastContact");
    }
    status
}

/// The clusters of an import.
fn clusters(import: &Value) -> BTreeSet<String> {
    let all = import["status"]["clusters"].as_array().into_iter().flatten();
    all.filter_map(|one| one["cluster"].as_str()).map(str::to_owned).collect()
}
