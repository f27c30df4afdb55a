//! Imports that have another address in another cluster: somebody has changed one, it was taken there, or it was adopted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use mcs_kube::reasons::ClusterCheck;
use serde_json::Value;

use super::{Finding, Warning, listed};
use crate::{services::key_of, status};

/// A warning, if clusters differ, which are given with their imports.
pub(super) fn finding(of_clusters: &[(&str, &[Value])]) -> Option<Finding> {
    // By service and family, each address with its clusters.
    let mut known = BTreeMap::<_, BTreeMap<IpAddr, BTreeSet<&str>>>::new();
    for &(cluster, imports) in of_clusters {
        for import in imports.iter().filter(|import| status::is_own(import)) {
            let ips = import["spec"]["ips"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ips = ips.iter().filter_map(|ip| ip.as_str()?.parse::<IpAddr>().ok());
            for ip in ips {
                let clusters = known.entry((key_of(import), ip.is_ipv4())).or_default();
                clusters.entry(ip).or_default().insert(cluster);
            }
        }
    }
    known.retain(|_, addresses| addresses.len() > 1);
    let first = known.values().flat_map(BTreeMap::values).flatten().next().copied()?;
    let services = known.iter().map(|((service, _), addresses)| {
        let told = addresses.iter().map(|(ip, clusters)| {
            let clusters: Vec<_> = clusters.iter().copied().collect();
            format!("{ip} in {}", clusters.join(", "))
        });
        format!("{service} has {}", told.collect::<Vec<_>>().join(" and "))
    });
    let services: Vec<_> = services.collect();
    let warning = format!(
        "{}. Names lead to the address of the client's own cluster. An address from another cluster is another service's here, or \
         nobody serves it, and its clients wait. Adopted addresses may differ: leave them. Otherwise delete the \
         ServiceImport in each of these clusters but the one with the oldest export. Its controller makes it again with the address \
         that it has there, if that is in its VIP ranges and free",
        listed(&services)
    );
    Some(Finding::new(first, ClusterCheck::SameAddresses, Err(Warning(warning).into())))
}

#[cfg(test)]
mod tests {
    use mcs_controller::core::clusterset::well_known;
    use serde_json::json;

    use super::*;

    fn import(name: &str, ips: &[&str], is_own: bool) -> Value {
        let writer = if is_own { well_known::CONTROLLER } else { "another" };
        json!({
            "metadata": {
                "namespace": "shop", "name": name,
                "labels": { well_known::MANAGED_BY: writer },
            },
            "spec": { "type": "ClusterSetIP", "ips": ips },
        })
    }

    #[test]
    fn an_address_that_one_cluster_has_alone_is_told() {
        let east = [
            import("web", &["241.0.0.1", "fd00::1"], true),
            import("cart", &["241.0.0.2"], true),
            import("old", &["241.0.0.3"], false),
        ];
        let west = [
            import("web", &["241.0.0.9", "fd00::1"], true),
            import("cart", &["241.0.0.2"], true),
            import("old", &["241.0.0.8"], true),
        ];
        let found = finding(&[("east", &east), ("west", &west), ("south", &west)]).unwrap();
        assert_eq!((&*found.cluster, found.result()), ("east", "warning"));
        assert_eq!(found.check, ClusterCheck::SameAddresses);
        let said = "shop/web has 241.0.0.1 in east and 241.0.0.9 in south, west. ";
        assert!(found.message.starts_with(said), "{}", found.message);
        assert!(finding(&[("west", &west), ("south", &west)]).is_none());
        assert!(finding(&[("east", &east)]).is_none());
        let found = finding(&[("north", &[]), ("south", &west), ("west", &east)]).unwrap();
        assert_eq!(found.cluster, "west");
    }
}
