//! Random objects in random order, from the bytes of manifests to the maps.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use mcs_agent::core::engine::REFUSED_FOR;
use mcs_agent::core::{
    model::{Capacity, NodeContext, NodeFacts},
    source::ReadFrom,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{Backing, Faults, agent::Agent, node::Node};

/// Files that come and go.
const FILES: [&str; 4] = ["a.json", "b.yaml", "c.yml", "d.json"];
/// The file of the bystander: a service that no other object may affect.
const BYSTANDER: &str = "bystander.json";
const BYSTANDER_VIP: &str = "10.0.0.9";
const BYSTANDER_PODS: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
/// What clients of the bystander find.
const BYSTANDER_VIEW: &str =
    "  80/TCP bystander/web\n    10.9.0.1:8080 home\n    10.9.0.2:8080 home\n";

/// Addresses that objects contend for, as VIPs and as endpoints. The bystander's pods are endpoints
/// only: whoever may import their addresses as VIPs takes them away.
const VIPS: [&str; 7] =
    ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "10.0.0.66", BYSTANDER_VIP];
const PODS: [&str; 6] = ["10.1.0.1", "10.1.0.2", "fd01::1", "10.0.0.1", "10.9.0.1", "fd01::2"];
/// What is none.
const WRONG: [&str; 12] = [
    "127.0.0.1",
    "::1",
    "::",
    "::ffff:10.0.0.1",
    "255.255.255.255",
    "224.0.0.1",
    "fe80::1",
    "10.0.0.1/32",
    " 10.0.0.1",
    "010.0.0.1",
    "web",
    "",
];
const NAMES: [&str; 5] = ["web", "api", "db", "web-1", "x"];
const NAMESPACES: [&str; 3] = ["shop", "other", "default"];
const CLUSTERS: [&str; 4] = ["east", "west", "north", "home"];

/// One of the manifests.
#[derive(Clone, Debug)]
enum Text {
    /// JSON, which is YAML too.
    Objects(Vec<Value>),
    /// Something else.
    Bytes(Vec<u8>),
    /// The former, cut short.
    Cut(Vec<Value>, prop::sample::Index),
}

impl Text {
    fn bytes(&self) -> Vec<u8> {
        let list = |objects: &[Value]| match objects {
            [one] => one.to_string(),
            _ => json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string(),
        };
        match self {
            Self::Objects(objects) => list(objects).into_bytes(),
            Self::Bytes(bytes) => bytes.clone(),
            Self::Cut(objects, at) => {
                let mut bytes = list(objects).into_bytes();
                bytes.truncate(at.index(bytes.len()));
                bytes
            }
        }
    }

