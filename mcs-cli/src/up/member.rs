//! A cluster of `mcs up` as it is.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use ipnet::IpNet;
use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::objects::{self, EndpointSlice};
use serde_json::{Value, json};

use super::{chart::ChartArgs, types::Types};
use crate::{
    cluster::{Cluster, ID_PROPERTY, NODES, PEERS, PROPERTIES, SLICES},
    dns,
    kubeconfig::KubeconfigArg,
    link,
    pod_ranges::{self, PodRanges, RangeList},
};

/// The oldest kernel that the programs of the agent run on (mcs-ebpf/README.md).
const OLDEST_KERNEL: [u32; 2] = [5, 10];
/// The name of a clusterset that nobody has named.
const DEFAULT_SET: &str = "default";

/// Settings that a cluster does not provide itself.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// The name of the clusterset [default: the one that the clusters have, or `default`]
    #[arg(long, value_name = "NAME")]
    clusterset: Option<String>,

    /// The pod ranges of a cluster, with commas between them; repeatable [default: those in the ClusterPeers of the others, or in
    /// objects of the CNI, or podSubnet of kubeadm, or else the ranges of its nodes]
    #[arg(long, value_name = "ID=CIDR", value_parser = link::pair::<RangeList>)]
    pub(super) pod_cidr: Vec<(ClusterId, RangeList)>,

    /// How other clusters reach the API server of a cluster, or of the hub (`hub=URL`) [default: as its kubeconfig says; if that
    /// is an address of this machine, the one that the cluster itself uses]
    #[arg(long, value_name = "ID=URL", value_parser = link::pair::<String>)]
    pub(super) server: Vec<(ClusterId, String)>,

    /// Leave DNS as it is
    #[arg(long)]
    no_dns: bool,
}

/// A cluster with its present state.
pub(crate) struct Member {
    pub(crate) cluster: Cluster,
    pub(super) kubeconfig: KubeconfigArg,
    pub(super) properties: Properties,
    pub(super) types: Types,
    /// The plan for its DNS. `None`: unchanged.
    pub(super) dns: Option<dns::Plan>,
    /// The URL by which others reach its API server, if that is not the one of the kubeconfig.
    pub(super) server: Option<String>,
    /// Its ClusterPeers.
    pub(super) peers: Vec<Value>,
    pub(super) pods: Vec<IpNet>,
    pub(super) nodes: usize,
}

impl Member {
    /// Reads the inputs of the plan from a cluster. Changes nothing.
    pub(super) async fn inspect(
        args: &MemberArgs,
        chart: &ChartArgs,
        kubeconfig: &KubeconfigArg,
    ) -> anyhow::Result<Self> {
        let (cluster, properties) = open(kubeconfig).await?;
        let id = cluster.id.clone();
        let inspected = Self::inspect_cluster(args, chart, cluster, kubeconfig, properties);
        let context = kubeconfig.context_name()?;
        inspected.await.with_context(|| format!("cluster {id} (context {context})"))
    }

    async fn inspect_cluster(
        args: &MemberArgs,
        chart: &ChartArgs,
        cluster: Cluster,
        kubeconfig: &KubeconfigArg,
        properties: Properties,
    ) -> anyhow::Result<Self> {
        ensure_administrator(&cluster).await?;
        let nodes = cluster.list(NODES).await?;
        ensure_kernels(&nodes)?;
        let given = args.server.iter().find(|(id, _)| *id == cluster.id);
        let server = match given {
            Some((_, url)) => Some(url.clone()),
            None if is_of_this_machine(&cluster.server) => Some(own_url(&cluster).await?),
            None => None,
        };
        Ok(Self {
            types: Types::missing(chart, &cluster).await?,
            dns: if args.no_dns { None } else { Some(dns::Plan::of(&cluster).await?) },
            peers: cluster.list_if_served(PEERS).await?,
            pods: pod_ranges::given(&args.pod_cidr, &cluster.id),
            properties,
            server,
            nodes: nodes.len(),
            cluster,
            kubeconfig: kubeconfig.clone(),
        })
    }

    /// Adds the ranges of its pods, unless they were given. `peers`: the ClusterPeers of all clusters.
    pub(super) async fn find_pods(&mut self, peers: &[Value]) -> anyhow::Result<()> {
        let id = &self.cluster.id;
        if self.pods.is_empty() {
            self.pods = link::ranges_in(peers, id);
        }
        if self.pods.is_empty() {
            let found = PodRanges::of(&self.cluster).await?;
            found.ensure_known(id)?;
            self.pods = found.ranges;
        }
        Ok(())
    }

    /// Two clusters of a set have different ids and different pods.
    pub(super) fn ensure_apart(&self, other: &Self) -> anyhow::Result<()> {
        let [one, two] = [&self.cluster, &other.cluster];
        if one.id == two.id {
            let is_from_context = |member: &Self| member.properties.id.is_none();
            let advice = if is_from_context(self) || is_from_context(other) {
                "a cluster without id takes the last part of its context's name: rename a context (kubectl config \
                 rename-context OLD NEW)"
            } else {
                "every cluster needs its own: change the ClusterProperty cluster.clusterset.k8s.io of one"
            };
            bail!(
                "the clusters at {} and {} have the same id {}: {advice}",
                one.server,
                two.server,
                one.id
            );
        }
        let overlaps = |range: &&IpNet| {
            other.pods.iter().any(|other| range.contains(other) || other.contains(*range))
        };
        if let Some(range) = self.pods.iter().find(overlaps) {
            bail!(
                "pods of cluster {} and of cluster {} have addresses of {range}: a flat network gives every cluster ranges of its own. If \
                 the pods of one have other ranges, give them by --pod-cidr",
                one.id,
                two.id
            );
        }
        Ok(())
    }

