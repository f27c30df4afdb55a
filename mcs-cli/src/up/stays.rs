//! What `mcs down` leaves in a cluster, and how to remove it.

use mcs_controller::clusterset::well_known;
use mcs_kube::{TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY, told};

use super::release::NAMESPACE;
use crate::{
    cluster::{
        CONFIG_MAPS, Cluster, EXPORTS, ID_PROPERTY, Kind, LEASES, NAMESPACES, PEERS, SERVICES,
    },
    dns, link,
};

/// A row for each kind of object that stays: cluster, what, and the command that removes it.
pub(super) async fn rows(cluster: &Cluster) -> Vec<Vec<String>> {
    let id = cluster.id.to_string();
    let found = found(cluster)
        .await
        .unwrap_or_else(|error| vec![(format!("not known: {}", told(&error)), "-".to_owned())]);
    found.into_iter().map(|(what, how)| vec![id.clone(), what, how]).collect()
}

async fn found(cluster: &Cluster) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut add = |what: String, how: &str| all.push((what, how.to_owned()));
    if cluster.is_served(EXPORTS).await? || cluster.is_served(PEERS).await? {
        add(
            "the types of the API and of the chart, with all objects of them".to_owned(),
            "kubectl delete customresourcedefinitions NAME",
        );
    }
    for (name, why) in [
        (ID_PROPERTY, ""),
        (well_known::CLUSTERSET_PROPERTY, ""),
        (VIP_RANGES_PROPERTY, ": agents that are installed alone refuse other addresses"),
        (TRAFFIC_PROPERTY, ": agents that are installed alone follow it"),
    ] {
        if cluster.property_object(name).await?.is_some() {
            let how = format!("kubectl delete clusterproperty {name}");
            add(format!("ClusterProperty {name}{why}"), &how);
        }
    }
    for name in [NAMESPACE, well_known::CONTROLLER, link::MAILBOX] {
        if cluster.get(NAMESPACES, None, name).await?.is_some() {
            add(format!("namespace {name}"), &format!("kubectl delete namespace {name}"));
        }
    }
    let ours = format!("{}={}", well_known::MANAGED_BY, well_known::CONTROLLER);
    let counted: [(Kind, Option<&str>, &str, &str, &str); 4] = [
        (
            EXPORTS,
            None,
            "",
            "ServiceExports",
            "kubectl delete serviceexports --all-namespaces --all",
        ),
        (
            SERVICES,
            None,
            &ours,
            "derived Services",
            "kubectl delete services --all-namespaces --selector app.kubernetes.io/managed-by=mcs-controller",
        ),
        (
            NAMESPACES,
            None,
            &ours,
            "namespaces that the controller has made for imports",
            "kubectl delete namespace NAME",
        ),
        (
            LEASES,
            Some(well_known::CONTROLLER),
            "",
            "Leases of the controller",
            "they go with namespace mcs-controller",
        ),
    ];
    for (kind, namespace, selector, what, how) in counted {
        let count = cluster.list_in_if_served(kind, namespace, selector).await?.len();
        if count > 0 {
            add(format!("{count} {what}"), how);
        }
    }
    let config = cluster.get(CONFIG_MAPS, Some(dns::SYSTEM), "coredns").await?.unwrap_or_default();
    let annotations = config["metadata"]["annotations"].as_object();
    for name in annotations.into_iter().flatten().map(|(name, _)| name) {
        if name.starts_with(well_known::GROUP) {
            add(
                format!("annotation {name} of ConfigMap coredns"),
                &format!("kubectl annotate configmap coredns --namespace kube-system {name}-"),
            );
        }
    }
    Ok(all)
}
