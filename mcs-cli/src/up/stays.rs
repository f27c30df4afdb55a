//! What `mcs down` leaves in a cluster, and how to remove it.

use mcs_controller::core::clusterset::well_known;
use mcs_kube::{TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY, told};
use serde_json::Value;

use super::release::NAMESPACE;
use crate::{
    cluster::{
        CONFIG_MAPS, Cluster, EXPORTS, ID_PROPERTY, Kind, LEASES, NAMESPACES, PEERS, PROPERTIES,
        SERVICES,
    },
    dns,
    kubeconfig::KubeconfigArg,
    link,
};

/// Before a namespace is deleted.
const CONDITION: &str = ", if nothing of yours is in it";

/// A row for each kind of object that stays: cluster, what, and the command that removes it.
pub(super) async fn rows(cluster: &Cluster, kubeconfig: &KubeconfigArg) -> Vec<Vec<String>> {
    let id = cluster.id.to_string();
    let found = async { anyhow::Ok((found(cluster).await?, kubeconfig.flags()?)) };
    match found.await {
        Ok((found, flags)) => {
            let rows = found.into_iter();
            rows.map(|(what, how)| vec![id.clone(), what, pasted(&how, &flags)]).collect()
        }
        Err(error) => vec![vec![id, format!("not known: {}", told(&error)), "-".to_owned()]],
    }
}

/// A command that leads to the cluster wherever it is pasted. A condition may follow it.
fn pasted(how: &str, flags: &str) -> String {
    if !how.starts_with("kubectl ") {
        return how.to_owned();
    }
    match how.split_once(CONDITION) {
        Some((command, _)) => format!("{command} {flags}{CONDITION}"),
        None => format!("{how} {flags}"),
    }
}

/// Whether the controller has made a namespace for imports. Those of mailboxes on a hub have its label too, and belong to clusters
/// that may stay.
fn is_for_imports(namespace: &Value) -> bool {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    !name.starts_with("mcs-")
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
        if cluster.get(PROPERTIES, None, name).await?.is_some() {
            let how = format!("kubectl delete clusterproperty {name}");
            add(format!("ClusterProperty {name}{why}"), &how);
        }
    }
    for name in [NAMESPACE, well_known::CONTROLLER, link::MAILBOX] {
        if cluster.get(NAMESPACES, None, name).await?.is_some() {
            let how = format!("kubectl delete namespace {name}{CONDITION}");
            add(format!("namespace {name}"), &how);
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
            "kubectl delete namespace NAME, if nothing of yours is in it",
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
        let mut listed = cluster.list_in_if_served(kind, namespace, selector).await?;
        if kind == NAMESPACES {
            listed.retain(is_for_imports);
        }
        let count = listed.len();
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_names_its_cluster() {
        let of = |how: &str| pasted(how, "--context east");
        assert_eq!(of("kubectl delete x --all"), "kubectl delete x --all --context east");
        assert_eq!(
            of(&format!("kubectl delete namespace n{CONDITION}")),
            "kubectl delete namespace n --context east, if nothing of yours is in it"
        );
        assert_eq!(of("they go with it"), "they go with it");
    }

    #[test]
    fn a_mailbox_on_a_hub_is_not_for_imports() {
        let of = |name: &str| is_for_imports(&json!({"metadata": {"name": name}}));
        assert!(of("shop") && !of("mcs-west"));
    }
}
