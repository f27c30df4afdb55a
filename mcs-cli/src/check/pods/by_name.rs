//! Connections by name through a ClusterSetIP: they test DNS, the agent of the node, and the network to pods at once.

use anyhow::bail;
use mcs_controller::{clusterset::well_known, probe::Outcome};
use mcs_kube::dns_name;
use serde_json::Value;

use super::sample;
use crate::cluster::{Cluster, IMPORTS, SLICES};

/// The imports that are read, and the imports that are probed.
const IMPORTS_LOOKED_AT: u32 = 20;
const SERVICES: usize = 2;

/// An imported service.
pub(super) struct Service {
    /// `NAMESPACE/NAME`.
    pub(super) name: String,
    /// Its name in DNS, with a port.
    pub(super) target: String,
}

/// A few services that should answer: ClusterSetIPs with a ready endpoint and a TCP port.
pub(super) async fn services(cluster: &Cluster) -> anyhow::Result<Vec<Service>> {
    let mut found = Vec::new();
    for import in cluster.list_some(IMPORTS, "", IMPORTS_LOOKED_AT).await? {
        let Some(service) = service(&import) else { continue };
        let namespace = import["metadata"]["namespace"].as_str();
        let name = import["metadata"]["name"].as_str().unwrap_or_default();
        let selector = format!("{}={name}", well_known::SERVICE_NAME);
        let slices = cluster.list_in(SLICES, namespace, &selector).await?;
        if !sample::endpoints(&slices, 1).is_empty() {
            found.push(service);
        }
        if found.len() == SERVICES {
            break;
        }
    }
    Ok(found)
}

fn service(import: &Value) -> Option<Service> {
    let (metadata, spec) = (&import["metadata"], &import["spec"]);
    let (namespace, name) = (metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    let has_address = spec["ips"].as_array().is_some_and(|ips| !ips.is_empty());
    let ports = spec["ports"].as_array()?;
    let port = ports.iter().find(|port| sample::is_tcp(port))?["port"].as_u64()?;
    has_address.then(|| Service {
        name: format!("{namespace}/{name}"),
        target: format!("{}:{port}", dns_name::of(namespace, name)),
    })
}

/// The finding about a service, by the outcome. An error is advice.
pub(super) fn judge(service: &Service, outcome: Outcome) -> anyhow::Result<String> {
    let target = &service.target;
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
        Outcome::Refused => {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_has_an_address_and_a_tcp_port() {
        let import = |ips: &Value, ports: &Value| json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"ips": ips, "ports": ports}});
        let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 80}]);
        let found = service(&import(&json!(["241.0.0.1"]), &ports)).unwrap();
        assert_eq!(found.target, "web.shop.svc.clusterset.local:80");
        assert!(service(&import(&json!([]), &ports)).is_none(), "a headless one");
        assert!(
            service(&import(&json!(["241.0.0.1"]), &json!([{"port": 53, "protocol": "UDP"}])))
                .is_none()
        );
    }

    #[test]
    fn what_does_not_answer_says_what_to_do() {
        let service = Service { name: "shop/web".to_owned(), target: "web:80".to_owned() };
        assert!(judge(&service, Outcome::Answered).is_ok());
        for (outcome, expected) in [
            (Outcome::Unresolved, "does not know the name"),
            (Outcome::DnsFailed, "SERVFAIL: the DNS server of pods cannot read"),
            (Outcome::DnsSilent, "DNS does not answer: the DNS server of pods is not there"),
            (Outcome::DnsEmpty, "has no address in DNS"),
            (Outcome::Refused, "no endpoint"),
            (Outcome::Timeout, "--vip-cidr"),
        ] {
            let error = judge(&service, outcome).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            let is_unknown = outcome == Outcome::Unresolved;
            assert_eq!(error.contains("does not know the name"), is_unknown, "{error}");
        }
    }
}
