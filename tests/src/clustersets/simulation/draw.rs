//! Draws a history from a seed: what people and operators do to some clusters, and what goes wrong meanwhile.

use std::{collections::BTreeSet, fmt::Write as _};

use fastrand::Rng;
use serde_json::{Value, json};

use crate::clustersets::member::{place, secret};

/// A step of a drawn history, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Section {
    pub(super) marker: String,
    pub(super) body: String,
}

impl Section {
    /// The sorts of steps that it is one of.
    pub(super) fn sorts(&self) -> Vec<String> {
        let words: Vec<_> = self.marker.split(' ').collect();
        match words[..] {
            ["refuse", of, verb, plural, _, code] => {
                let of = format!("refuse {}, {code}", whose(of));
                vec![format!("refuse {verb}"), format!("refuse {plural}"), of]
            }
            [what, of] if FAILURES.contains(&what) => vec![format!("{what} {}", whose(of))],
            ["prunes", _, plural, field] => vec![format!("prunes {plural} {field}")],
            ["leads", of, _] => vec![format!("leads {}", whose(of))],
            ["gone" | "back" | "delete", _, kind, ..] => vec![format!("{} {kind}", words[0])],
            _ => vec![words[0].to_owned()],
        }
    }
}

/// The sorts of all steps that can be drawn.
pub(super) fn sorts() -> BTreeSet<String> {
    let deleted = KINDS.iter().map(|kind| format!("delete {kind}"));
    let types = TYPES.iter().flat_map(|kind| [format!("gone {kind}"), format!("back {kind}")]);
    let refused = VERBS.iter().chain(&PLURALS).map(|what| format!("refuse {what}"));
    let codes = CODES
        .iter()
        .flat_map(|(code, _)| ["c1", "c1/c2"].map(|of| format!("refuse {}, {code}", whose(of))));
    let pruned = PRUNED.iter().map(|(plural, field)| format!("prunes {plural} {field}"));
    let failures = FAILURES
        .iter()
        .chain(&["leads"])
        .flat_map(|what| ["c1", "c1/c2"].map(|of| format!("{what} {}", whose(of))));
    let plain = STEPS.iter().map(|step| (*step).to_owned());
    plain
        .chain(pruned)
        .chain(failures)
        .chain(deleted)
        .chain(types)
        .chain(refused)
        .chain(codes)
        .collect()
}

/// The answers that refusals lead to: verbs and codes.
pub(super) fn refusals() -> impl Iterator<Item = (&'static str, u16)> {
    let codes: BTreeSet<_> = CODES.iter().map(|(code, _)| *code).collect();
    let verbs = VERBS.iter().filter(|verb| **verb != "*");
    verbs.flat_map(move |verb| codes.clone().into_iter().map(|code| (*verb, code)))
}

const SPILL: &str = "traffic.clusterset.mcs-agent.io/spill";
const SELECTORS: &str = "traffic.clusterset.mcs-agent.io/cluster-selectors";
const NAMESPACES: [&str; 2] = ["shop", "cart"];
const NAMES: [&str; 3] = ["web", "api", "db"];
/// What a refusal can be about.
const PLURALS: [&str; 12] = [
    "exportedservices",
    "endpointslices",
    "leases",
    "serviceimports",
    "serviceexports",
    "services",
    "namespaces",
    "clusterpeers",
    "secrets",
    "events",
    "clusterproperties",
    "exportrules",
];
const VERBS: [&str; 8] = ["*", "list", "watch", "get", "create", "update", "patch", "delete"];
const CODES: [(u16, &str); 7] = [
    (403, "it is forbidden"),
    (403, "exceeded quota: objects, requested: 1, used: 3, limited: 3"),
    (500, "etcdserver: request timed out"),
    (429, "too many requests"),
    (401, "Unauthorized"),
    (422, "spec: Invalid value"),
    (504, "the request did not complete in time"),
];
/// The steps that are of one sort.
const STEPS: [&str; 28] = [
    "snapshot", "rewind", "rotate", "dies", "forges", "plain", "seed", "clusters", "hub",
    "replicas", "clock", "settle", "wait", "apply", "export", "unexport", "link", "answers",
    "forgets", "slow", "lag", "allow", "backup", "restore", "kill", "start", "restart", "end",
];
/// What becomes of an API server, for one reader or for all.
const FAILURES: [&str; 4] = ["away", "hangs", "loses", "repeats"];
/// What people and operators delete.
const KINDS: [&str; 7] = [
    "Service",
    "EndpointSlice",
    "ServiceImport",
    "ExportRule",
    "Namespace",
    "ClusterPeer",
    "Secret",
];
/// Types that an operator can take away.
const TYPES: [&str; 5] =
    ["ServiceExport", "ServiceImport", "ExportedService", "ClusterPeer", "ExportRule"];
