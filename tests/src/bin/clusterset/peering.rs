//! Makes clusters peers of each other, as an operator does.

use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    controller::{MAILBOX, NAMESPACE},
    objects::namespaced,
};

/// The ClusterPeer by which `importer` reads what `exporter` publishes.
pub(crate) fn peer(exporter: &Cluster, pod_range: &str) -> Value {
    json!({
        "apiVersion": "clusterset.mcs-agent.io/v1alpha1",
        "kind": "ClusterPeer",
        "metadata": { "name": exporter.id },
        "spec": {
            "clusterId": exporter.id,
            "kubeconfigSecretRef": { "name": secret_name(exporter) },
            "mailbox": MAILBOX,
            "podCIDRs": [pod_range],
        },
    })
}

/// Lets `importer` read what `exporter` publishes.
pub(crate) fn connect(
    importer: &Cluster,
    exporter: &Cluster,
    pod_range: &str,
) -> anyhow::Result<()> {
    store_credentials(importer, &secret_name(exporter), &exporter.credentials_for(importer.id)?)?;
    importer.api().apply(&peer(exporter, pod_range))
}

/// Gives the controller of a cluster a kubeconfig, as a Secret.
pub(crate) fn store_credentials(
    importer: &Cluster,
    name: &str,
    kubeconfig: &str,
) -> anyhow::Result<()> {
    let mut secret = namespaced("v1", "Secret", NAMESPACE, name);
    secret["stringData"] = json!({ "kubeconfig": kubeconfig });
    importer.api().apply(&secret)
}

fn secret_name(exporter: &Cluster) -> String {
    format!("peer-{}", exporter.id)
}
