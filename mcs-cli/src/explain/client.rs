//! The pod that connects.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use mcs_controller::core::clusterset::ClusterId;
use mcs_kube::{program::suggest, told};
use serde::Serialize;
use serde_json::Value;

use crate::{
    cluster::{Cluster, PODS},
    contexts::{Contexts, Unasked},
    fleet,
};
use mcs_kube::{program::finding::Finding, reasons::Code};

/// The kubelet names the cgroup of a static pod by this annotation of its mirror pod.
const STATIC_UID: &str = "kubernetes.io/config.hash";

/// The pod that connects.
#[derive(Debug, Serialize)]
pub(crate) struct Client {
    pub(super) cluster: String,
    pub(super) namespace: String,
    name: String,
    /// Absent while it is not scheduled.
    pub(crate) node: Option<String>,
    ip: Option<String>,
    /// Whether it is in the network namespace of its node.
    host_network: bool,
    phase: String,
    #[serde(skip)]
    dns_policy: String,
    #[serde(skip)]
    nameserver: Option<IpAddr>,
    /// The uid in the name of its cgroup.
    #[serde(skip)]
    pub(crate) cgroup_uid: String,
}

/// The uid of a pod in the name of its cgroup.
pub(crate) fn cgroup_uid(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    let uid = metadata["annotations"][STATIC_UID].as_str().or_else(|| metadata["uid"].as_str());
    uid.unwrap_or_default().to_owned()
}

/// A pod, and its cluster.
pub(crate) struct ClientPod<'a> {
    pub(crate) client: Client,
    pub(crate) cluster: &'a Cluster,
}

/// Finds the pod NAME or NAMESPACE/NAME in one of the clusters. `namespace`: the namespace of a bare name; absent: the
/// namespace of each context.
pub(crate) async fn find<'a>(
    contexts: &'a Contexts,
    namespace: Option<&str>,
    pod: &str,
) -> anyhow::Result<ClientPod<'a>> {
    let (namespace, pod) = match pod.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (namespace, pod),
    };
    let (mut found, mut alike, mut unread) = (Vec::new(), None, contexts.unasked.clone());
    let mut looked = Vec::new();
    let read = fleet::each(&contexts.clusters, async |cluster: &'a Cluster| {
        let default = cluster.client().await?.default_namespace().to_owned();
        let namespace = namespace.unwrap_or(&default).to_owned();
        let read = cluster.get(PODS, Some(&namespace), pod).await;
        anyhow::Ok((cluster, namespace, read))
    });
    for (cluster, namespace, read) in fleet::all_of(read.await)? {
        looked.push(format!("{namespace} of {}", cluster.id));
        match read {
            Ok(Some(object)) => {
                let client = Client::of(&cluster.id, &object);
                found.push(ClientPod { client, cluster });
            }
            Ok(None) if alike.is_none() => alike = similar(cluster, &namespace, pod).await,
            Ok(None) => {}
            Err(error) => {
                unread.push(Unasked { name: cluster.id.to_string(), error: told(&error) });
            }
        }
    }
    let clusters: Vec<_> = found.iter().map(|one| one.client.cluster.clone()).collect();
    match clusters.len() {
        1 => found.pop().context("one was found"),
        0 => {
            let meant = alike.map(|name| format!(": did you mean {name}?")).unwrap_or_default();
            if looked.is_empty() {
                looked.push("any cluster that answers".to_owned());
            }
            let unread: Vec<_> =
                unread.iter().map(|one| format!("; {}: {}", one.name, one.error)).collect();
            let what =
                format!("there is no pod {pod} in {}{meant}{}", looked.join(", "), unread.concat());
            if unread.is_empty() {
                bail!(what)
            }
            Err(NotAsked(what).into())
        }
        _ => bail!("{} each have such a pod: name one by --context", clusters.join(" and ")),
    }
}

/// The pod was not found, and some clusters did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotAsked(String);

/// A pod of the namespace with a similar name: people know the first part of a Deployment's pod.
async fn similar(cluster: &Cluster, namespace: &str, pod: &str) -> Option<String> {
    let pods = cluster.list_in(PODS, Some(namespace), "").await.ok()?;
    let names: Vec<_> = pods.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    let begins = names.iter().find(|name| name.starts_with(pod)).copied();
    begins.or_else(|| suggest::closest(pod, names)).map(str::to_owned)
}