    const fn is_whole(&self) -> bool {
        matches!(self, Self::Objects(_))
    }
}

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    Write(&'static str, Text),
    Delete(&'static str),
    TryOnce,
    Settle,
    Restart,
    Crash,
}

/// A node, and what happens on it.
#[derive(Clone, Debug)]
pub(super) struct Story {
    capacity: Capacity,
    fault_per_mille: u16,
    seed: u64,
    steps: Vec<Step>,
}

/// Room for everything that these objects can ask for, or hardly for any.
const AMPLE: Capacity =
    Capacity { vips: 256, frontends: 256, endpoints: 4096, clusters: 16, imports: 256 };

impl Story {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let tight =
            (4..12_u32, 4..16_u32, 1..4_u32).prop_map(|(frontends, endpoints, clusters)| {
                Capacity { vips: frontends, frontends, endpoints, clusters, imports: frontends }
            });
        let capacity = prop_oneof![Just(AMPLE), tight];
        let faults = prop_oneof![3 => Just(0_u16), 1 => Just(100)];
        (capacity, faults, any::<u64>(), vec(step(), 1..14)).prop_map(
            |(capacity, fault_per_mille, seed, steps)| Self {
                capacity,
                fault_per_mille,
                seed,
                steps,
            },
        )
    }

    /// Plays the events. Nothing panics, each frontend is consistent after every write, the bystander is always served,
    /// and in the end the maps equal those of an agent that starts now.
    pub(super) fn play<M: Backing>(
        &self,
        new_maps: &impl Fn(Capacity) -> anyhow::Result<M>,
        first: Capacity,
    ) -> anyhow::Result<()> {
        let directory = TempDir::with_prefix("mcs-objects-")?;
        fs::write(directory.path().join(BYSTANDER), bystander().to_string())?;
        let first = (self.seed % 2 == 1).then_some(first);
        let faults = Faults { per_mille: self.fault_per_mille, seed: self.seed, first };
        let mut agent = self.start(directory.path(), new_maps, faults)?;
        agent.settle()?;
        for (nth, step) in self.steps.iter().enumerate() {
            step.take(directory.path(), &mut agent).with_context(|| format!("step {nth}"))?;
            assert_unharmed(&agent).with_context(|| format!("after step {nth}"))?;
        }
        // What cannot be read keeps its last content, which only this agent knows.
        for file in FILES {
            let last = self.steps.iter().rev().find_map(|step| match step {
                Step::Write(written, text) if *written == file => Some(text.is_whole()),
                _ => None,
            });
            if last == Some(false) {
                let _ = fs::remove_file(directory.path().join(file));
            }
        }
        agent.settle()?;
        // The fresh agent knows no VIP that has gone.
        agent.wait(REFUSED_FOR);
        agent.settle()?;
        assert_unharmed(&agent)?;
        if self.capacity != AMPLE || !agent.engine.source().problems.is_empty() {
            // What was there first has the room.
            return Ok(());
        }
        let mut fresh = self.start(directory.path(), new_maps, Faults::default())?;
        fresh.settle()?;
        // Clients of frontends that no endpoint serves stay for a while.
        fresh.wait(REFUSED_FOR);
        fresh.settle()?;
        let (found, expected) = (agent.view()?.to_string(), fresh.view()?.to_string());
        ensure!(found == expected, "there is\n{found}\ninstead of\n{expected}");
        ensure!(agent.engine.desired() == fresh.engine.desired(), "other things are wanted");
        Ok(())
    }

    fn start<M: Backing>(
        &self,
        directory: &Path,
        new_maps: impl FnOnce(Capacity) -> anyhow::Result<M>,
        faults: Faults,
    ) -> anyhow::Result<Agent<M>> {
        let context = NodeContext {
            node_name: Some("n1".to_owned()),
            facts: NodeFacts {
                zone: Some("z1".to_owned()),
                cluster_id: Some("home".to_owned()),
                service_ranges: Some(["10.0.0.1/32".parse()?, "fd00::1/128".parse()?].into()),
                ..NodeFacts::default()
            },
            node_addresses: [[10, 0, 0, 66].into()].into(),
            capacity: self.capacity,
            ..NodeContext::default()
        };
        let node = Node { context, reads: ReadFrom::default() };
        Agent::start(directory.to_owned(), node, new_maps, faults)
    }
}

impl Step {
    fn take<M: Backing>(&self, directory: &Path, agent: &mut Agent<M>) -> anyhow::Result<()> {
        match self {
            Self::Write(file, text) => Ok(fs::write(directory.join(file), text.bytes())?),
            Self::Delete(file) => {
                // It may not be there.
                let _ = fs::remove_file(directory.join(file));
                Ok(())
            }
            Self::TryOnce => agent.try_once(),
            Self::Settle => agent.settle(),
            Self::Restart => agent.restart(),
            Self::Crash => agent.crash(),
        }
    }
}

fn assert_unharmed<M: Backing>(agent: &Agent<M>) -> anyhow::Result<()> {
    let view = agent.view()?.to_string();
    let rest = view.split_once(&format!("vip {BYSTANDER_VIP}\n")).map(|(_, rest)| rest);
    let rest = rest.and_then(|rest| rest.split_once(BYSTANDER_VIEW)).map(|(_, rest)| rest);
    // Another backend would follow.
    let unaffected = rest.is_some_and(|rest| !rest.starts_with("    "));
    ensure!(unaffected, "the bystander is not served as before:\n{view}");
    Ok(())
}

