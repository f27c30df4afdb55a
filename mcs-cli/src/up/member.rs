//! A cluster of `mcs up`: its present state, and the plan.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use ipnet::IpNet;
use mcs_controller::clusterset::{ClusterId, well_known};
use serde_json::Value;

use crate::{
    check::{self, API_TYPES, TypeNeeded},
    cluster::{Cluster, ID_PROPERTY, NODES, PROPERTIES, SLICES},
    dns,
    kubeconfig::KubeconfigArg,
    link,
    pod_ranges::{self, PodRanges},
};

/// The oldest kernel that the programs of the agent run on (mcs-ebpf/README.md).
const OLDEST_KERNEL: [u32; 2] = [5, 10];
/// The rights that the chart, the controller and CoreDNS need.
pub(super) const TYPES_NEEDED: [TypeNeeded; 4] = {
    let [exports, imports, of_dns] = API_TYPES;
    [exports, imports, of_dns, (PROPERTIES, "install the CRD of about-api")]
};
/// The name of a clusterset that nobody has named.
const DEFAULT_SET: &str = "default";

/// Settings that a cluster does not provide itself.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// The name of the clusterset [default: the one that the clusters have, or `default`]
    #[arg(long, value_name = "NAME")]
    clusterset: Option<String>,

    /// The pod range of a cluster; repeatable [default: podSubnet of kubeadm, or else the ranges of its nodes]
    #[arg(long, value_name = "ID=CIDR", value_parser = link::pair::<IpNet>)]
    pub(super) pod_cidr: Vec<(ClusterId, IpNet)>,

    /// How other clusters reach the API server of a cluster [default: as its kubeconfig says; if that is an address of this
    /// machine, the one that the cluster itself uses]
    #[arg(long, value_name = "ID=URL", value_parser = link::pair::<String>)]
    server: Vec<(ClusterId, String)>,

    /// Leave DNS as it is
    #[arg(long)]
    no_dns: bool,
}

/// A cluster with its present state.
pub(crate) struct Member {
    pub(crate) cluster: Cluster,
    pub(super) kubeconfig: KubeconfigArg,
    /// The name of its clusterset.
    pub(super) clusterset: String,
    /// Whether somebody else than the chart wrote its id.
    pub(super) has_own_properties: bool,
    pub(super) has_types: bool,
    /// The plan for its DNS. `None`: unchanged.
    pub(super) dns: Option<dns::Plan>,
    /// The URL by which others reach its API server, if that is not the one of the kubeconfig.
    pub(super) server: Option<String>,
    pods: Vec<IpNet>,
    nodes: usize,
}

impl Member {
    /// Reads the inputs of the plan from a cluster. Changes nothing.
    pub(super) async fn inspect(
        args: &MemberArgs,
        kubeconfig: KubeconfigArg,
    ) -> anyhow::Result<Self> {
        let context = kubeconfig.context_name()?;
        let mut cluster = Cluster::open_as(&kubeconfig, id_of(&context)?).await?;
        let of_cluster = || format!("cluster {context} at {}", kubeconfig.clone());
        let properties = Properties::of(&cluster).await.with_context(of_cluster)?;
        if let Some(id) = &properties.id {
            cluster.id = id.clone();
        }
        let inspection = Self::inspect_cluster(args, cluster, kubeconfig.clone(), properties);
        inspection.await.with_context(of_cluster)
    }