/// The first DNS server of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DnsServer {
    /// Service `kube-dns` of the cluster.
    OfCluster,
    /// The server in the pod's `dnsConfig`.
    Own(IpAddr),
    /// Unknown from the pod's object, for this reason.
    Unknown(&'static str),
}

impl Client {
    fn of(cluster: &ClusterId, pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let maybe = |value: &Value| value.as_str().map(str::to_owned);
        let metadata = &pod["metadata"];
        Self {
            cluster: cluster.to_string(),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            node: maybe(&pod["spec"]["nodeName"]),
            ip: maybe(&pod["status"]["podIP"]),
            host_network: pod["spec"]["hostNetwork"] == true,
            phase: text(&pod["status"]["phase"]),
            dns_policy: text(&pod["spec"]["dnsPolicy"]),
            nameserver: text(&pod["spec"]["dnsConfig"]["nameservers"][0]).parse().ok(),
            cgroup_uid: cgroup_uid(pod),
        }
    }

    /// Why it cannot connect.
    pub(super) fn obstacle(&self) -> Option<Finding> {
        let what = match &self.node {
            None => "no node has it yet".to_owned(),
            Some(_) if self.phase == "Running" => return None,
            Some(_) => format!("it is {}", self.phase),
        };
        Some(Finding::new(
            Code::PodNotRunning,
            format!("pod {}/{}: {what}", self.namespace, self.name),
        ))
    }

    /// Its first DNS server.
    pub(super) fn dns(&self) -> DnsServer {
        match (&*self.dns_policy, self.host_network) {
            ("ClusterFirstWithHostNet", _) => DnsServer::OfCluster,
            ("None", _) => match self.nameserver {
                Some(address) if address.is_loopback() || address.is_unspecified() => {
                    DnsServer::Unknown("the pod asks a server of its own")
                }
                Some(address) => DnsServer::Own(address),
                None => DnsServer::Unknown("dnsPolicy None gives the pod servers of its own"),
            },
            (_, true) | ("Default", _) => DnsServer::Unknown("the pod asks the server of its node"),
            _ => DnsServer::OfCluster,
        }
    }

    /// Its cluster and node.
    pub(super) fn line(&self, agent: Option<&str>) -> String {
        let node = self.node.as_ref().map(|node| format!(", node {node}")).unwrap_or_default();
        let agent = agent.map(|agent| format!(", agent {agent}")).unwrap_or_default();
        let ip = match (&self.ip, self.host_network) {
            (Some(ip), true) => format!(", {ip} (of the node)"),
            (Some(ip), false) => format!(", {ip}"),
            (None, _) => String::new(),
        };
        format!("pod {}/{} of {}{ip}{node}{agent}", self.namespace, self.name, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_does_not_run_is_no_client() {
        let code = |node: Option<&str>, phase: &str| {
            let pod = json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
            Client::of(&"east".parse().unwrap(), &pod).obstacle().map(|one| one.code)
        };
        assert_eq!(code(Some("n1"), "Running"), None);
        for (node, phase) in [(None, "Pending"), (Some("n1"), "Failed")] {
            assert_eq!(code(node, phase).as_deref(), Some("pod-not-running"));
        }
    }

    #[test]
    fn not_every_pod_asks_the_dns_server_of_the_cluster() {
        let asks = |policy: &str, host_network: bool| {
            let pod = json!({"spec": {"dnsPolicy": policy, "hostNetwork": host_network}});
            Client::of(&"east".parse().unwrap(), &pod).dns() == DnsServer::OfCluster
        };
        assert!(asks("ClusterFirst", false) && asks("ClusterFirstWithHostNet", true));
        assert!(!asks("ClusterFirst", true), "that of its node");
        assert!(!asks("None", false) && !asks("Default", false));
        let own = |servers: &[&str]| {
            let pod = json!({"spec": {"dnsPolicy": "None", "dnsConfig": {"nameservers": servers}}});
            Client::of(&"east".parse().unwrap(), &pod).dns()
        };
        let node_local = "169.254.20.10".parse().unwrap();
        assert_eq!(own(&["169.254.20.10", "10.0.0.10"]), DnsServer::Own(node_local));
        for sidecar in [&["127.0.0.1"][..], &["::1"], &["a name"], &[]] {
            assert!(matches!(own(sidecar), DnsServer::Unknown(_)), "{sidecar:?}");
        }
    }
}
