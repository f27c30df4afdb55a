//! The pod ranges of a cluster, from its objects or from a flag.

use std::str::FromStr;

use ipnet::IpNet;
use mcs_controller::clusterset::ClusterId;
use serde_json::Value;

use super::cluster::{CONFIG_MAPS, Cluster, NODES};

/// The pod ranges of a cluster.
#[derive(Clone, Default)]
pub(super) struct PodRanges {
    pub(super) ranges: Vec<IpNet>,
    /// Whether they are from the command line.
    pub(super) are_given: bool,
    pub(super) warning: Option<String>,
}

impl PodRanges {
    /// The ranges from kubeadm or the nodes of a cluster, with a warning if they may be incomplete.
    pub(super) async fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let kubeadm = cluster.get(CONFIG_MAPS, Some("kube-system"), "kubeadm-config").await?;
        let of_kubeadm = kubeadm.as_ref().map(subnets).unwrap_or_default();
        if !of_kubeadm.is_empty() {
            return Ok(Self { ranges: of_kubeadm, ..Self::default() });
        }
        let nodes = cluster.list(NODES).await?;
        let texts = nodes.iter().filter_map(|node| node["spec"]["podCIDRs"].as_array()).flatten();
        let ranges: Vec<IpNet> = texts.filter_map(|text| text.as_str()?.parse().ok()).collect();
        let id = &cluster.id;
        let warning = format!(
            "the pod range of cluster {id} is that of its nodes now, and endpoints on new nodes would be refused: \
             give --pod-cidr {id}=CIDR"
        );
        let ranges = IpNet::aggregate(&ranges);
        Ok(Self { ranges, are_given: false, warning: Some(warning) })
    }
}

/// Ranges of a flag, with commas between them: a cluster of two families has one of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RangeList(Vec<IpNet>);

impl FromStr for RangeList {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|range| range.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

/// The ranges that flags give for a cluster.
pub(super) fn given(flags: &[(ClusterId, RangeList)], id: &ClusterId) -> Vec<IpNet> {
    let of_cluster = flags.iter().filter(|(cluster, _)| cluster == id);
    of_cluster.flat_map(|(_, ranges)| &ranges.0).copied().collect()
}

/// `networking.podSubnet` of kubeadm.
fn subnets(config: &Value) -> Vec<IpNet> {
    let text = config["data"]["ClusterConfiguration"].as_str().unwrap_or_default();
    let parsed: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let subnets = parsed["networking"]["podSubnet"].as_str().unwrap_or_default();
    subnets.split(',').filter_map(|one| one.trim().parse().ok()).collect()
}

/// Ranges as one text.
pub(super) fn joined(ranges: &[IpNet]) -> String {
    let texts: Vec<_> = ranges.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flag_has_the_ranges_of_both_families() {
        let flags =
            [("east", "10.1.0.0/16,fd01::/48"), ("west", "10.2.0.0/16"), ("east", "10.3.0.0/16")]
                .map(|(id, ranges)| (id.parse().unwrap(), ranges.parse().unwrap()));
        let of_east = given(&flags, &"east".parse().unwrap());
        assert_eq!(joined(&of_east), "10.1.0.0/16,fd01::/48,10.3.0.0/16");
        assert!("10.1.0.0/16,".parse::<RangeList>().is_err());
    }

    #[test]
    fn pod_ranges_of_kubeadm_are_read() {
        let config = |text: &str| json!({"data": {"ClusterConfiguration": text}});
        let found = subnets(&config("networking:\n  podSubnet: 10.1.0.0/16,fd01::/48\n"));
        let expected: Vec<IpNet> =
            ["10.1.0.0/16", "fd01::/48"].map(|one| one.parse().unwrap()).into();
        assert_eq!(found, expected);
        assert!(subnets(&config("networking: {}")).is_empty());
        assert!(subnets(&json!({})).is_empty());
    }
}