    async fn inspect_cluster(
        args: &MemberArgs,
        cluster: Cluster,
        kubeconfig: KubeconfigArg,
        properties: Properties,
    ) -> anyhow::Result<Self> {
        ensure_administrator(&cluster).await?;
        let nodes = cluster.list(NODES).await?;
        ensure_kernels(&nodes)?;
        let clusterset = match (&properties.clusterset, &args.clusterset) {
            (Some(has), Some(wanted)) if has != wanted => bail!(
                "it is in clusterset {has}, not in {wanted}: leave out --clusterset, or change the ClusterProperty clusterset.k8s.io"
            ),
            (has, wanted) => has.as_ref().or(wanted.as_ref()).cloned(),
        };
        let given = args.pod_cidr.iter().filter(|(id, _)| *id == cluster.id);
        let mut pods: Vec<IpNet> = given.map(|(_, range)| *range).collect();
        if pods.is_empty() {
            pods = PodRanges::of(&cluster).await?.ranges;
        }
        ensure!(
            !pods.is_empty(),
            "neither kubeadm nor its nodes say which addresses its pods have: give --pod-cidr {}=CIDR",
            cluster.id
        );
        let has_types = check::serves(&cluster, &TYPES_NEEDED).await.is_ok();
        let dns = if args.no_dns { None } else { Some(dns::Plan::of(&cluster).await?) };
        let given = args.server.iter().find(|(id, _)| *id == cluster.id);
        let server = match given {
            Some((_, url)) => Some(url.clone()),
            None if is_of_this_machine(&cluster.server) => Some(own_url(&cluster).await?),
            None => None,
        };
        Ok(Self {
            clusterset: clusterset.unwrap_or_else(|| DEFAULT_SET.to_owned()),
            has_own_properties: properties.are_of_others,
            has_types,
            dns,
            server,
            pods,
            nodes: nodes.len(),
            cluster,
            kubeconfig,
        })
    }

    /// Two clusters of a set have different ids, one set and different pods.
    pub(super) fn ensure_apart(&self, other: &Self) -> anyhow::Result<()> {
        let [one, two] = [&self.cluster, &other.cluster];
        ensure!(
            one.id != two.id,
            "the clusters at {} and {} have the same id {}",
            one.server,
            two.server,
            one.id
        );
        ensure!(
            self.clusterset == other.clusterset,
            "cluster {} is in clusterset {}, and {} in {}",
            one.id,
            self.clusterset,
            two.id,
            other.clusterset
        );
        let overlaps = |range: &&IpNet| {
            other.pods.iter().any(|other| range.contains(other) || other.contains(*range))
        };
        if let Some(range) = self.pods.iter().find(overlaps) {
            bail!(
                "pods of cluster {} and of cluster {} have addresses of {range}: a flat network gives every cluster ranges of its own",
                one.id,
                two.id
            );
        }
        Ok(())
    }

    /// What will be done: each step and its object.
    pub(super) fn plan(&self) -> Vec<(&'static str, String)> {
        let id = &self.cluster.id;
        let types = if self.has_types {
            "are there"
        } else {
            "install ServiceImport, ServiceExport and ClusterProperty"
        };
        let dns = self.dns.as_ref().map_or_else(|| "left as it is".to_owned(), dns::Plan::text);
        let server = self.server.as_ref().map_or_else(
            || self.cluster.server.clone(),
            |url| format!("{url} (the kubeconfig has {})", self.cluster.server),
        );
        vec![
            ("types", types.to_owned()),
            (
                "chart",
                format!(
                    "release mcs: id {id}, clusterset {}, {} nodes",
                    self.clusterset, self.nodes
                ),
            ),
            ("dns", dns),
            (
                "link",
                format!(
                    "others reach it at {server}; its pods have {}",
                    pod_ranges::joined(&self.pods)
                ),
            ),
        ]
    }
}

/// What the ClusterProperties of a cluster say.
struct Properties {
    id: Option<ClusterId>,
    clusterset: Option<String>,
    /// Whether they are not objects of a release of helm.
    are_of_others: bool,
}

impl Properties {
    async fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let Some(id) = cluster.property_object(ID_PROPERTY).await? else {
            return Ok(Self { id: None, clusterset: None, are_of_others: false });
        };
        let manager = &id["metadata"]["labels"][well_known::MANAGED_BY];
        Ok(Self {
            id: id["spec"]["value"].as_str().map(str::parse).transpose()?,
            clusterset: cluster.property(well_known::CLUSTERSET_PROPERTY).await?,
            are_of_others: manager != "Helm",
        })
    }
}

/// The id of a cluster by the name of its context: `arn:aws:eks:eu-west-1:1:cluster/east` becomes `east`.
fn id_of(context: &str) -> anyhow::Result<ClusterId> {
    let last = context.rsplit('/').next().unwrap_or(context).to_lowercase();
    let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let label: String =
        last.chars().map(|letter| if is_allowed(letter) { letter } else { '-' }).collect();
    let label = label.trim_matches('-');
    label
        .parse()
        .with_context(|| format!("the context {context} makes no id of a cluster: rename it"))
}

