//! Connections by name through a ClusterSetIP: they test DNS, the agent of the node, and the network to pods at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    net::SocketAddr,
    slice,
};

use anyhow::bail;
use mcs_controller::core::clusterset::well_known;
use mcs_kube::{
    names,
    objects::{EndpointSlice, ObjectMeta, ServiceImport},
    reach::{Outcome, Target},
};

use serde_json::Value;

use super::sample;
use crate::cluster::of_type;

/// The imports that are tried.
const SERVICES: usize = 8;

/// An imported service.
#[derive(Debug)]
pub(in crate::check) struct Service {
    /// `NAMESPACE/NAME`.
    pub(super) name: String,
    /// Its name in DNS, with a port.
    pub(in crate::check) target: Target,
    /// Its ClusterSetIPs, with the port.
    pub(in crate::check) vips: Vec<SocketAddr>,
}

/// A few of the imports of a cluster that should answer: ClusterSetIPs with a ready endpoint and a TCP port, first one of each
/// cluster that they come from.
pub(in crate::check) fn of_each_source(imports: &[Value], slices: &[Value]) -> Vec<Service> {
    let mut sources = BTreeMap::<_, BTreeSet<String>>::new();
    for slice in &of_type::<EndpointSlice>(slices) {
        let label = |name: &str| slice.metadata.labels.get(name).cloned();
        let service = label(well_known::SERVICE_NAME).zip(label(well_known::SOURCE_CLUSTER));
        if let Some((service, source)) = service
            && !sample::endpoints(slice::from_ref(slice), 1).is_empty()
        {
            let key = (slice.metadata.namespace.clone(), service);
            sources.entry(key).or_default().insert(source);
        }
    }
    let mut seen = BTreeSet::new();
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for import in &of_type::<ServiceImport>(imports) {
        let ObjectMeta { namespace, name, .. } = &import.metadata;
        let sources = sources.get(&(namespace.clone(), name.clone()));
        let Some((service, sources)) = service(import).zip(sources) else { continue };
        let is_new = !sources.is_subset(&seen);
        seen.extend(sources.iter().cloned());
        if is_new { chosen.push(service) } else { others.push(service) }
    }
    chosen.extend(others);
    chosen.truncate(SERVICES);
    chosen
}

fn service(import: &ServiceImport) -> Option<Service> {
    let (ObjectMeta { namespace, name, .. }, spec) = (&import.metadata, &import.spec);
    let port = spec.ports.iter().find(|port| port.key().1 == "TCP")?.port;
    let number = u16::try_from(port).ok()?;
    let ips = spec.ips.iter().filter_map(|ip| ip.parse().ok());
    (!spec.ips.is_empty()).then(|| Service {
        name: format!("{namespace}/{name}"),
        vips: ips.map(|ip| SocketAddr::new(ip, number)).collect(),
        target: Target::Name(format!("{}:{port}", names::of(namespace, name))),
    })
}

/// The finding about a service, by the outcome. An error is advice.
pub(in crate::check) fn judge(target: &impl Display, outcome: Outcome) -> anyhow::Result<String> {
    let advice = match outcome {
        Outcome::Answered => return Ok(format!("it answers by its name, {target}")),
        Outcome::Unresolved => {
            "the DNS server of pods does not know the name: see the checks of dns, and deploy/dns"
        }
        Outcome::DnsEmpty => {
            "the import has no address in DNS: see its spec.ips, and the finding of imports"
        }
        Outcome::DnsFailed => {
            "the DNS server of pods cannot read ServiceImports or EndpointSlices: see its log and its rights \
             (ClusterRole system:coredns), and the checks of dns"
        }
        Outcome::DnsSilent => {
            "the DNS server of pods is not there or not ready: see kubectl get pods --namespace kube-system --selector \
             k8s-app=kube-dns; or the network to it loses packets"
        }
        Outcome::Refused | Outcome::Denied => {
            "the agent has no endpoint for it that it can use: `mcs-agent services` in a pod of the agent says why; or its pods refuse"
        }
        Outcome::Timeout | Outcome::Unreachable | Outcome::Failed => {
            "no agent serves its ClusterSetIP on that node, or pods do not reach its \
             endpoints: `mcs-agent status` there lists rejected imports, such as those outside --vip-cidr"
        }
    };
    bail!("{target} {}: {advice}", outcome.text())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_service_has_an_address_and_a_tcp_port() {
        let import = |ips: &Value, ports: &Value| {
            let metadata = json!({"namespace": "shop", "name": "web"});
            let spec = json!({"type": "ClusterSetIP", "ips": ips, "ports": ports});
            from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 80}]);
        let found = service(&import(&json!(["241.0.0.1"]), &ports)).unwrap();
        assert_eq!(found.target.to_string(), "web.shop.svc.clusterset.local:80");
        assert!(service(&import(&json!([]), &ports)).is_none(), "a headless one");
        assert!(
            service(&import(&json!(["241.0.0.1"]), &json!([{"port": 53, "protocol": "UDP"}])))
                .is_none()
        );
    }

    #[test]
    fn each_source_is_tried_before_a_second_service_of_one() {
        let import = |name: &str| {
            let spec =
                json!({"type": "ClusterSetIP", "ips": ["241.0.0.1"], "ports": [{"port": 80}]});
            json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec})
        };
        let slice = |name: &str, source: &str, endpoints: Value| {
            let labels =
                json!({well_known::SERVICE_NAME: name, well_known::SOURCE_CLUSTER: source});
            json!({
                "metadata": {"namespace": "shop", "name": "s", "labels": labels},
                "ports": [{"port": 80}], "endpoints": endpoints,
            })
        };
        let ready = || json!([{"addresses": ["10.2.0.1"]}]);
        let imports = ["a", "b", "c", "d"].map(import);
        let slices = [
            slice("a", "west", ready()),
            slice("b", "west", ready()),
            slice("c", "west", ready()),
            slice("c", "south", ready()),
            slice("d", "north", json!([])),
        ];
        let chosen = of_each_source(&imports, &slices);
        let chosen: Vec<_> = chosen.iter().map(|one| &*one.name).collect();
        assert_eq!(chosen, ["shop/a", "shop/c", "shop/b"], "nobody answers for d");
    }

    #[test]
    fn what_does_not_answer_says_what_to_do() {
        assert!(judge(&"web:80", Outcome::Answered).is_ok());
        for (outcome, expected) in [
            (Outcome::Unresolved, "does not know the name"),
            (Outcome::DnsFailed, "SERVFAIL: the DNS server of pods cannot read"),
            (Outcome::DnsSilent, "DNS does not answer: the DNS server of pods is not there"),
            (Outcome::DnsEmpty, "has no address in DNS"),
            (Outcome::Refused, "no endpoint"),
            (Outcome::Timeout, "--vip-cidr"),
        ] {
            let error = judge(&"web:80", outcome).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            let is_unknown = outcome == Outcome::Unresolved;
            assert_eq!(error.contains("does not know the name"), is_unknown, "{error}");
        }
    }
}
