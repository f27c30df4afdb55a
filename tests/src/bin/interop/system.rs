//! One system's objects, from its scenario, with addresses and a namespace of their own.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use anyhow::Context as _;
use mcs_tests::{
    api_server::documents,
    member::{Member, ProxiedNode},
    target::{TCP, UDP},
};
use serde_json::{Value, json};

/// The label by which kube-proxy finds the Service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The API server has no such types, and the agent does not read them.
const FOREIGN: [&str; 2] = ["net.gke.io/", "networking.fleet.azure.com/"];

pub(crate) struct System {
    pub(crate) name: String,
    /// In the order in which they are made.
    pub(crate) objects: Vec<Value>,
    /// Every VIP and every ClusterIP.
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// Every system that has a scenario.
pub(crate) fn all() -> anyhow::Result<Vec<System>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let file = entry?.file_name();
        let name =
            file.to_str().and_then(|name| name.strip_prefix("interop-")?.strip_suffix(".txt"));
        scenarios.extend(name.map(|name| (name.to_owned(), directory.join(&file))));
    }
    scenarios.sort();
    let both = scenarios.into_iter().flat_map(|(name, path)| {
        [(format!("{name}, IPv6"), path.clone(), true), (name, path, false)]
    });
    both.zip(1..)
        .map(|((name, path, is_v6), number)| System::read(name, &path, number, is_v6))
        .collect()
}

impl System {
    fn read(name: String, path: &Path, number: u8, is_v6: bool) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)?;
        let (_, rest) = text.split_once("-- write objects.yaml --\n").context("no objects")?;
        let (yaml, _) = rest.split_once("\n-- expect --").context("no end of the objects")?;
        let yaml = on_this_node(yaml, number);
        let mut objects = documents(&yaml)?;
        objects.retain(|object| {
            let version = object["apiVersion"].as_str().unwrap_or_default();
            // Endpoints are mirrored to slices, which are among the objects.
            object["kind"] != "Endpoints" && !FOREIGN.iter().any(|group| version.starts_with(group))
        });
        objects.iter_mut().for_each(reach_pods);
        let slices: Vec<_> =
            objects.iter().filter_map(|object| unserved(object, &objects)).collect();
        objects.extend(slices);
        objects.iter_mut().for_each(add_udp);
        if is_v6 {
            objects.iter_mut().try_for_each(in_ipv6)?;
        }
        let fields = |object: &Value| {
            let ips = object["spec"]["ips"].as_array().cloned().unwrap_or_default();
            [vec![object["spec"]["clusterIP"].clone()], ips].concat()
        };
        let addresses = objects.iter().flat_map(fields);
        let addresses = addresses.filter_map(|ip| ip.as_str()?.parse().ok()).collect();
        let namespaces: BTreeSet<_> =
            objects.iter().map(|object| object["metadata"]["namespace"].to_string()).collect();
        let namespaces = namespaces.into_iter().map(|name| {
            let name = name.trim_matches('"');
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        });
        let objects = namespaces.chain(objects).collect();
        Ok(Self { name, objects, addresses })
    }
}

/// The same with the addresses of remote pods, in place of those of the scenario, and names of its own.
fn on_this_node(yaml: &str, number: u8) -> String {
    let pod = |host| ProxiedNode::remote_pod(host)[0].to_string();
    let cluster_ips = format!("10.96.{}.", 100 + number);
    let mut text = yaml.replace("shop", &format!("s{number}")).replace("c1", Member::CLUSTER);
    for range in ["10.96.7.", "10.96.8.", "10.96.9.", "10.96.40."] {
        text = text.replace(range, &cluster_ips);
    }
    text.replace("243.0.0.", &format!("243.0.{number}."))
        .replace("10.200.0.", &format!("10.200.{number}."))
        .replace("192.0.2.10", &pod(11))
        .replace("10.97.40.7", &pod(12))
        .replace("10.97.40.9", &pod(14))
        .replace("10.1.0.1", &pod(11))
        .replace("10.1.0.2", &pod(12))
        .replace("10.2.0.1", &pod(13))
}

/// Adds a UDP port, under the names that several ports need.
fn add_udp(object: &mut Value) {
    let is_slice = object["kind"] == "EndpointSlice";
    let ports = if is_slice { &mut object["ports"] } else { &mut object["spec"]["ports"] };
    let Some(ports) = ports.as_array_mut() else { return };
    for port in &mut *ports {
        port["name"] = "http".into();
    }
    let leads_to_pods = is_slice && ports[0]["port"] == TCP.1;
    let port = if leads_to_pods { UDP.1 } else { UDP.0 };
    ports.push(json!({"name": "dns", "protocol": "UDP", "port": port}));
    if object["kind"] == "Service" {
        object["spec"]["ports"][1]["targetPort"] = UDP.1.into();
    }
}

/// The same object in a cluster of IPv6.
fn in_ipv6(object: &mut Value) -> anyhow::Result<()> {
    match object {
        Value::String(text) if text == "IPv4" => "IPv6".clone_into(text),
        Value::String(text) => {
            if let Ok(ip) = text.parse::<Ipv4Addr>() {
                *text = ipv6_of(ip).to_string();
            }
        }
        Value::Array(values) => values.iter_mut().try_for_each(in_ipv6)?,
        Value::Object(fields) => {
            fields.values_mut().try_for_each(in_ipv6)?;
            if fields.get("kind").is_some_and(|kind| kind == "Service") {
                let spec = fields.get_mut("spec").context("a Service without spec")?;
                spec["ipFamilies"] = json!(["IPv6"]);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// That of the same pod, or else one that nothing else has.
fn ipv6_of(ip: Ipv4Addr) -> Ipv6Addr {
    let mut pods = [11, 12, 13, 14].map(ProxiedNode::remote_pod).into_iter();
    if let Some([_, IpAddr::V6(v6)]) = pods.find(|[v4, _]| *v4 == ip) {
        return v6;
    }
    let [a, b, c, d] = ip.octets();
    let range = if [a, b] == [10, 96] { 0xfd96 } else { 0xfd00 | u16::from(a) };
    Ipv6Addr::new(range, 0, 0, 0, 0, 0, 0, 0x4000 ^ u16::from_be_bytes([c, d]))
}

/// Pods stand for the ClusterIPs of other clusters, and have another port than a Service.
fn reach_pods(object: &mut Value) {
    let remote = json!(ProxiedNode::remote_pod(14)[0]);
    let mut endpoints = object["endpoints"].as_array().into_iter().flatten();
    if endpoints.any(|endpoint| endpoint["addresses"][0] == remote) {
        object["ports"][0]["port"] = 8080.into();
    }
}

/// A slice for a Service that has none, as its cluster's own controller makes it.
fn unserved(object: &Value, all: &[Value]) -> Option<Value> {
    let name = object["metadata"]["name"].as_str()?;
    let namespace = &object["metadata"]["namespace"];
    let is_served = all.iter().any(|one| {
        one["metadata"]["labels"][SERVICE_NAME] == name
            && one["metadata"]["namespace"] == *namespace
    });
    // Istio's has no endpoints.
    if object["kind"] != "Service" || is_served || name.starts_with("clusterset-vip-") {
        return None;
    }
    let endpoints = [11, 12].map(|host| json!({"addresses": [ProxiedNode::remote_pod(host)[0]]}));
    Some(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace, "name": format!("{name}-own"), "labels": {SERVICE_NAME: name},
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    }))
}
