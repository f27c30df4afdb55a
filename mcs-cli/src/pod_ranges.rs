//! The pod ranges of a cluster, from its objects or from a flag.

mod cni;

use std::{collections::BTreeSet, net::IpAddr, str::FromStr};

use anyhow::ensure;
use ipnet::IpNet;
use kube::api::ListParams;
use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::objects::Node;
use serde_json::Value;

use super::cluster::{
    CONFIG_MAPS, Cluster, DEPLOYMENTS, NODES, PODS, containers, containers_of, of_type,
};

/// The pods that are looked at where nothing says which ranges they have, and the networks of theirs that are named.
const PODS_LOOKED_AT: u32 = 500;
const NETWORKS_NAMED: usize = 8;

/// The pod ranges of a cluster.
#[derive(Clone, Default)]
pub(super) struct PodRanges {
    pub(super) ranges: Vec<IpNet>,
    /// Whether they are from the command line.
    pub(super) are_given: bool,
    pub(super) warning: Option<String>,
}

impl PodRanges {
    /// The ranges from the controller's flag, the CNI, kubeadm or the nodes of a cluster, with a warning if they may be incomplete.
    /// Without ranges the warning says which addresses its pods have.
    pub(super) async fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let named = format!("metadata.name={}", well_known::CONTROLLER);
        let named = ListParams::default().fields(&named);
        let namespace = Some(well_known::CONTROLLER);
        let controllers = cluster.list_if_readable(DEPLOYMENTS, namespace, &named).await?;
        let mut ranges: Vec<_> =
            controllers.iter().flat_map(|one| of_flag(one, "--pod-cidr")).collect();
        if ranges.is_empty() {
            ranges = cni::ranges(cluster).await?;
        }
        if !ranges.is_empty() {
            return Ok(Self { ranges, ..Self::default() });
        }
        let found = Self::of_kubernetes(cluster).await?;
        if !found.ranges.is_empty() {
            return Ok(found);
        }
        let some = ListParams::default().limit(PODS_LOOKED_AT);
        let pods = cluster.list_if_readable(PODS, None, &some).await?;
        Ok(Self { warning: seen(&pods), ..Self::default() })
    }

    /// The ranges from kubeadm or the nodes. A pool of a CNI can be far wider than what pods of the cluster have.
    pub(super) async fn of_kubernetes(cluster: &Cluster) -> anyhow::Result<Self> {
        let kubeadm = cluster.get(CONFIG_MAPS, Some("kube-system"), "kubeadm-config").await?;
        let of_kubeadm = kubeadm.as_ref().map(subnets).unwrap_or_default();
        if !of_kubeadm.is_empty() {
            return Ok(Self { ranges: of_kubeadm, ..Self::default() });
        }
        let nodes: Vec<Node> = of_type(&cluster.list(NODES).await?);
        let ranges: Vec<_> = nodes.iter().flat_map(|node| node.spec.pod_ranges()).collect();
        let managers = ListParams::default().labels("component=kube-controller-manager");
        let managers = cluster.list_if_readable(PODS, Some("kube-system"), &managers).await?;
        if let Some(all) = managers.iter().find_map(|pod| of_manager(pod, &ranges)) {
            return Ok(Self { ranges: all, ..Self::default() });
        }
        let id = &cluster.id;
        let warning = format!(
            "the pod range of cluster {id} is that of its nodes now, and endpoints on new nodes would be refused: \
             give --pod-cidr {id}=CIDR"
        );
        let ranges = IpNet::aggregate(&ranges);
        Ok(Self { ranges, are_given: false, warning: Some(warning) })
    }

    /// Fails without ranges, and says what to give.
    pub(super) fn ensure_known(&self, id: &ClusterId) -> anyhow::Result<()> {
        let seen = self.warning.as_ref().map(|seen| format!(". {seen}")).unwrap_or_default();
        ensure!(
            !self.ranges.is_empty(),
            "neither its peers, nor its controller, nor its CNI, nor kubeadm, nor its nodes say which addresses the pods of cluster {id} have: give \
             --pod-cidr {id}=CIDR, or {id}=CIDR,CIDR for two families{seen}"
        );
        Ok(())
    }
}

/// `--cluster-cidr` of a controller manager from which nodes have these ranges. Without ranges of nodes it means nothing: a CNI that
/// chooses addresses itself need not follow it.
fn of_manager(pod: &Value, nodes: &[IpNet]) -> Option<Vec<IpNet>> {
    let words = containers_of(&pod["spec"]).flat_map(|one| [&one["command"], &one["args"]]);
    let mut words = words.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let all: Vec<_> =
        listed(words.find_map(|word| word.strip_prefix("--cluster-cidr="))?).collect();
    let is_in = |node: &IpNet| all.iter().any(|range| range.contains(node));
    (!nodes.is_empty() && nodes.iter().all(is_in)).then_some(all)
}

/// The ranges that a flag of a Deployment gives, once or several times.
pub(super) fn of_flag(deployment: &Value, flag: &str) -> Vec<IpNet> {
    let words = containers(deployment).filter_map(|one| one["args"].as_array()).flatten();
    let words = words.filter_map(Value::as_str);
    let values = words.filter_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    values.flat_map(listed).collect()
}

