//! Connections by name through a ClusterSetIP: they test DNS, the agent of the node, and the network to pods at once.

use anyhow::bail;
use mcs_controller::{core::clusterset::well_known, features::probe_command::Outcome};
use mcs_kube::{
    dns_name,
    objects::{ObjectMeta, ServiceImport},
};

use super::sample;
use crate::cluster::{Cluster, IMPORTS, of_type};

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
    let imports: Vec<ServiceImport> =
        of_type(&cluster.list_some(IMPORTS, "", IMPORTS_LOOKED_AT).await?);
    for import in &imports {
        let Some(service) = service(import) else { continue };
        let selector = format!("{}={}", well_known::SERVICE_NAME, import.metadata.name);
        let slices = cluster.slices(Some(&import.metadata.namespace), &selector).await?;
        if !sample::endpoints(&slices, 1).is_empty() {
            found.push(service);
        }
        if found.len() == SERVICES {
            break;
        }
    }
    Ok(found)
}

fn service(import: &ServiceImport) -> Option<Service> {
    let (ObjectMeta { namespace, name, .. }, spec) = (&import.metadata, &import.spec);
    let port = spec.ports.iter().find(|port| port.key().1 == "TCP")?.port;
    (!spec.ips.is_empty()).then(|| Service {
        name: format!("{namespace}/{name}"),
        target: format!("{}:{port}", dns_name::of(namespace, name)),
    })
}

/// The finding about a service, by the outcome. An error is advice.
pub(in crate::check) fn judge(target: &str, outcome: Outcome) -> anyhow::Result<String> {
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
    use serde_json::{Value, from_value, json};

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
        assert_eq!(found.target, "web.shop.svc.clusterset.local:80");
        assert!(service(&import(&json!([]), &ports)).is_none(), "a headless one");
        assert!(
            service(&import(&json!(["241.0.0.1"]), &json!([{"port": 53, "protocol": "UDP"}])))
                .is_none()
        );
    }

    #[test]
    fn what_does_not_answer_says_what_to_do() {
        assert!(judge("web:80", Outcome::Answered).is_ok());
        for (outcome, expected) in [
            (Outcome::Unresolved, "does not know the name"),
            (Outcome::DnsFailed, "SERVFAIL: the DNS server of pods cannot read"),
            (Outcome::DnsSilent, "DNS does not answer: the DNS server of pods is not there"),
            (Outcome::DnsEmpty, "has no address in DNS"),
            (Outcome::Refused, "no endpoint"),
            (Outcome::Timeout, "--vip-cidr"),
        ] {
            let error = judge("web:80", outcome).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            let is_unknown = outcome == Outcome::Unresolved;
            assert_eq!(error.contains("does not know the name"), is_unknown, "{error}");
        }
    }
}
