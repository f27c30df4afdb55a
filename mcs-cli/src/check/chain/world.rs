//! A healthy clusterset in memory: each link as its controllers and agents write it.

use mcs_controller::core::clusterset::well_known;
use mcs_kube::report::ServiceTables;
use serde_json::{Value, json};

use super::facts::{Facts, Table, What};

/// The namespace of all services.
pub(super) const SHOP: &str = "shop";

/// A Service that some clusters export.
pub(super) struct Sample {
    pub(super) name: &'static str,
    /// Name, protocol, port, port of the pods.
    pub(super) ports: &'static [(&'static str, &'static str, u16, u16)],
    pub(super) is_headless: bool,
    /// The numbers of the clusters that export it.
    pub(super) clusters: &'static [usize],
    address: &'static str,
}

pub(super) const SAMPLES: [Sample; 3] = [
    Sample {
        name: "web",
        ports: &[("http", "TCP", 80, 8080), ("admin", "TCP", 81, 8081)],
        is_headless: false,
        clusters: &[0, 1, 2],
        address: "241.0.0.1",
    },
    Sample {
        name: "dns",
        ports: &[("", "UDP", 53, 5353)],
        is_headless: false,
        clusters: &[0],
        address: "241.0.0.2",
    },
    Sample {
        name: "db",
        ports: &[("sql", "TCP", 5432, 5432)],
        is_headless: true,
        clusters: &[1],
        address: "",
    },
];

/// The clusters, with two nodes each.
pub(in crate::check) fn world(count: usize) -> Vec<Facts> {
    let ids: Vec<_> = (1..=count).map(|number| format!("c{number}")).collect();
    let mut all: Vec<_> = ids.iter().map(|id| source(id)).collect();
    for (number, facts) in all.iter_mut().enumerate() {
        let imports = SAMPLES.iter().map(|sample| import(sample, count)).collect();
        set(facts, What::Imports, imports);
        for sample in &SAMPLES {
            for source in exporters(sample, count) {
                list(facts, What::Slices).push(imported(sample, source));
            }
        }
        let peers = ids.iter().enumerate().filter(|(other, _)| *other != number);
        let peers = peers.map(|(other, id)| peer(id, other)).collect();
        set(facts, What::Peers, peers);
        for node in ["n1", "n2"] {
            facts.tables.insert(node.to_owned(), Ok(table(count)));
        }
    }
    all
}

fn exporters(sample: &Sample, count: usize) -> impl Iterator<Item = usize> + use<> {
    sample.clusters.iter().copied().filter(move |cluster| *cluster < count)
}

/// The objects of a kind.
pub(super) fn list(facts: &mut Facts, what: What) -> &mut Vec<Value> {
    facts.objects.entry(what).or_insert_with(|| Ok(vec![])).as_mut().unwrap()
}

fn set(facts: &mut Facts, what: What, objects: Vec<Value>) {
    facts.objects.insert(what, Ok(objects));
}

fn number(id: &str) -> usize {
    id[1..].parse::<usize>().unwrap() - 1
}

/// What a cluster has of its own services.
fn source(id: &str) -> Facts {
    let mut facts = Facts { cluster: id.to_owned(), ..Facts::default() };
    set(&mut facts, What::Namespaces, vec![json!({"metadata": {"name": SHOP}})]);
    set(&mut facts, What::Properties, vec![]);
    let cluster = number(id);
    for what in [What::Services, What::Pods, What::Exports, What::Published, What::Slices] {
        set(&mut facts, what, vec![]);
    }
    for sample in SAMPLES.iter().filter(|sample| sample.clusters.contains(&cluster)) {
        let ports = sample.ports.iter().map(|(name, protocol, port, _)| {
            json!({"name": name, "protocol": protocol, "port": port, "targetPort": target(name)})
        });
        let mut spec =
            json!({"selector": {"app": sample.name}, "ports": ports.collect::<Vec<_>>()});
        if sample.is_headless {
            spec["clusterIP"] = json!("None");
        }
        let metadata = json!({"namespace": SHOP, "name": sample.name, "generation": 1});
        list(&mut facts, What::Services).push(json!({"metadata": metadata, "spec": spec}));
        let conditions = json!([
            {"type": "Valid", "status": "True", "reason": "Valid", "observedGeneration": 1},
            {"type": "Ready", "status": "True", "reason": "Exported", "observedGeneration": 1},
            {"type": "Conflict", "status": "False", "reason": "NoConflicts", "observedGeneration": 1},
        ]);
        let export = json!({"metadata": metadata, "status": {"conditions": conditions}});
        list(&mut facts, What::Exports).push(export);
        for ip in ips(sample, cluster) {
            list(&mut facts, What::Pods).push(pod(sample, &ip));
        }
        let labels = json!({well_known::SLICE_SERVICE: sample.name});
        let slice = slice(SHOP, &format!("{}-1", sample.name), &labels, sample, cluster);
        list(&mut facts, What::Slices).push(slice);
        let labels = json!({
            well_known::MAILBOX_CLUSTER: id,
            well_known::MAILBOX_NAMESPACE: SHOP,
            well_known::MAILBOX_SERVICE: sample.name,
        });
        let copy = self::slice(
            "mcs-mailbox",
            &format!("shop.{}-1", sample.name),
            &labels,
            sample,
            cluster,
        );
        list(&mut facts, What::Slices).push(copy);
        list(&mut facts, What::Published).push(exported(sample, id));
    }
    facts
}