/// helm installs roles of the whole cluster, which takes every right.
async fn ensure_administrator(cluster: &Cluster) -> anyhow::Result<()> {
    ensure!(
        cluster.may(None, ("*", "*", "*")).await?,
        "the kubeconfig is not that of an administrator: it takes the right to do everything (cluster-admin)"
    );
    Ok(())
}

/// The agent runs on every node.
fn ensure_kernels(nodes: &[Value]) -> anyhow::Result<()> {
    let too_old = nodes.iter().filter_map(|node| {
        let version = node["status"]["nodeInfo"]["kernelVersion"].as_str()?;
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let is_linux = node["status"]["nodeInfo"]["operatingSystem"] != "windows";
        let is_old = kernel(version).is_some_and(|version| version < OLDEST_KERNEL);
        (is_linux && is_old).then(|| format!("{name} ({version})"))
    });
    let too_old: Vec<_> = too_old.collect();
    ensure!(
        too_old.is_empty(),
        "nodes with a kernel before {}.{}, which the agent needs: {}",
        OLDEST_KERNEL[0],
        OLDEST_KERNEL[1],
        too_old.join(", ")
    );
    Ok(())
}

/// `6.1.0-18-amd64` is 6.1.
fn kernel(version: &str) -> Option<[u32; 2]> {
    let mut parts = version.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some([parts.next()?.ok()?, parts.next()?.ok()?])
}

/// Whether pods cannot reach this URL, as in the kubeconfigs of kind.
fn is_of_this_machine(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = |ip: IpAddr| ip.is_loopback() || ip == IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

/// The URL by which the pods of a cluster reach its API server without kube-proxy.
async fn own_url(cluster: &Cluster) -> anyhow::Result<String> {
    let slice = cluster.get(SLICES, Some("default"), "kubernetes").await?;
    let slice = slice.as_ref().and_then(|slice| {
        let address = slice["endpoints"][0]["addresses"][0].as_str()?.parse::<IpAddr>().ok()?;
        let port = slice["ports"][0]["port"].as_u64()?;
        Some(match address {
            IpAddr::V4(address) => format!("https://{address}:{port}"),
            IpAddr::V6(address) => format!("https://[{address}]:{port}"),
        })
    });
    slice.with_context(|| {
        format!(
            "its kubeconfig has {}, which is this machine, and no EndpointSlice default/kubernetes says where its API server is: give \
             --server {}=https://...",
            cluster.server, cluster.id
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_context_makes_the_id() {
        for (context, id) in [
            ("east", "east"),
            ("kind-east", "kind-east"),
            ("arn:aws:eks:eu-west-1:123456789012:cluster/Prod_East", "prod-east"),
            ("gke_project_europe-west1_east", "gke-project-europe-west1-east"),
            ("admin@east.example", "admin-east-example"),
        ] {
            assert_eq!(id_of(context).unwrap().as_str(), id);
        }
        assert!(id_of("___").is_err());
    }

    #[test]
    fn an_address_of_this_machine_serves_nobody_else() {
        for (url, is_own) in [
            ("https://127.0.0.1:41234", true),
            ("https://[::1]:6443", true),
            ("https://localhost:6443", true),
            ("https://0.0.0.0:6443", true),
            ("https://10.0.0.1:6443", false),
            ("https://east.example", false),
        ] {
            assert_eq!(is_of_this_machine(url), is_own, "{url}");
        }
    }

    #[test]
    fn nodes_with_an_old_kernel_are_named() {
        let node = |version: &str| json!({"metadata": {"name": "n"}, "status": {"nodeInfo": {"kernelVersion": version}}});
        for (version, is_fine) in [
            ("5.10.0-28-amd64", true),
            ("6.1.0", true),
            ("5.4.0-1103-aws", false),
            ("4.18.0-553.el8", false),
            ("odd", true),
        ] {
            assert_eq!(ensure_kernels(&[node(version)]).is_ok(), is_fine, "{version}");
        }
    }
}
