//! The pod ranges that a CNI has in its own objects. A CNI that chooses addresses itself need not follow those of nodes.

use ipnet::IpNet;
use kube::api::ListParams;
use serde_json::Value;

use crate::cluster::{CONFIG_MAPS, Cluster, Kind};

/// Calico's pools, in the group of its types.
const CALICO_POOLS: Kind = ("crd.projectcalico.org", "v1", "IPPool", "ippools");
/// The same in the group of Calico's own API server, which may be down.
const CALICO_SERVED_POOLS: Kind = ("projectcalico.org", "v3", "IPPool", "ippools");
const CILIUM_POOLS: Kind = ("cilium.io", "v2alpha1", "CiliumPodIPPool", "ciliumpodippools");

/// The ranges of Calico, Cilium or flannel; none if the cluster has another CNI, if that one takes the ranges of nodes, or if the
/// caller may not read its objects.
pub(super) async fn ranges(cluster: &Cluster) -> anyhow::Result<Vec<IpNet>> {
    let mut found = Vec::new();
    let all = ListParams::default();
    let mut pools = cluster.list_if_readable(CALICO_POOLS, None, &all).await?;
    if pools.is_empty() {
        let served = cluster.list_if_readable(CALICO_SERVED_POOLS, None, &all).await;
        pools = served.unwrap_or_default();
    }
    found.extend(pools.iter().filter_map(of_calico));
    for config in configs(cluster, "cilium-config").await? {
        match config["data"]["ipam"].as_str() {
            Some("multi-pool") => {
                let pools = cluster.list_if_readable(CILIUM_POOLS, None, &all).await?;
                found.extend(pools.iter().flat_map(of_cilium_pool));
            }
            _ => found.extend(of_cilium(&config)),
        }
    }
    for config in configs(cluster, "kube-flannel-cfg").await? {
        found.extend(of_flannel(&config));
    }
    Ok(IpNet::aggregate(&found))
}

/// The ConfigMaps of this name: a CNI can be in any namespace.
async fn configs(cluster: &Cluster, name: &str) -> anyhow::Result<Vec<Value>> {
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    cluster.list_if_readable(CONFIG_MAPS, None, &named).await
}

/// The range of a pool from which pods get addresses.
fn of_calico(pool: &Value) -> Option<IpNet> {
    let spec = &pool["spec"];
    let uses = spec["allowedUses"].as_array();
    let is_for_pods = uses.is_none_or(|uses| uses.iter().any(|one| one == "Workload"));
    let is_used = is_for_pods && spec["disabled"] != true;
    spec["cidr"].as_str().filter(|_| is_used)?.parse().ok()
}

/// The ranges of the operator's pool. Other ways to choose addresses have ranges elsewhere.
fn of_cilium(config: &Value) -> Vec<IpNet> {
    let data = &config["data"];
    if data["ipam"] != "cluster-pool" {
        return vec![];
    }
    let texts = ["cluster-pool-ipv4-cidr", "cluster-pool-ipv6-cidr"].map(|key| data[key].as_str());
    let enabled = ["enable-ipv4", "enable-ipv6"].map(|key| data[key] != "false");
    let texts = texts.into_iter().zip(enabled).filter_map(|(text, is_on)| text.filter(|_| is_on));
    texts.flat_map(super::listed).collect()
}

fn of_cilium_pool(pool: &Value) -> Vec<IpNet> {
    let families = ["ipv4", "ipv6"].map(|family| pool["spec"][family]["cidrs"].as_array());
    let texts = families.into_iter().flatten().flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn of_flannel(config: &Value) -> Vec<IpNet> {
    let text = config["data"]["net-conf.json"].as_str().unwrap_or_default();
    let network: Value = serde_json::from_str(text).unwrap_or_default();
    let v4 = network["Network"].as_str().filter(|_| network["EnableIPv4"] != false);
    let v6 = network["IPv6Network"].as_str().filter(|_| network["EnableIPv6"] == true);
    v4.into_iter().chain(v6).filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod_ranges::joined;

    #[test]
    fn pools_of_calico_for_pods_count() {
        let of = |spec: Value| of_calico(&json!({"spec": spec})).map(|range| range.to_string());
        let range = "10.1.0.0/16";
        assert_eq!(of(json!({"cidr": range})).as_deref(), Some(range));
        let uses = json!(["Workload", "Tunnel"]);
        assert_eq!(of(json!({"cidr": range, "allowedUses": uses})).as_deref(), Some(range));
        assert_eq!(of(json!({"cidr": range, "allowedUses": ["LoadBalancer"]})), None);
        assert_eq!(of(json!({"cidr": range, "disabled": true})), None);
    }

    #[test]
    fn cilium_says_where_its_ranges_are() {
        let of = |ipam: &str, v6: &str| {
            let data = json!({
                "ipam": ipam, "enable-ipv4": "true", "enable-ipv6": v6,
                "cluster-pool-ipv4-cidr": "10.1.0.0/16 10.3.0.0/16", "cluster-pool-ipv6-cidr": "fd01::/104",
            });
            joined(&of_cilium(&json!({"data": data})))
        };
        assert_eq!(of("cluster-pool", "true"), "10.1.0.0/16,10.3.0.0/16,fd01::/104");
        assert_eq!(of("cluster-pool", "false"), "10.1.0.0/16,10.3.0.0/16");
        assert_eq!(of("kubernetes", "true"), "", "the ranges of nodes");
        let spec = json!({"ipv4": {"cidrs": ["10.1.0.0/16"], "maskSize": 24}, "ipv6": {"cidrs": ["fd01::/48"]}});
        assert_eq!(joined(&of_cilium_pool(&json!({"spec": spec}))), "10.1.0.0/16,fd01::/48");
    }

    #[test]
    fn flannel_has_a_network_of_each_family() {
        let of = |network: &str| joined(&of_flannel(&json!({"data": {"net-conf.json": network}})));
        let both = r#"{"Network": "10.1.0.0/16", "EnableIPv6": true, "IPv6Network": "fd01::/48"}"#;
        assert_eq!(of(both), "10.1.0.0/16,fd01::/48");
        assert_eq!(of(&both.replace("true", "false")), "10.1.0.0/16");
        assert_eq!(of(""), "");
    }
}
