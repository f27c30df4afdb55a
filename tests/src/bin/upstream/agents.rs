//! The agents of the nodes, by their chart.

use mcs_tests::{
    cluster::{Cluster, Kubectl, Programs},
    prelude::*,
};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/mcs-agent");
const NAME: &str = "mcs-agent";
const NAMESPACE: &str = "mcs-system";

/// Installs them, or changes whose sockets they translate, and returns when every node has one that is ready.
pub(crate) fn install(programs: &Programs, cluster: Cluster, socket_lb: &str) -> Result {
    let api_server = cluster.api_server();
    let values = [
        format!("socketLb={socket_lb}"),
        // Without kube-proxy nobody but the agents translates the Service `kubernetes`.
        format!("apiServer.host={}", api_server.ip()),
        format!("apiServer.port={}", api_server.port()),
        "staleUdp.enabled=true".to_owned(),
        "staleUdp.namespaces=/run/containerd/io.containerd.grpc.v1.cri/netns".to_owned(),
    ];
    let mut helm = Command::new(programs.find("helm")?);
    helm.env_clear().env("HOME", cluster.directory());
    helm.arg("--kubeconfig").arg(cluster.kubeconfig());
    helm.args(["upgrade", "--install", "--create-namespace", "--namespace", NAMESPACE]);
    helm.args(["--wait", "--timeout", "180s", NAME, CHART]);
    for value in values {
        helm.args(["--set", &value]);
    }
    process::run(&mut helm, "")?;
    let kubectl = Kubectl::new(programs, cluster)?;
    let rollout = ["--namespace", NAMESPACE, "rollout", "status", "daemonset", NAME];
    kubectl.run(&[&rollout[..], &["--timeout=180s"]].concat()).map(drop)
}