fn target(name: &str) -> Value {
    if name.is_empty() { json!(5353) } else { json!(name) }
}

fn pod(sample: &Sample, ip: &str) -> Value {
    let ports = sample.ports.iter().map(|(name, protocol, _, port)| {
        json!({"name": name, "protocol": protocol, "containerPort": port})
    });
    json!({
        "metadata": {
            "namespace": SHOP, "name": format!("{}-{ip}", sample.name), "labels": {"app": sample.name},
        },
        "spec": {"containers": [{"ports": ports.collect::<Vec<_>>()}]},
        "status": {
            "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

pub(super) fn ips(sample: &Sample, cluster: usize) -> Vec<String> {
    let place = SAMPLES.iter().position(|one| one.name == sample.name).unwrap();
    (1..=2).map(|pod| format!("10.{}.{place}.{pod}", cluster + 1)).collect()
}

fn slice(namespace: &str, name: &str, labels: &Value, sample: &Sample, cluster: usize) -> Value {
    let ports = sample
        .ports
        .iter()
        .map(|(name, protocol, _, port)| json!({"name": name, "protocol": protocol, "port": port}));
    let endpoints = ips(sample, cluster).into_iter();
    let endpoints = endpoints.map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}}));
    json!({
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "addressType": "IPv4",
        "ports": ports.collect::<Vec<_>>(),
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

fn kind(sample: &Sample) -> &'static str {
    if sample.is_headless { "Headless" } else { "ClusterSetIP" }
}

fn ports(sample: &Sample) -> Value {
    let ports = sample
        .ports
        .iter()
        .map(|(name, protocol, port, _)| json!({"name": name, "protocol": protocol, "port": port}));
    ports.collect()
}

fn exported(sample: &Sample, id: &str) -> Value {
    json!({
        "metadata": {"namespace": "mcs-mailbox", "name": format!("shop.{}", sample.name)},
        "spec": {
            "clusterId": id, "namespace": SHOP, "name": sample.name, "exportedAt": "2026-01-02T03:04:05Z",
            "type": kind(sample), "ports": ports(sample), "ipFamilies": ["IPv4"],
            "slices": [format!("{}-1", sample.name)],
        },
    })
}

fn import(sample: &Sample, count: usize) -> Value {
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "reason": "Ready", "message": "it is"});
    let clusters =
        exporters(sample, count).map(|number| json!({"cluster": format!("c{}", number + 1)}));
    let ips: Vec<_> = Some(sample.address).filter(|ip| !ip.is_empty()).into_iter().collect();
    json!({
        "metadata": {
            "namespace": SHOP, "name": sample.name,
            "labels": {well_known::MANAGED_BY: well_known::CONTROLLER},
        },
        "spec": {"type": kind(sample), "ips": ips, "ports": ports(sample), "ipFamilies": ["IPv4"]},
        "status": {
            "clusters": clusters.collect::<Vec<_>>(),
            "conditions": [condition("Ready"), condition("clusterset.mcs-agent.io/EndpointsReady")],
        },
    })
}

fn imported(sample: &Sample, source: usize) -> Value {
    let id = format!("c{}", source + 1);
    let labels = json!({
        well_known::SERVICE_NAME: sample.name,
        well_known::SOURCE_CLUSTER: id,
        well_known::SLICE_MANAGED_BY: well_known::CONTROLLER,
    });
    slice(SHOP, &format!("mcs-{}-{id}", sample.name), &labels, sample, source)
}

fn peer(id: &str, number: usize) -> Value {
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "what nobody asked for"});
    json!({
        "metadata": {"name": id},
        "spec": {
            "clusterId": id, "kubeconfigSecretRef": {"name": id},
            "podCIDRs": [format!("10.{}.0.0/16", number + 1)],
        },
        "status": {"conditions": [
            condition("Connected", "True", "Connected"),
            condition("Synced", "True", "Synced"),
            // It is the cause of nothing that is drawn.
            condition("PodsReachable", "False", "NotReached"),
        ]},
    })
}

/// What an agent has of all imports.
fn table(count: usize) -> Table {
    let services: ServiceTables = serde_json::from_value(services(count)).unwrap();
    Table { services, rejections: vec![] }
}

/// The same as the agent prints it.
pub(in crate::check) fn services(count: usize) -> Value {
    let mut frontends = Vec::new();
    let served = SAMPLES.iter().filter(|sample| !sample.is_headless);
    for (sample, (_, protocol, port, target)) in
        served.flat_map(|sample| sample.ports.iter().map(move |port| (sample, port)))
    {
        let addresses = exporters(sample, count).flat_map(|source| ips(sample, source));
        let backends =
            addresses.map(|ip| json!({"address": format!("{ip}:{target}"), "cluster": ""}));
        frontends.push(json!({
            "namespace": SHOP, "name": sample.name, "ip": sample.address, "port": port,
            "protocol": protocol, "backends": backends.collect::<Vec<_>>(),
        }));
    }
    let imports = SAMPLES.iter().map(|sample| {
        let state = if sample.is_headless { "LeftAlone" } else { "Ready" };
        json!({"import": {"namespace": SHOP, "name": sample.name}, "state": state, "message": ""})
    });
    let imports: Vec<_> = imports.collect();
    json!({"reported": true, "imports": imports, "frontends": frontends})
}