/// What an older version of a type does not declare.
const PRUNED: [(&str, &str); 10] = [
    ("serviceimports", "spec.ipFamilies"),
    ("serviceimports", "spec.internalTrafficPolicy"),
    ("serviceimports", "spec.trafficDistribution"),
    ("serviceimports", "status.endpointSliceObjects"),
    ("serviceexports", "spec.exportedLabels"),
    ("exportedservices", "spec.trafficDistribution"),
    ("exportedservices", "spec.internalTrafficPolicy"),
    ("exportedservices", "spec.annotations"),
    ("clusterpeers", "status.lastContact"),
    ("clusterpeers", "spec.limits"),
];
/// How long it takes until all has settled, whatever was wrong.
const SETTLED: &str = "1800";

/// The history of a seed.
pub(super) fn history(seed: u64) -> Vec<Section> {
    let mut rng = Rng::with_seed(seed);
    let most = if rng.u32(..10) == 0 { 8 } else { 5 };
    let clusters: Vec<_> = (1..=rng.usize(2..=most)).map(|number| format!("c{number}")).collect();
    let mut draw = Draw { rng, sections: Vec::new(), clusters, hub: None, replicated: Vec::new() };
    draw.say(format!("seed {seed}"));
    draw.say(format!("clusters {}", draw.clusters.join(" ")));
    if draw.chance(25) {
        draw.little_room();
    }
    if draw.chance(25) {
        let hub = draw.cluster();
        draw.say(format!("hub {hub}"));
        draw.hub = Some(hub);
    }
    if draw.chance(25) {
        let count = draw.rng.usize(1..=draw.clusters.len());
        draw.replicated = draw.clusters[..count].to_vec();
        draw.say(format!("replicas {}", draw.replicated.join(" ")));
    }
    if draw.chance(15) {
        let of = draw.cluster();
        draw.say(format!("plain {of}"));
    }
    if draw.chance(20) {
        let (of, (plural, field)) = (draw.cluster(), draw.one(&PRUNED));
        draw.say(format!("prunes {of} {plural} {field}"));
    }
    for _ in 0..draw.rng.usize(1..=4) {
        for _ in 0..draw.rng.usize(0..6) {
            draw.person();
        }
        draw.say(format!("settle {SETTLED}"));
        for _ in 0..draw.rng.usize(..4) {
            draw.person();
            draw.wait();
        }
        for _ in 0..draw.rng.usize(3..25) {
            draw.step();
        }
    }
    draw.say(format!("settle {SETTLED}"));
    draw.sections
}

/// The text of a history.
pub(super) fn text(sections: &[Section]) -> String {
    let mut text = String::new();
    for Section { marker, body } in sections {
        let _ = write!(text, "-- {marker} --\n{body}");
    }
    text
}

/// Whose requests a fault is about, for `c1/c2` and `c1`.
fn whose(of: &str) -> &'static str {
    if of.contains('/') { "of a peer" } else { "of all" }
}

/// Selectors of clusters; `words` make them differ.
fn selectors(words: &str) -> String {
    let properties = json!({"matchProperties": {"weight.clusterset.mcs-agent.io": words}});
    json!([{"propertySelector": properties}, {}]).to_string()
}

struct Draw {
    rng: Rng,
    sections: Vec<Section>,
    clusters: Vec<String>,
    /// The cluster whose API server has all mailboxes.
    hub: Option<String>,
    /// The clusters whose controllers have two replicas.
    replicated: Vec<String>,
}