    /// Writes the name of the clusterset, where the chart does not: the id is somebody else's object.
    pub(super) async fn name_set(&self, clusterset: &str) -> anyhow::Result<()> {
        if !self.properties.lack_set() {
            return Ok(());
        }
        let metadata = json!({"name": well_known::CLUSTERSET_PROPERTY});
        let property = json!({"metadata": metadata, "spec": {"value": clusterset}});
        self.cluster.apply(PROPERTIES, property).await
    }
}

/// Opens a cluster that may have no id yet: that is then the name of its context.
pub(super) async fn open(kubeconfig: &KubeconfigArg) -> anyhow::Result<(Cluster, Properties)> {
    let context = kubeconfig.context_name()?;
    let mut cluster = Cluster::open_as(kubeconfig, id_of(&context)?).await?;
    let of_cluster = || format!("cluster {context} at {kubeconfig}");
    let properties = Properties::of(&cluster).await.with_context(of_cluster)?;
    if let Some(id) = &properties.id {
        cluster.id = id.clone();
    }
    Ok((cluster, properties))
}

/// The name of the clusterset: that of the clusters that have one, or the one that is wanted.
pub(super) fn clusterset(args: &MemberArgs, members: &[Member]) -> anyhow::Result<String> {
    let named = members
        .iter()
        .filter_map(|member| Some((member.properties.clusterset.as_deref()?, &member.cluster.id)));
    common_set(args.clusterset.as_deref(), named)
}

fn common_set<'a>(
    wanted: Option<&str>,
    named: impl Iterator<Item = (&'a str, &'a ClusterId)>,
) -> anyhow::Result<String> {
    let mut all = named.collect::<Vec<_>>();
    if let Some(wanted) = wanted {
        if let Some((has, id)) = all.iter().find(|(has, _)| *has != wanted) {
            bail!(
                "cluster {id} is in clusterset {has}, not in {wanted}: leave out --clusterset, or change the ClusterProperty \
                 clusterset.k8s.io"
            );
        }
        return Ok(wanted.to_owned());
    }
    all.dedup_by_key(|(has, _)| *has);
    let sets: BTreeSet<_> = all.iter().map(|(has, _)| *has).collect();
    if sets.len() > 1 {
        let said = all.iter().map(|(has, id)| format!("cluster {id} is in clusterset {has}"));
        bail!("{}", said.collect::<Vec<_>>().join(", "));
    }
    Ok(sets.first().copied().unwrap_or(DEFAULT_SET).to_owned())
}

/// What the ClusterProperties of a cluster say.
pub(super) struct Properties {
    pub(super) id: Option<ClusterId>,
    pub(super) clusterset: Option<String>,
    /// Whether they are not objects of a release of helm.
    pub(super) are_of_others: bool,
}

impl Properties {
    async fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let Some(id) = cluster.get(PROPERTIES, None, ID_PROPERTY).await? else {
            return Ok(Self { id: None, clusterset: None, are_of_others: false });
        };
        let manager = &id["metadata"]["labels"][well_known::MANAGED_BY];
        Ok(Self {
            id: id["spec"]["value"].as_str().map(str::parse).transpose()?,
            clusterset: cluster.property(well_known::CLUSTERSET_PROPERTY).await?,
            are_of_others: manager != "Helm",
        })
    }

    /// Whether nobody writes the name of the clusterset: the chart leaves the properties of others alone.
    pub(super) const fn lack_set(&self) -> bool {
        self.are_of_others && self.clusterset.is_none()
    }
}

/// The id of a cluster by the name of its context: `arn:aws:eks:eu-west-1:1:cluster/east` becomes `east`.
pub(super) fn id_of(context: &str) -> anyhow::Result<ClusterId> {
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
        let slice: EndpointSlice = objects::read(slice).ok()?;
        let address = slice.endpoints.first()?.address()?.parse().ok()?;
        let port = u16::try_from(slice.ports.first()?.port?).ok()?;
        Some(format!("https://{}", SocketAddr::new(address, port)))
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
    fn the_clusterset_has_one_name() {
        let [east, west]: [ClusterId; 2] = ["east", "west"].map(|id| id.parse().unwrap());
        let name = |wanted, named: &[(&'static str, &ClusterId)]| {
            common_set(wanted, named.iter().copied()).map_err(|error| error.to_string())
        };
        assert_eq!(name(None, &[]).unwrap(), "default");
        assert_eq!(name(Some("shop"), &[]).unwrap(), "shop");
        assert_eq!(name(None, &[("shop", &east)]).unwrap(), "shop", "a new cluster joins it");
        assert!(name(Some("bank"), &[("shop", &east)]).unwrap_err().contains("not in bank"));
        assert!(name(None, &[("shop", &east), ("bank", &west)]).is_err());
    }

    #[test]
    fn the_name_is_written_where_nobody_does() {
        let of = |clusterset: Option<&str>, are_of_others| Properties {
            id: None,
            clusterset: clusterset.map(str::to_owned),
            are_of_others,
        };
        assert!(of(None, true).lack_set());
        assert!(!of(Some("shop"), true).lack_set() && !of(None, false).lack_set());
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
