//! The service of every case, and its pods: objects whose status the suite writes, and servers at their addresses.

use mcs_tests::server::Servers;

use crate::prelude::*;

/// The service of every case, in the namespace of that case.
pub(crate) const NAME: &str = "cart";
/// Its port, and that of its pods.
pub(crate) const PORT: u16 = 80;
const TARGET: u16 = 8080;
/// The pods of all clusters.
const SUBNET: Subnet = Subnet(9);
/// How many pods each cluster has.
const PODS: u8 = 2;
/// The controllers of Kubernetes prepare a namespace within this.
const PATIENCE: Duration = Duration::from_mins(1);

/// What answers in the place of pods.
pub(crate) struct Pods {
    _servers: Servers,
    _netns: Namespace,
}

impl Pods {
    /// Starts the pods of both clusters.
    pub(crate) fn start(run: &Run, node: &mcs_tests::topology::Node) -> Result<Self> {
        let hosts: Vec<_> = [1, 2].into_iter().flat_map(hosts).collect();
        let netns = node.link(run, "pods", SUBNET, &hosts)?;
        let ips = hosts.into_iter().map(|host| SUBNET.v4(host).into());
        let servers = Servers::start(&netns, ips, &[(Server::tcp, TARGET)])?;
        Ok(Self { _servers: servers, _netns: netns })
    }
}

/// The hosts of the pods of the cluster with this number.
fn hosts(cluster: u8) -> impl Iterator<Item = u8> {
    (1..=PODS).map(move |pod| 16 * cluster + pod)
}

/// The pods of a cluster, as the agent shows them: `ADDRESS CLUSTER`.
pub(crate) fn backends(cluster: &Cluster) -> impl Iterator<Item = String> {
    let id = cluster.id;
    hosts(cluster.number).map(move |host| format!("{}:{TARGET} {id}", SUBNET.v4(host)))
}

/// The range of the pods of a cluster.
pub(crate) fn range(cluster: &Cluster) -> String {
    format!("{}/28", SUBNET.v4(16 * cluster.number))
}

/// The Service, which selects the pods.
pub(crate) fn service(namespace: &str) -> Value {
    let mut service = namespaced("v1", "Service", namespace, NAME);
    service["spec"] = json!({
        "selector": { "app": NAME },
        "ports": [{ "name": "http", "port": PORT, "targetPort": TARGET, "protocol": "TCP" }],
    });
    service
}

/// Makes the pods in a namespace of a cluster, ready.
pub(crate) fn add_pods(cluster: &Cluster, namespace: &str) -> Result {
    for (pod, host) in (1..).zip(hosts(cluster.number)) {
        let mut object = pod_of(namespace, pod);
        object["metadata"]["labels"] = json!({ "app": NAME });
        object["spec"] = json!({
            "nodeName": format!("node-{}", cluster.id),
            "containers": [{ "name": "web", "image": "mcs-tests.invalid/web" }],
        });
        // Its ServiceAccount has to be there.
        let what = format!("pod {pod} of {} in {namespace}", cluster.id);
        wait::within(PATIENCE, &what, || cluster.api().apply(&object))?;
        set_ready(cluster, namespace, pod, host, true)?;
    }
    Ok(())
}

/// Lets the last pod of a cluster be ready or not. Returns what the agent shows of it.
pub(crate) fn set_last_ready(cluster: &Cluster, namespace: &str, ready: bool) -> Result<String> {
    let host = 16 * cluster.number + PODS;
    set_ready(cluster, namespace, PODS, host, ready)?;
    Ok(format!("{}:{TARGET} {}", SUBNET.v4(host), cluster.id))
}

/// The same for all pods of a cluster.
pub(crate) fn set_all_ready(cluster: &Cluster, namespace: &str, ready: bool) -> Result {
    let mut pods = (1..).zip(hosts(cluster.number));
    pods.try_for_each(|(pod, host)| set_ready(cluster, namespace, pod, host, ready))
}

fn set_ready(cluster: &Cluster, namespace: &str, pod: u8, host: u8, ready: bool) -> Result {
    let address = SUBNET.v4(host);
    let ready = if ready { "True" } else { "False" };
    let mut object = pod_of(namespace, pod);
    object["status"] = json!({
        "phase": "Running",
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "conditions": [{ "type": "Ready", "status": ready }],
    });
    cluster.api().apply_status(&object)
}

fn pod_of(namespace: &str, number: u8) -> Value {
    namespaced("v1", "Pod", namespace, &format!("{NAME}-{number}"))
}
