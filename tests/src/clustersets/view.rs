//! What there is in the clusters of a story, as text.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value};

use super::{
    member::{Member, is_mailbox},
    step::Shown,
    store::{Key, Store},
};

/// A part of what is shown of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Part {
    /// The addresses of imports alone.
    Vips,
    Imports,
    Slices,
    Exports,
    Peers,
    Events,
    Mailbox,
    Services,
    Properties,
    Namespaces,
    Counts,
}

impl Part {
    /// The parts that an `expect` shows that names none.
    const USUAL: [Self; 3] = [Self::Imports, Self::Slices, Self::Exports];

    /// The part of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "vips" => Self::Vips,
            "imports" => Self::Imports,
            "slices" => Self::Slices,
            "exports" => Self::Exports,
            "peers" => Self::Peers,
            "events" => Self::Events,
            "mailbox" => Self::Mailbox,
            "services" => Self::Services,
            "properties" => Self::Properties,
            "namespaces" => Self::Namespaces,
            "counts" => Self::Counts,
            _ => return None,
        })
    }
}

const SERVICE: &str = "multicluster.kubernetes.io/service-name";
const SOURCE: &str = "multicluster.kubernetes.io/source-cluster";

/// Shows each event once.
#[derive(Default)]
pub(super) struct View {
    /// The version of each cluster up to which its events were shown.
    told: BTreeMap<String, u64>,
}

impl View {
    /// Shows no event that there is by now.
    pub(super) fn skip(&mut self, members: &BTreeMap<String, Member>) {
        let version = |member: &Member| member.server.look(Store::version);
        self.told = members.iter().map(|(id, member)| (id.clone(), version(member))).collect();
    }

    /// What there is of these clusters and parts.
    pub(super) fn of(&mut self, members: &BTreeMap<String, Member>, shown: &Shown) -> String {
        let mut text = String::new();
        for (id, member) in members {
            if !shown.clusters.is_empty() && !shown.clusters.contains(id) {
                continue;
            }
            let usual = || Part::USUAL.iter().copied().collect();
            let parts = if shown.parts.is_empty() { usual() } else { shown.parts.clone() };
            let lines = member.server.look(|store| {
                let mut lines = Vec::new();
                for part in parts {
                    self.part(part, (id, shown), store, &mut lines);
                }
                lines
            });
            let _ = writeln!(text, "{id}{}", if lines.is_empty() { ": nothing" } else { "" });
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
        text
    }

    fn part(
        &mut self,
        part: Part,
        (id, shown): (&str, &Shown),
        store: &Store,
        lines: &mut Vec<String>,
    ) {
        match part {
            Part::Vips => imports(store, shown, false, lines),
            Part::Imports => imports(store, shown, true, lines),
            Part::Slices => slices(store, shown, lines),
            Part::Exports => exports(store, shown, lines),
            Part::Peers => {
                for ((_, _, name), object) in store.all("clusterpeers") {
                    peer(name, object, lines);
                }
            }
            Part::Events => {
                let told = self.told.entry(id.to_owned()).or_default();
                for change in store.since(*told).filter(|change| change.key.0 == "events") {
                    lines.extend(change.after.as_deref().map(event));
                }
                *told = store.version();
            }
            Part::Mailbox => mailbox(store, lines),
            Part::Services => {
                for (key, object) in store.all("services") {
                    let labels = flow(&object["metadata"]["labels"]);
                    lines.push(format!("service {} {labels} {}", name(key), flow(&object["spec"])));
                }
            }
            Part::Properties => {
                for ((_, _, name), object) in store.all("clusterproperties") {
                    lines.push(format!("property {name} {}", text(&object["spec"]["value"])));
                }
            }
            Part::Counts => {
                for plural in ["exportedservices", "serviceimports"] {
                    lines.push(format!("{} {plural}", store.all(plural).count()));
                }
            }
            Part::Namespaces => {
                let names = store.all("namespaces").map(|((_, _, name), _)| name.as_str());
                lines.push(format!("namespaces {}", names.collect::<Vec<_>>().join(" ")));
            }
        }
    }
}

impl Shown {
    fn has(&self, (_, namespace, name): &Key) -> bool {
        self.has_service(&format!("{namespace}/{name}"))
    }

