//! Installs add-ons in a cluster: the types of the Multi-Cluster Services API, and DNS.

use std::process::Command;

use anyhow::ensure;

use super::{
    ClusterSetup, daemons::Daemons, images, kubectl::Kubectl, layout::Cluster, programs::Programs,
};
use crate::process;

/// The type of cluster ids.
pub const CLUSTER_PROPERTIES: &str = include_str!("manifests/clusterproperties.yaml");
const PROPERTIES: &str = include_str!("manifests/properties.yaml");
const COREDNS: &str = include_str!("manifests/coredns.yaml");

/// A ClusterProperty.
pub fn cluster_property(name: &str, value: &str) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "about.k8s.io/v1beta1",
        "kind": "ClusterProperty",
        "metadata": { "name": name },
        "spec": { "value": value },
    })
}

/// The definitions of ServiceImport and ServiceExport, in YAML.
pub fn mcs_definitions(programs: &Programs) -> anyhow::Result<String> {
    // It prints those of the version that it is built from.
    process::run(&mut Command::new(programs.find("mcs-api")?), "")
}

/// Installs the types, and says which cluster this is.
pub(super) fn install_types(
    setup: &ClusterSetup<'_>,
    cluster: Cluster,
    control_plane: &mut Daemons,
) -> anyhow::Result<()> {
    let kubectl = Kubectl::new(setup.programs, cluster)?;
    kubectl.apply(&mcs_definitions(setup.programs)?)?;
    kubectl.apply(CLUSTER_PROPERTIES)?;

    let properties =
        PROPERTIES.replace("$CLUSTER", &cluster.to_string()).replace("$SET", cluster.set.name());
    control_plane.wait(&format!("{cluster} to serve the new types"), setup.observer, || {
        kubectl.apply(&properties)
    })
}

/// Installs DNS, which takes a node to run on.
pub(super) fn install_dns(setup: &ClusterSetup<'_>, cluster: Cluster) -> anyhow::Result<()> {
    let [v4, v6] = cluster.dns();
    let coredns = COREDNS
        .replace("$IMAGE", images::COREDNS)
        .replace("$DNS_V4", &v4.to_string())
        .replace("$DNS_V6", &v6.to_string());
    Kubectl::new(setup.programs, cluster)?.apply(&coredns)
}

/// Waits until DNS is ready.
pub(super) fn wait_for_dns(
    setup: &ClusterSetup<'_>,
    cluster: Cluster,
    control_plane: &mut Daemons,
) -> anyhow::Result<()> {
    let kubectl = Kubectl::new(setup.programs, cluster)?;
    control_plane.wait(&format!("DNS of {cluster}"), setup.observer, || {
        let coredns = kubectl.get(&["deployment", "coredns", "--namespace", "kube-system"])?;
        let available = coredns["status"]["availableReplicas"].as_u64();
        ensure!(available.is_some_and(|count| count > 0), "no pod of coredns is available");
        Ok(())
    })
}