impl Draw {
    fn say(&mut self, marker: String) {
        self.sections.push(Section { marker, body: String::new() });
    }

    fn apply(&mut self, cluster: &str, objects: &[Value]) {
        let all: Vec<_> = objects.iter().map(ToString::to_string).collect();
        let body = all.join("\n---\n") + "\n";
        self.sections.push(Section { marker: format!("apply {cluster}"), body });
    }

    /// So few addresses that some services want the same.
    fn little_room(&mut self) {
        let marker = format!("restart {}", self.clusters.join(" "));
        self.sections.push(Section { marker, body: "--vip-cidr=241.0.0.0/28\n".to_owned() });
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    fn cluster(&mut self) -> String {
        self.clusters[self.rng.usize(..self.clusters.len())].clone()
    }

    /// Two clusters: one, and another one.
    fn pair(&mut self) -> (String, String) {
        let first = self.rng.usize(..self.clusters.len());
        let second = (first + self.rng.usize(1..self.clusters.len())) % self.clusters.len();
        (self.clusters[first].clone(), self.clusters[second].clone())
    }

    fn service(&mut self) -> (&'static str, &'static str) {
        let namespace = if self.chance(75) { NAMESPACES[0] } else { NAMESPACES[1] };
        (namespace, self.one(&NAMES))
    }

    fn addresses(&mut self, cluster: &str) -> Vec<String> {
        let number = &cluster[1..];
        let count = self.rng.usize(0..5);
        let first = self.rng.usize(1..5);
        (first..first + count).map(|last| format!("10.{number}.0.{last}")).collect()
    }

    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..30 => self.person(),
            30..38 => self.operator(),
            38..62 => self.fault(),
            62..70 => self.process(),
            _ => self.wait(),
        }
    }

    fn wait(&mut self) {
        // From a moment to some hours, short ones more often.
        let exponent = self.rng.f64().powi(2) * 6.0 - 2.0;
        self.say(format!("wait {:.2}", 10_f64.powf(exponent)));
    }

    /// What those do who own services.
    fn person(&mut self) {
        let cluster = self.cluster();
        let (namespace, name) = self.service();
        let service = format!("{namespace}/{name}");
        match self.rng.u32(..100) {
            0..40 => {
                let mut addresses = self.addresses(&cluster).join(" ");
                let body = match self.rng.u32(..18) {
                    0 => "sessionAffinity: ClientIP\n".to_owned(),
                    1 => "ports: [{name: http, port: 81, protocol: TCP}]\n".to_owned(),
                    2 => "ports: [{name: http, port: 80, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]\n"
                        .to_owned(),
                    3 => "clusterIP: None\n".to_owned(),
                    6 => "sessionAffinity: ClientIP\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}\n"
                        .to_owned(),
                    7 => "internalTrafficPolicy: Local\n".to_owned(),
                    8 => "trafficDistribution: PreferClose\n".to_owned(),
                    9 => "type: ExternalName\nexternalName: example.com\n".to_owned(),
                    4 | 5 => {
                        let number = &cluster[1..];
                        let _ = write!(addresses, " fd0{number}::{}", self.rng.usize(1..5));
                        "ipFamilyPolicy: PreferDualStack\n".to_owned()
                    }
                    _ => String::new(),
                };
                let marker = format!("export {cluster} {service} {}", addresses.trim());
                let marker = marker.trim_end().to_owned();
                self.sections.push(Section { marker, body });
            }
            40..55 => self.say(format!("unexport {cluster} {service}")),
            55..75 => {
                let addresses = self.addresses(&cluster);
                let ready = !self.chance(20);
                let endpoints: Vec<_> = addresses
                    .iter()
                    .map(|ip| json!({"addresses": [ip], "conditions": {"ready": ready}}))
                    .collect();
                let slice = json!({
                    "kind": "EndpointSlice",
                    "metadata": {
                        "namespace": namespace, "name": format!("{name}-ipv4"),
                        "labels": {"kubernetes.io/service-name": name},
                    },
                    "addressType": "IPv4",
                    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                    "endpoints": endpoints,
                });
                self.apply(&cluster, &[slice]);
            }
            75..80 => self.say(format!("delete {cluster} Service {service}")),
            80..84 => self.say(format!("delete {cluster} EndpointSlice {service}-ipv4")),
            84..88 => self.say(format!("delete {cluster} ServiceImport {service}")),
            88..93 => {
                let audience = if self.chance(50) {
                    self.clusters[0].clone()
                } else {
                    self.clusters.join(",")
                };
                let annotations = json!({"clusterset.mcs-agent.io/audience": audience});
                let metadata =
                    json!({"namespace": namespace, "name": name, "annotations": annotations});
                let words = self.one(&["one", "two"]);
                let spec = match self.rng.u32(..6) {
                    0 => json!({"exportedLabels": {"team": words}}),
                    1 => json!({"exportedAnnotations": {"team": words}}),
                    2 => json!({"exportedAnnotations": {SPILL: words}}),
                    3 => json!({"exportedAnnotations": {SELECTORS: selectors(words)}}),
                    _ => json!({}),
                };
                let export = json!({"kind": "ServiceExport", "metadata": metadata, "spec": spec});
                self.apply(&cluster, &[export]);
            }
            93..97 => {
                let rule = json!({"kind": "ExportRule", "metadata": {"namespace": namespace, "name": "all"}});
                self.apply(&cluster, &[rule]);
            }
            _ => self.say(format!("delete {cluster} ExportRule {namespace}/all")),
        }
    }

    /// What the operators of a cluster do.
    fn operator(&mut self) {
        let (cluster, peer) = self.pair();
        let namespace = self.one(&NAMESPACES);
        match self.rng.u32(..100) {
            0..25 => {
                let metadata = json!({"name": namespace});
                self.apply(&cluster, &[json!({"kind": "Namespace", "metadata": metadata})]);
            }
            25..32 => self.say(format!("delete {cluster} Namespace {namespace}")),
            32..45 => self.say(format!("delete {cluster} ClusterPeer {peer}")),
            45..70 => {
                let number = &peer[1..];
                let ranges = match self.rng.u32(..4) {
                    0 => json!([format!("10.{number}.0.0/30")]),
                    _ => json!([format!("10.{number}.0.0/16")]),
                };
                let (secret, mailbox) = place(&peer, self.hub.is_some());
                let mut spec = json!({
                    "clusterId": peer, "kubeconfigSecretRef": {"name": secret},
                    "mailbox": mailbox, "podCIDRs": ranges,
                });
                match self.rng.u32(..8) {
                    5 => spec["namespaces"] = json!({"deny": ["cart"]}),
                    6 => spec["clusterId"] = json!(cluster),
                    0 => spec["namespaces"] = json!({"allow": ["shop"]}),
                    1 => spec["weight"] = json!(10),
                    2 => {
                        spec["staleAfter"] = json!("30s");
                        spec["whenStale"] = json!("withdraw");
                    }
                    3 => spec["mailbox"] = json!("elsewhere"),
                    4 => spec["limits"] = json!({"services": 1}),
                    _ => {}
                }
                let metadata = json!({"name": peer});
                self.apply(
                    &cluster,
                    &[json!({"kind": "ClusterPeer", "metadata": metadata, "spec": spec})],
                );
            }
            70..80 => {
                let (namespace, (name, _)) = ("mcs-controller", place(&peer, self.hub.is_some()));
                if self.chance(50) {
                    self.say(format!("delete {cluster} Secret {namespace}/{name}"));
                } else {
                    self.apply(
                        &cluster,
                        &[json!({
                            "kind": "Secret", "metadata": {"namespace": namespace, "name": name},
                            "stringData": {"kubeconfig": "nonsense"},
                        })],
                    );
                }
            }
            80..83 => {
                let (number, last) = (&cluster[1..], self.rng.u32(1..4));
                let node = json!({
                    "kind": "Node", "metadata": {"name": format!("node-{last}")},
                    "spec": {"podCIDRs": [format!("10.{number}.{last}.0/24")]},
                    "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.{number}.{last}")}]},
                });
                self.apply(&cluster, &[node]);
            }
            83..85 => {
                let value = self.one(&["tests", "other"]);
                let metadata = json!({"name": "clusterset.k8s.io"});
                let property = json!({"kind": "ClusterProperty", "metadata": metadata, "spec": {"value": value}});
                self.apply(&cluster, &[property]);
            }
            85..87 => {
                let number = self.rng.u32(..1000);
                self.say(format!("forges {cluster} {number}"));
            }
            87..89 => {
                let peer = self.hub.clone().unwrap_or(peer);
                self.say(format!("rotate {cluster} {peer}"));
            }
            89..93 => match self.hub.clone() {
                Some(hub) => self.apply(&cluster, &[secret(&hub, &cluster, true)]),
                None => self.say(format!("link {cluster} {peer}")),
            },
            _ => {
                let name = self.one(&["weight", "drain"]);
                let value = if name == "weight" { self.one(&["10", "much"]) } else { "true" };
                let metadata = json!({"name": format!("{name}.clusterset.mcs-agent.io")});
                let property = json!({"kind": "ClusterProperty", "metadata": metadata, "spec": {"value": value}});
                self.apply(&cluster, &[property]);
            }
        }
    }

    /// What goes wrong.
    fn fault(&mut self) {
        let cluster = self.cluster();
        match self.rng.u32(..100) {
            0..28 => {
                let what = self.one(&FAILURES);
                let of = self.readers(cluster);
                self.say(format!("{what} {of}"));
            }
            28..40 => self.say(format!("answers {cluster}")),
            40..47 => self.say(format!("forgets {cluster}")),
            47..51 => {
                let seconds = self.one(&["0.5", "3", "20", "45"]);
                self.say(format!("slow {cluster} {seconds}"));
            }
            51..56 => {
                let seconds = self.one(&["0.5", "5", "60", "600"]);
                self.say(format!("lag {cluster} {seconds}"));
            }
            56..74 => {
                let (code, message) = self.one(&CODES);
                let (verb, plural) = (self.one(&VERBS), self.one(&PLURALS));
                let of = self.readers(cluster);
                let marker = format!("refuse {of} {verb} {plural} * {code}");
                self.sections.push(Section { marker, body: format!("{message}\n") });
            }
            74..84 => self.say(format!("allow {cluster}")),
            84..87 => {
                let kind = self.one(&TYPES);
                self.say(format!("gone {cluster} {kind}"));
            }
            87..90 => {
                let kind = self.one(&TYPES);
                self.say(format!("back {cluster} {kind}"));
            }
            90..92 => {
                let what = self.one(&["backup", "snapshot"]);
                self.say(format!("{what} {cluster}"));
            }
            92..94 => {
                let what = self.one(&["restore", "rewind"]);
                self.say(format!("{what} {cluster}"));
            }
            94..97 => {
                let ((cluster, other), reader) = (self.pair(), self.cluster());
                self.say(format!("leads {cluster}/{reader} {other}"));
            }
            _ => {
                let seconds = self.one(&["-86400", "-3600", "-40", "-2", "0", "2", "40", "3600"]);
                self.say(format!("clock {cluster} {seconds}"));
            }
        }
    }

    /// All requests to the API server of a cluster, or those of one controller.
    fn readers(&mut self, cluster: String) -> String {
        let by = self.cluster();
        let replica = self.replica(&by);
        if self.chance(50) { format!("{cluster}/{by}{replica}") } else { cluster }
    }

    /// What becomes of controllers.
    fn process(&mut self) {
        let cluster = self.cluster();
        let what = self.one(&["kill", "dies", "dies", "start", "restart", "end"]);
        let replica = self.replica(&cluster);
        if what != "dies" {
            self.say(format!("{what} {cluster}{replica}"));
        } else if replica.is_empty() && self.replicated.contains(&cluster) {
            self.say(format!("kill {cluster}"));
        } else {
            let writes = self.rng.u32(1..12);
            self.say(format!("dies {cluster}{replica} {writes}"));
        }
    }

    /// One of the replicas of a controller, or all.
    fn replica(&mut self, cluster: &str) -> &'static str {
        if self.replicated.iter().any(|one| one == cluster) {
            self.one(&["+a", "+b", "+a", "+b", ""])
        } else {
            ""
        }
    }
}