    fn has_service(&self, name: &str) -> bool {
        self.services.is_empty() || self.services.contains(name)
    }
}

fn imports(store: &Store, shown: &Shown, is_whole: bool, lines: &mut Vec<String>) {
    for (key, object) in store.all("serviceimports").filter(|(key, _)| shown.has(key)) {
        let spec = &object["spec"];
        let clusters = list(&object["status"]["clusters"], |one| text(&one["cluster"]));
        let from = if clusters.is_empty() { String::new() } else { format!(" from {clusters}") };
        lines.push(format!(
            "import {} {} {} {}{from}{}",
            name(key),
            text(&spec["type"]),
            list(&spec["ips"], text),
            list(&spec["ports"], port),
            again(store, key),
        ));
        if !is_whole {
            continue;
        }
        let rest = without(spec, &["type", "ips", "ports"]);
        lines.extend(rest.map(|rest| format!("  spec {rest}")));
        for field in ["labels", "annotations"] {
            let rest = without(&object["metadata"][field], &USUAL_LABELS);
            lines.extend(rest.map(|rest| format!("  {field} {rest}")));
        }
        conditions(object, lines);
    }
}

fn slices(store: &Store, shown: &Shown, lines: &mut Vec<String>) {
    let of = |object: &Value, label: &str| text(&object["metadata"]["labels"][label]);
    let is_imported = |object: &Value| object["metadata"]["labels"][SERVICE].is_string();
    let all = store.all("endpointslices");
    let mut imported: Vec<_> = all
        .filter(|((_, namespace, _), object)| !is_mailbox(namespace) && is_imported(object))
        .map(|(key, object)| (of(object, SERVICE), of(object, SOURCE), key, object))
        .collect();
    imported.sort_by_key(|(service, source, ..)| (service.clone(), source.clone()));
    for (service, source, key, object) in imported {
        if !shown.has_service(&format!("{}/{service}", key.1)) {
            continue;
        }
        let again = again(store, key);
        let (ports, endpoints) = endpoints(object);
        let labels = without(&object["metadata"]["labels"], &USUAL_LABELS);
        let labels = labels.map(|labels| format!("; labels {labels}")).unwrap_or_default();
        let name = format!("{}/{service}", key.1);
        lines.push(format!("slice {name} of {source}: {endpoints}; {ports}{labels}{again}"));
    }
}

/// The conditions that are true have their names alone: a healthy peer has all of them.
fn peer(name: &str, object: &Value, lines: &mut Vec<String>) {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let (good, bad): (Vec<_>, Vec<_>) = all.partition(|one| one["status"] == "True");
    let good: Vec<_> = good.into_iter().map(|one| text(&one["type"])).collect();
    let colon = if good.is_empty() { "" } else { ": " };
    lines.push(format!("peer {name}{colon}{}", good.join(", ")));
    lines.extend(bad.into_iter().map(condition));
}

fn exports(store: &Store, shown: &Shown, lines: &mut Vec<String>) {
    for (key, object) in store.all("serviceexports").filter(|(key, _)| shown.has(key)) {
        lines.push(format!("export {}{}", name(key), again(store, key)));
        conditions(object, lines);
    }
}

fn mailbox(store: &Store, lines: &mut Vec<String>) {
    for ((_, _, name), object) in store.all("exportedservices") {
        let spec = without(&object["spec"], &["created", "createdAt", "exportedAt"]);
        lines.push(format!("mailbox {name} {}", spec.unwrap_or_default()));
    }
    for ((_, namespace, _), object) in store.all("endpointslices") {
        if is_mailbox(namespace) {
            let (ports, endpoints) = endpoints(object);
            lines.push(format!("mailbox slice: {endpoints}; {ports}"));
        }
    }
    for ((_, namespace, name), object) in store.all("leases") {
        if is_mailbox(namespace) {
            let annotations = object["metadata"]["annotations"].as_object().cloned();
            let said: Map<_, _> = annotations.unwrap_or_default().into_iter().collect();
            let said = said.into_iter().filter_map(|(key, value)| {
                let last = key.rsplit('/').next().unwrap_or_default().to_owned();
                SAID.contains(&last.as_str()).then(|| format!("{last}={}", text(&value)))
            });
            lines.push(format!("mailbox {name}: {}", said.collect::<Vec<_>>().join(" ")));
        }
    }
}

/// What of the Lease of a mailbox does not change with each renewal.
const SAID: [&str; 6] =
    ["complete", "services", "failed", "refused", "lacking-namespaces", "drain"];
/// The labels of all that the controllers write.
const USUAL_LABELS: [&str; 4] =
    ["app.kubernetes.io/managed-by", "endpointslice.kubernetes.io/managed-by", SERVICE, SOURCE];
/// What a Service says that says nothing of itself.
const USUAL_SPEC: [(&str, &str); 2] =
    [("internalTrafficPolicy", "Cluster"), ("sessionAffinity", "None")];

/// The ports and the endpoints of a slice.
fn endpoints(slice: &Value) -> (String, String) {
    let endpoint = |one: &Value| {
        let mut said = text(&one["addresses"][0]);
        let conditions = &one["conditions"];
        if conditions["terminating"] == true {
            said += if conditions["serving"] == true { " draining" } else { " terminating" };
        } else if conditions["ready"] == false {
            said += " not ready";
        }
        for (field, word) in [("nodeName", "on"), ("zone", "in"), ("hostname", "as")] {
            if let Some(value) = one[field].as_str() {
                let _ = write!(said, " {word} {value}");
            }
        }
        if !one["hints"].is_null() {
            let _ = write!(said, " hints {}", flow(&one["hints"]));
        }
        said
    };
    let endpoints = list(&slice["endpoints"], endpoint);
    let none = if endpoints.is_empty() { "none".to_owned() } else { endpoints };
    (list(&slice["ports"], port), none)
}

fn conditions(object: &Value, lines: &mut Vec<String>) {
    lines.extend(object["status"]["conditions"].as_array().into_iter().flatten().map(condition));
}

fn condition(one: &Value) -> String {
    let message = masked(&text(&one["message"]));
    let colon = if message.is_empty() { "" } else { ": " };
    let [kind, status, reason] = [&one["type"], &one["status"], &one["reason"]].map(text);
    format!("  {kind}={status}/{reason}{colon}{message}")
}

fn event(object: &Value) -> String {
    let regarding = &object["regarding"];
    let said = [&object["type"], &regarding["kind"], &object["reason"]].map(text);
    let [kind, of, reason] = said;
    let name = match regarding["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", text(&regarding["name"])),
        None => text(&regarding["name"]),
    };
    format!("event {kind} {of} {name} {reason}: {}", masked(&text(&object["note"])))
}

