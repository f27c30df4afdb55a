//! Sees all that happens in a played clusterset, and says when something is as it must never be.

mod broken;
#[cfg(test)]
mod tests;
mod truth;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

pub(super) use self::broken::{Broken, Invariant};
use self::truth::{Truth, addresses, strings};
use super::{
    journal::{Entry, Journal, What},
    member::{Member, is_mailbox},
    store::Change,
};

pub(super) const SERVICE: &str = "multicluster.kubernetes.io/service-name";
/// How long a withdrawn endpoint may stay in imports while nothing is wrong.
const PROMPT: Duration = Duration::from_secs(10);
const SOURCE: &str = "multicluster.kubernetes.io/source-cluster";
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// A service: its namespace and its name.
type Name = (String, String);
/// What one cluster has of another one: the importer, the service, the exporter.
type Part = (String, Name, String);

/// What one cluster had of a service.
#[derive(Debug, Default)]
struct Source {
    is_exported: bool,
    addresses: BTreeSet<String>,
}

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
    /// What each cluster has exported since all had settled, and the addresses of its services.
    sources: BTreeMap<(String, Name), Source>,
    /// The importers that have begun since then, or whose peers have changed: they know less.
    fresh: BTreeSet<String>,
    /// The clusters that have forged what is in their mailboxes since then.
    hostile: BTreeSet<String>,
    /// Whether nothing has gone wrong since then.
    is_calm: bool,
    /// When importers have to have taken withdrawn endpoints away.
    leaving: BTreeMap<(Part, String), Instant>,
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

    /// The controller of a cluster begins or ends.
    pub(super) fn note_process(&mut self, cluster: &str) {
        self.fresh.insert(cluster.to_owned());
    }

    /// Something goes wrong from now on.
    pub(super) fn note_trouble(&mut self) {
        self.is_calm = false;
        self.leaving.clear();
    }

    /// A cluster forges what is in its mailbox. What others have of it is as it says, and so are services that it exports too.
    pub(super) fn note_hostile(&mut self, cluster: &str) {
        self.hostile.insert(cluster.to_owned());
        let of: BTreeSet<_> = self.sources.keys().filter(|(from, _)| from == cluster).collect();
        let of: BTreeSet<_> = of.into_iter().map(|(_, service)| service.clone()).collect();
        self.forget(|(_, service, from)| from == cluster || of.contains(service));
    }

    /// Looks at what has happened since the last time.
    pub(super) fn look(&mut self, now: Instant) -> Result<(), Broken> {
        for entry in self.journal.take() {
            if self.judges {
                self.note(&entry)?;
            }
        }
        let late = self.leaving.iter().find(|(_, due)| **due < now);
        if let Some((((to, (namespace, name), from), address), _)) = late {
            return Err(Invariant::Prompt.broken(format!(
                "{to} still has the endpoint {address} of {namespace}/{name} of {from}"
            )));
        }
        let malformed = self.journal.malformed().map(|said| Invariant::Form.broken(said));
        let rival = self.journal.rival().map(|said| Invariant::Single.broken(said));
        let storm = self.journal.storm().map(|said| Invariant::Calm.broken(said));
        malformed.or(rival).or(storm).map_or(Ok(()), Err)
    }

    /// Endpoints of a cluster are withdrawn at this time: all, or those that `is_gone`.
    fn note_leaving(
        &mut self,
        (cluster, service): (&str, &Name),
        at: Instant,
        is_gone: impl Fn(&str) -> bool,
    ) {
        if !self.is_calm {
            return;
        }
        for (part, firm) in &self.firm {
            if part.1 == *service && part.2 == cluster {
                let there =
                    self.imported.get(part).into_iter().flat_map(BTreeMap::values).flatten();
                for address in there.chain(firm).filter(|address| is_gone(address)) {
                    self.leaving.entry((part.clone(), address.clone())).or_insert(at + PROMPT);
                }
            }
        }
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
            "endpointslices" if !is_mailbox(namespace) => {
                return self.note_slice(cluster, is_own, change);
            }
            "services"
                if field(change.before.as_deref(), "spec")
                    != field(change.after.as_deref(), "spec") =>
            {
                self.forget(|(_, of, _)| *of == service);
            }
            "secrets" => drop(self.fresh.insert(cluster.clone())),
            "serviceexports" => {
                if change.after.is_some() {
                    self.source(cluster, &service).is_exported = true;
                    let of = |part: &Part| part.1 == service && part.2 == *cluster;
                    self.leaving.retain(|(part, _), _| !of(part));
                } else {
                    self.note_leaving((cluster, &service), change.at, |_| true);
                }
                let annotations = |object: Option<&Value>| {
                    object.map(|one| one["metadata"]["annotations"].clone())
                };
                if annotations(change.before.as_deref()) != annotations(change.after.as_deref()) {
                    self.forget(|(_, of, from)| *of == service && from == cluster);
                }
            }
            "namespaces" if change.after.is_none() => {
                self.forget(|(to, (of, _), from)| of == name && (to == cluster || from == cluster));
            }
            "clusterpeers" => {
                if field(change.before.as_deref(), "spec") != field(change.after.as_deref(), "spec")
                {
                    self.fresh.insert(cluster.clone());
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
        let Some(object) = change.after.as_deref() else { return };
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
        let (before, after) = (ips(change.before.as_deref()), ips(change.after.as_deref()));
        // An address goes with its family, which no cluster exports any more.
        let families =
            strings(&field(change.after.as_deref(), "spec").map_or(Value::Null, |spec| {
                if spec["type"] == "Headless" { Value::Null } else { spec["ipFamilies"].clone() }
            }));
        let stays =
            |ip: &&String| families.contains(if ip.contains(':') { "IPv6" } else { "IPv4" });
        if is_own && let Some(lost) = before.difference(&after).find(stays) {
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
        let (former, now) = (of(change.before.as_deref()), of(change.after.as_deref()));
        for from in now.difference(&former) {
            let part = (cluster.to_owned(), service.clone(), from.clone());
            let has_slices = self.imported.get(&part).is_some_and(|slices| !slices.is_empty());
            let source = self.sources.get(&(from.clone(), service.clone()));
            let is_exported = source.is_some_and(|source| source.is_exported);
            if !is_exported && !has_slices && self.knows(cluster, from) {
                return Err(Invariant::Returned.broken(format!(
                    "the import {namespace}/{name} of {cluster} has {from}, which does not export it"
                )));
            }
        }
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
            let of = |object: Option<&Value>| {
                object?["metadata"]["labels"][label].as_str().map(str::to_owned)
            };
            of(change.after.as_deref()).or_else(|| of(change.before.as_deref()))
        };
        let there = change.after.as_deref().map(addresses).unwrap_or_default();
        if let (Some(service), Some(from)) = (label(SERVICE), label(SOURCE)) {
            let part = (cluster.to_owned(), (namespace.clone(), service), from);
            let of_source = self.sources.get(&(part.2.clone(), part.1.clone()));
            let has =
                |address: &&String| of_source.is_some_and(|of| of.addresses.contains(*address));
            let former = change.before.as_deref().map(addresses).unwrap_or_default();
            let returned = there.difference(&former).find(|address| !has(address));
            if let Some(address) = returned.filter(|_| is_own && self.knows(cluster, &part.2)) {
                return Err(Invariant::Returned.broken(format!(
                    "{cluster} has the endpoint {address} of {namespace}/{} of {}, which has none",
                    part.1.1, part.2
                )));
            }
            let slices = self.imported.entry(part.clone()).or_default();
            if there.is_empty() {
                slices.remove(slice);
            } else {
                slices.insert(slice.clone(), there);
            }
            let all: BTreeSet<_> = slices.values().flatten().cloned().collect();
            let is_late = |(of, address): &(Part, String), due: &mut Instant| {
                *of == part && !all.contains(address) && change.at <= *due
            };
            self.leaving.extract_if(.., is_late).for_each(drop);
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
            let service = (namespace.clone(), service);
            self.source(cluster, &service).addresses.extend(there.iter().cloned());
            // Nothing moves between the slices of a drawn service.
            let gone = change.before.as_deref().map(addresses).unwrap_or_default();
            self.leaving.retain(|(part, address), _| {
                part.1 != service || part.2 != *cluster || !there.contains(address)
            });
            let is_gone = |address: &str| gone.contains(address) && !there.contains(address);
            self.note_leaving((cluster, &service), change.at, is_gone);
            for ((_, of, from), firm) in &mut self.firm {
                if from == cluster && *of == service {
                    firm.retain(|address| there.contains(address) || !gone.contains(address));
                }
            }
        }
        Ok(())
    }

    /// Whether an importer can know what an exporter has withdrawn.
    fn knows(&self, importer: &str, exporter: &str) -> bool {
        !self.fresh.contains(importer) && !self.hostile.contains(exporter)
    }

    fn source(&mut self, cluster: &str, service: &Name) -> &mut Source {
        self.sources.entry((cluster.to_owned(), service.clone())).or_default()
    }

    fn forget(&mut self, is_meant: impl Fn(&Part) -> bool) {
        self.firm.retain(|part, _| !is_meant(part));
    }

    /// All faults have ended some time ago: everything has to be as its sources say.
    pub(super) fn settled(&mut self, members: &BTreeMap<String, Member>) -> Result<(), Broken> {
        let truth = Truth::of(members);
        truth.check(members)?;
        self.firm = truth.firm(members);
        self.fresh.clear();
        self.hostile.clear();
        self.leaving.clear();
        self.is_calm = true;
        self.sources = sources(members);
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

/// What all clusters have now.
fn sources(members: &BTreeMap<String, Member>) -> BTreeMap<(String, Name), Source> {
    let mut sources: BTreeMap<_, Source> = BTreeMap::new();
    for (cluster, member) in members {
        member.server.look(|store| {
            for ((_, namespace, name), _) in store.all("serviceexports") {
                let service = (namespace.clone(), name.clone());
                sources.entry((cluster.clone(), service)).or_default().is_exported = true;
            }
            for ((_, namespace, _), slice) in store.all("endpointslices") {
                let labels = &slice["metadata"]["labels"];
                if let (Some(of), None) = (labels[OF_SERVICE].as_str(), labels[SERVICE].as_str()) {
                    let service = (namespace.clone(), of.to_owned());
                    let source = sources.entry((cluster.clone(), service)).or_default();
                    source.addresses.extend(addresses(slice));
                }
            }
        });
    }
    sources
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