/// A service that is older than all others.
fn bystander() -> Value {
    let endpoints = BYSTANDER_PODS.map(|ip| json!({"addresses": [ip]}));
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceImport",
            "metadata": {
                "namespace": "bystander", "name": "web", "creationTimestamp": "2000-01-01T00:00:00Z",
            },
            "spec": {"type": "ClusterSetIP", "ips": [BYSTANDER_VIP], "ports": [{"port": 80}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": "bystander", "name": "web-home", "labels": {
                "multicluster.kubernetes.io/service-name": "web",
                "multicluster.kubernetes.io/source-cluster": "home",
            }},
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"port": 8080}],
        },
    ]})
}

fn step() -> impl Strategy<Value = Step> {
    let file = || select(FILES.as_slice());
    prop_oneof![
        8 => (file(), text()).prop_map(|(file, text)| Step::Write(file, text)),
        2 => file().prop_map(Step::Delete),
        2 => Just(Step::TryOnce),
        3 => Just(Step::Settle),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

fn text() -> impl Strategy<Value = Text> {
    let objects = || vec(prop_oneof![3 => object(), 2 => distorted()], 0..5);
    prop_oneof![
        12 => objects().prop_map(Text::Objects),
        1 => (objects(), any::<prop::sample::Index>()).prop_map(|(objects, at)| Text::Cut(objects, at)),
        1 => vec(any::<u8>(), 0..200).prop_map(Text::Bytes),
        1 => select(HOSTILE.as_slice()).prop_map(|text| Text::Bytes(text.into())),
    ]
}

/// Manifests that others would choke on.
const HOSTILE: [&str; 9] = [
    "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
     d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "---\n---\n...\n---\nnull\n",
    "&a *a",
    "apiVersion: v1\nkind: List\nitems: &a\n- *a\n",
    "kind: ServiceImport\nkind: ServiceImport\n",
    "\u{feff}{}",
    "%YAML 9.9\n---\n!!binary x\n",
    "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":{}}",
];

fn one_of(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(values).prop_map(str::to_owned)
}

fn address(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![9 => one_of(values), 1 => one_of(&WRONG)]
}

fn object() -> impl Strategy<Value = Value> {
    prop_oneof![import(), slice()]
}

fn import() -> impl Strategy<Value = Value> {
    let version = select(vec!["v1beta1", "v1beta1", "v1alpha1", "v1"]);
    let port = (
        option::of(one_of(&["", "http", "dns"])),
        select(vec![53, 80, 81, 8080, 65535]),
        option::of(one_of(&["TCP", "UDP", "SCTP", "tcp"])),
    )
        .prop_map(|(name, port, protocol)| {
            filled(json!({"port": port}), [("name", name), ("protocol", protocol)])
        });
    (
        version,
        (one_of(&NAMESPACES), one_of(&NAMES)),
        option::of(one_of(&["2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "soon"])),
        vec(address(&VIPS), 0..3),
        vec(port, 0..4),
        prop_oneof![9 => Just("ClusterSetIP"), 1 => Just("Headless")],
        option::weighted(0.2, one_of(&["None", "ClientIP", "Always"])),
        option::weighted(0.2, one_of(&["Cluster", "Local", "Nearby"])),
    )
        .prop_map(
            |(version, (namespace, name), created, ips, ports, kind, affinity, policy)| {
                let metadata = json!({"namespace": namespace, "name": name});
                let spec = json!({"type": kind, "ips": ips, "ports": ports});
                json!({
                    "apiVersion": format!("multicluster.x-k8s.io/{version}"),
                    "kind": "ServiceImport",
                    "metadata": filled(metadata, [("creationTimestamp", created)]),
                    "spec": filled(
                        spec,
                        [("sessionAffinity", affinity), ("internalTrafficPolicy", policy)],
                    ),
                })
            },
        )
}

fn slice() -> impl Strategy<Value = Value> {
    let endpoint = (
        vec(address(&PODS), 0..3),
        option::of(any::<bool>()),
        option::of(any::<bool>()),
        option::of(one_of(&["n1", "n2"])),
        option::weighted(0.2, one_of(&["z1", "z2"])),
    )
        .prop_map(|(addresses, ready, terminating, node, zone)| {
            let mut endpoint = filled(json!({"addresses": addresses}), [("nodeName", node)]);
            endpoint["conditions"] = json!({"ready": ready, "terminating": terminating});
            if let Some(zone) = zone {
                endpoint["hints"] = json!({"forZones": [{"name": zone}]});
            }
            endpoint
        });
    let port = (
        option::of(one_of(&["", "http", "dns"])),
        option::of(select(vec![53, 80, 8080, 0, 65536])),
        option::of(one_of(&["TCP", "UDP"])),
    )
        .prop_map(|(name, port, protocol)| {
            filled(json!({"port": port}), [("name", name), ("protocol", protocol)])
        });
    (
        (one_of(&NAMESPACES), one_of(&["s1", "s2", "s3", "s4"])),
        option::weighted(0.9, one_of(&NAMES)),
        option::of(one_of(&CLUSTERS)),
        select(vec!["IPv4", "IPv4", "IPv6", "FQDN"]),
        vec(endpoint, 0..6),
        vec(port, 0..4),
    )
        .prop_map(|((namespace, name), service, cluster, addresses, endpoints, ports)| {
            let labels = filled(
                json!({}),
                [
                    ("multicluster.kubernetes.io/service-name", service),
                    ("multicluster.kubernetes.io/source-cluster", cluster),
                ],
            );
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"namespace": namespace, "name": name, "labels": labels},
                "addressType": addresses,
                "endpoints": endpoints,
                "ports": ports,
            })
        })
}

/// The object with those of the fields that have a value.
fn filled<const N: usize>(mut object: Value, fields: [(&str, Option<String>); N]) -> Value {
    for (name, value) in fields {
        if let Some(value) = value {
            object[name] = value.into();
        }
    }
    object
}

/// An object some of whose fields are gone, or are something else.
fn distorted() -> impl Strategy<Value = Value> {
    let distortion = (any::<prop::sample::Index>(), option::weighted(0.8, strange()));
    (object(), vec(distortion, 1..4)).prop_map(|(mut object, distortions)| {
        for (place, strange) in distortions {
            let mut paths = Vec::new();
            list_paths(&object, String::new(), &mut paths);
            distort(&mut object, &paths[place.index(paths.len())], strange);
        }
        // What is in the bystander's namespace may say what becomes of it.
        if object.pointer("/metadata/namespace").is_some_and(|namespace| namespace == "bystander") {
            object["metadata"]["namespace"] = "shop".into();
        }
        object
    })
}

/// JSON pointers to everything in a value but itself; to itself where there is nothing.
fn list_paths(value: &Value, path: String, paths: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                list_paths(field, format!("{path}/{name}"), paths);
            }
        }
        Value::Array(items) => {
            for (nth, item) in items.iter().enumerate() {
                list_paths(item, format!("{path}/{nth}"), paths);
            }
        }
        _ => {}
    }
    if !path.is_empty() || paths.is_empty() {
        paths.push(path);
    }
}

/// Puts something strange at a place, or removes what is there.
fn distort(object: &mut Value, path: &str, strange: Option<Value>) {
    if let Some(strange) = strange {
        if let Some(value) = object.pointer_mut(path) {
            *value = strange;
        }
    } else if let Some((parent, name)) = path.rsplit_once('/')
        && let Some(Value::Object(fields)) = object.pointer_mut(parent)
    {
        fields.remove(&name.replace("~1", "/").replace("~0", "~"));
    }
}

fn strange() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        select(vec![-1, 0, 65_536, i64::MAX, i64::MIN]).prop_map(Value::from),
        select(vec![0.5, -1e300, f64::MAX]).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        one_of(&WRONG).prop_map(Value::from),
        one_of(&["10.0.0.1", "fd00::1", "shop", "web", "IPv4", "TCP"]).prop_map(Value::from),
        select(vec![64_usize, 254, 100_000]).prop_map(|length| "x".repeat(length).into()),
        any::<String>().prop_map(Value::from),
        one_of(&["../../etc/passwd", "a/b", "\0", "\u{202e}", "{{ }}", "$(reboot)", "-", "%s%n"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            vec((any::<String>(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}