fn port(port: &Value) -> String {
    let name = port["name"].as_str().filter(|name| !name.is_empty());
    let name = name.map(|name| format!("{name} ")).unwrap_or_default();
    let mut said = format!("{name}{}/{}", port["port"], text(&port["protocol"]));
    if let Some(protocol) = port["appProtocol"].as_str() {
        let _ = write!(said, " {protocol}");
    }
    said
}

fn name((_, namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

/// Whether somebody has deleted an object and it was made anew.
fn again(store: &Store, key: &Key) -> String {
    match store.made(key) {
        0 | 1 => String::new(),
        times => format!(" (made {times} times)"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(
        || if value.is_null() { String::new() } else { value.to_string() },
        str::to_owned,
    )
}

fn list(values: &Value, of: impl Fn(&Value) -> String) -> String {
    values.as_array().into_iter().flatten().map(of).collect::<Vec<_>>().join(", ")
}

/// The other fields of an object, if there are any, and none that say what is usual.
fn without(object: &Value, fields: &[&str]) -> Option<String> {
    let mut rest = object.as_object()?.clone();
    rest.retain(|name, value| {
        let is_usual = USUAL_SPEC.iter().any(|(field, usual)| name == field && *value == **usual);
        !is_usual && !fields.contains(&name.as_str())
    });
    (!rest.is_empty()).then(|| flow(&Value::Object(rest)))
}

/// As YAML writes it in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| format!("{name}: {}", flow(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(_) => format!("[{}]", list(value, flow)),
        other => masked(&text(other)),
    }
}

/// The text without times of day.
fn masked(text: &str) -> String {
    let is_time = |word: &str| {
        let word = word.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
        word.parse::<jiff::Timestamp>().is_ok()
    };
    let words = text.split(' ').map(|word| if is_time(word) { "TIME" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
