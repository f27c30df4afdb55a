//! One system's objects, from its scenario, with addresses and a namespace of their own.

use mcs_tests::{
    api_server::documents,
    member::{Member, ProxiedNode},
};

use crate::prelude::*;

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
pub(crate) fn all() -> Result<Vec<System>> {
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
    fn read(name: String, path: &Path, number: u8, is_v6: bool) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let (node, rest) = text.split_once("-- write objects.yaml --\n").context("no objects")?;
        let (yaml, _) = rest.split_once("\n-- expect --").context("no end of the objects")?;
        let mut objects = documents(&with_names(yaml, flag(node, "cluster-id")?, number))?;
        objects.retain(|object| {
            let version = object["apiVersion"].as_str().unwrap_or_default();
            // Endpoints are mirrored to slices, which are among the objects.
            object["kind"] != "Endpoints" && !FOREIGN.iter().any(|group| version.starts_with(group))
        });
        let services = flag(node, "service-cidr")?.trim_matches(['[', ']']);
        let services = services.strip_suffix("0.0/16").context("not a range of 65,536")?;
        let mut addresses = Addresses { number, services, given: Vec::new() };
        for object in &mut objects {
            addresses.replace(object);
        }
        let slices: Vec<_> =
            objects.iter().filter_map(|object| unserved(object, &objects)).collect();
        objects.extend(slices);
        objects.iter_mut().for_each(set_ports);
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

/// A flag of the node of a scenario.
fn flag<'a>(node: &'a str, name: &str) -> Result<&'a str> {
    let mut lines = node.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(key, _)| *key == name);
    found.map(|(_, value)| value).with_context(|| format!("the node has no {name}"))
}

/// The same with names of its own, in this cluster.
fn with_names(yaml: &str, cluster: &str, number: u8) -> String {
    let mut text = yaml.replace("shop", &format!("s{number}")).replace(cluster, Member::CLUSTER);
    for namespace in ["submariner-operator", "submariner-k8s-broker"] {
        text = text.replace(namespace, &format!("{namespace}-s{number}"));
    }
    text
}

/// The addresses of one system, in place of those of its scenario.
struct Addresses<'a> {
    number: u8,
    /// What addresses of Services of the scenario's cluster begin with.
    services: &'a str,
    /// The addresses of the scenario that have got another one, in this order.
    given: Vec<Ipv4Addr>,
}

impl Addresses<'_> {
    fn replace(&mut self, object: &mut Value) {
        match object {
            Value::String(text) => {
                if let Ok(ip) = text.parse() {
                    *text = self.of(ip).to_string();
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.replace(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.replace(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn of(&mut self, ip: Ipv4Addr) -> IpAddr {
        let pod = |host| ProxiedNode::remote_pod(host)[0];
        match ip.octets() {
            [10, 1, 0, 1] | [192, 0, 2, 10] => pod(11),
            [10, 1, 0, 2] => pod(12),
            [10, 2, 0, 1] => pod(13),
            [10, 2, 0, 2] => pod(14),
            _ if ip.to_string().starts_with(self.services) => {
                Ipv4Addr::new(10, 96, 100 + self.number, self.place(ip)).into()
            }
            // A pod stands for the ClusterIP of another cluster.
            [10, 96 | 97, ..] => pod(14),
            [243, ..] => Ipv4Addr::new(243, 0, self.number, self.place(ip)).into(),
            [10, 200, ..] => Ipv4Addr::new(10, 200, self.number, self.place(ip)).into(),
            _ => ip.into(),
        }
    }

    /// From 1.
    fn place(&mut self, ip: Ipv4Addr) -> u8 {
        let before = self.given.iter().position(|given| *given == ip);
        let index = before.unwrap_or_else(|| {
            self.given.push(ip);
            self.given.len() - 1
        });
        u8::try_from(index + 1).unwrap_or(u8::MAX)
    }
}

/// Sets the ports of the servers, TCP and UDP. Pods have other ones than Services.
fn set_ports(object: &mut Value) {
    let pods = ProxiedNode::REMOTE_PODS.map(|host| json!(ProxiedNode::remote_pod(host)[0]));
    let mut endpoints = object["endpoints"].as_array().into_iter().flatten();
    let leads_to_pods = endpoints.any(|endpoint| pods.contains(&endpoint["addresses"][0]));
    let is_service = object["kind"] == "Service";
    let is_slice = object["kind"] == "EndpointSlice";
    let ports = if is_slice { &mut object["ports"] } else { &mut object["spec"]["ports"] };
    if !ports.is_array() {
        return;
    }
    let port = |name, protocol, (frontend, backend): (u16, u16)| {
        let number = if leads_to_pods { backend } else { frontend };
        let mut port = json!({"name": name, "protocol": protocol, "port": number});
        if is_service {
            port["targetPort"] = backend.into();
        }
        port
    };
    *ports = json!([port("http", "TCP", TCP), port("dns", "UDP", UDP)]);
}

/// The same object in a cluster of IPv6.
fn in_ipv6(object: &mut Value) -> Result {
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