/// Which addresses these pods have, in a sentence: networks of the size that a node often has.
fn seen(pods: &[Value]) -> Option<String> {
    let own = pods.iter().filter(|pod| pod["spec"]["hostNetwork"] != true);
    let ips = own.flat_map(|pod| pod["status"]["podIPs"].as_array().into_iter().flatten());
    let networks: BTreeSet<IpNet> = ips
        .filter_map(|ip| {
            let ip: IpAddr = ip["ip"].as_str()?.parse().ok()?;
            IpNet::new(ip, if ip.is_ipv4() { 24 } else { 64 }).ok().map(|network| network.trunc())
        })
        .collect();
    let named: Vec<_> = networks.iter().take(NETWORKS_NAMED).copied().collect();
    let more = match networks.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more networks"),
    };
    let has_some = !named.is_empty();
    has_some.then(|| format!("Its pods have addresses of {}{more} now", joined(&named)))
}

/// The ranges in a text, with commas or spaces between them.
fn listed(text: &str) -> impl Iterator<Item = IpNet> {
    let texts = text.split([',', ' ']).map(str::trim);
    texts.filter_map(|one| one.parse().ok())
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
    listed(subnets).collect()
}

/// Ranges as one text.
pub(super) fn joined(ranges: &[IpNet]) -> String {
    let texts: Vec<_> = ranges.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use mcs_kube::testing::ScriptedAnswer;
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::scripted;

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
    fn the_flag_of_the_controller_manager_counts_where_nodes_follow_it() {
        let command = json!(["kube-controller-manager", "--cluster-cidr=10.1.0.0/16,fd01::/48"]);
        let pod = json!({"spec": {"containers": [{"command": command}]}});
        let of = |nodes: &[&str]| {
            let nodes: Vec<_> = nodes.iter().map(|range| range.parse().unwrap()).collect();
            of_manager(&pod, &nodes).map(|all| joined(&all))
        };
        assert_eq!(of(&["10.1.3.0/24", "fd01:0:0:3::/64"]).unwrap(), "10.1.0.0/16,fd01::/48");
        assert_eq!(of(&["10.1.3.0/24", "10.9.0.0/24"]), None, "another range is in use");
        assert_eq!(of(&[]), None, "nodes have no ranges");
        assert_eq!(of_manager(&json!({}), &["10.1.3.0/24".parse().unwrap()]), None);
    }

    #[test]
    fn ranges_can_be_in_one_flag_or_in_several() {
        let args = json!(["run", "--pod-cidr=10.1.0.0/16", "--pod-cidr=10.2.0.0/16,fd00::/48"]);
        let deployment = json!({"spec": {"template": {"spec": {"containers": [{"args": args}]}}}});
        let found = joined(&of_flag(&deployment, "--pod-cidr"));
        assert_eq!(found, "10.1.0.0/16,10.2.0.0/16,fd00::/48");
        assert!(of_flag(&json!({}), "--pod-cidr").is_empty());
    }

    #[tokio::test]
    async fn the_flag_of_the_controller_comes_first() {
        let args = json!(["run", "--pod-cidr=10.1.0.0/16"]);
        let controller = json!({"metadata": {"name": "mcs-controller"}, "spec": {"template": {"spec": {"containers": [{"args": args}]}}}});
        let answers = [ScriptedAnswer::list("1", [controller])];
        let (cluster, mut server, _file) = scripted("east", answers).await;
        let found = PodRanges::of(&cluster).await.unwrap();
        assert_eq!(joined(&found.ranges), "10.1.0.0/16");
        assert!(server.asked().await.contains("/namespaces/mcs-controller/deployments?"));
    }

    #[tokio::test]
    async fn a_caller_who_may_not_see_objects_of_the_cni_gets_the_ranges_of_nodes() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.1.3.0/24"]}});
        // The controller, four lists of objects of CNIs, kubeadm, the nodes, and the controller manager.
        let refused = (0..5).map(|_| ScriptedAnswer::error(403));
        let rest = [
            ScriptedAnswer::error(404),
            ScriptedAnswer::list("1", [node]),
            ScriptedAnswer::error(403),
        ];
        let (cluster, _server, _file) = scripted("east", refused.chain(rest)).await;
        let found = PodRanges::of(&cluster).await.unwrap();
        assert_eq!(joined(&found.ranges), "10.1.3.0/24");
        assert!(found.warning.unwrap().contains("endpoints on new nodes would be refused"));
    }

    #[test]
    fn pods_say_what_to_give_where_nothing_else_does() {
        let pod = |ips: &[&str], is_of_host: bool| {
            let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
            json!({"spec": {"hostNetwork": is_of_host}, "status": {"podIPs": ips}})
        };
        let pods = [
            pod(&["10.1.3.7", "fd01:0:0:3::7"], false),
            pod(&["10.1.3.8"], false),
            pod(&["192.168.0.1"], true),
        ];
        let ranges = PodRanges { warning: seen(&pods), ..PodRanges::default() };
        let said = ranges.ensure_known(&"east".parse().unwrap()).unwrap_err().to_string();
        assert!(said.contains("give --pod-cidr east=CIDR, or east=CIDR,CIDR"), "{said}");
        let expected = ". Its pods have addresses of 10.1.3.0/24,fd01:0:0:3::/64 now";
        assert!(said.ends_with(expected), "{said}");
        let many: Vec<_> = (0..12).map(|n| pod(&[&format!("10.1.{n}.7")], false)).collect();
        assert!(seen(&many).unwrap().ends_with("10.1.7.0/24 and 4 more networks now"));
        assert_eq!(seen(&[]), None);
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
