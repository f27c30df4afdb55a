//! Installs the types and the chart in a cluster, by kubectl and helm.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use tokio::{process::Command, time::Instant};

use super::{
    member::{Member, TYPES_NEEDED},
    pending,
};
use crate::{
    check,
    draft::Draft,
    kubeconfig::KubeconfigArg,
    tool::{output, run, tool},
    wait,
};

/// The release, and the namespace of the agents.
const RELEASE: &str = "mcs";
const NAMESPACE: &str = "mcs-system";
/// The time limit for the release's pods to be ready.
const READY_WITHIN: &str = "5m";
/// The time limit for an installed type to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// The types of KEP-1645 and KEP-2149.
const TYPES: [&str; 3] = [
    "https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_serviceimports.yaml",
    "https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_serviceexports.yaml",
    "https://raw.githubusercontent.com/kubernetes-sigs/about-api/master/config/crd/about.k8s.io_clusterproperties.yaml",
];

/// The chart and its values.
#[derive(Debug, Args)]
pub(crate) struct ChartArgs {
    /// The chart `mcs`: a directory, an archive or an address
    #[arg(
        long,
        env = "MCS_CHART",
        value_name = "CHART",
        default_value = "oci://ghcr.io/mcs-agent/charts/mcs"
    )]
    chart: String,

    /// A value of the chart, as helm takes it; repeatable. What an earlier release has set stays
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// A file or URL with types of the Multi-Cluster Services API, where a cluster lacks them; repeatable [default: those of
    /// sigs.k8s.io/mcs-api v0.5.2 and about-api]
    #[arg(long, value_name = "FILE")]
    types: Vec<String>,
}

impl ChartArgs {
    /// The files with the types of the API.
    fn types(&self) -> Vec<&str> {
        let given = self.types.iter().map(String::as_str);
        if self.types.is_empty() { TYPES.to_vec() } else { given.collect() }
    }

    /// The values of a cluster, as helm takes them.
    fn values(&self, member: &Member) -> Vec<String> {
        let mut values = Vec::new();
        if !member.has_own_properties {
            values.push("clusterProperties.create=true".to_owned());
            values.push(format!("global.clusterId={}", member.cluster.id));
            values.push(format!("clusterProperties.clusterset={}", member.clusterset));
        }
        if let Some(dns) = &member.dns {
            values.push(format!("dns.serviceAccount={}", dns.account));
        }
        values.extend_from_slice(&self.set);
        values
    }
}

/// Fails unless both tools exist.
pub(super) async fn ensure_tools() -> anyhow::Result<()> {
    for (tool, arguments) in
        [("helm", ["version", "--short"]), ("kubectl", ["version", "--client"])]
    {
        let mut command = Command::new(tool);
        command.args(arguments);
        run(command).await.with_context(|| format!("{tool} is needed in the PATH"))?;
    }
    Ok(())
}

/// Packs the subcharts of a chart in a directory. A chart in an archive, or at an address, has them.
pub(super) async fn prepare(args: &ChartArgs) -> anyhow::Result<()> {
    if Path::new(&args.chart).join("Chart.yaml").exists() {
        let mut update = Command::new("helm");
        update.args(["dependency", "update", &args.chart]);
        run(update).await?;
    }
    Ok(())
}

/// Installs the types that KEP-1645 and KEP-2149 define.
pub(super) async fn install_types(args: &ChartArgs, member: &Member) -> anyhow::Result<()> {
    for file in args.types() {
        let mut kubectl = tool("kubectl", "--context", &member.kubeconfig)?;
        kubectl.args(["apply", "--server-side", "--filename", file]);
        run(kubectl).await?;
    }
    let served = async || {
        let served = check::serves(&member.cluster, &TYPES_NEEDED).await;
        Ok(served.map_err(|error| format!("the types are installed, and not served: {error:#}")))
    };
    wait::until(Instant::now() + SERVED_WITHIN, served).await
}

/// Installs the chart, or upgrades the release.
pub(super) async fn install(args: &ChartArgs, member: &Member) -> anyhow::Result<()> {
    install_own_types(args, member).await?;
    pending::clear(&member.cluster, NAMESPACE, RELEASE).await?;
    let mut helm = tool("helm", "--kube-context", &member.kubeconfig)?;
    helm.args(["upgrade", "--install", RELEASE, &args.chart]);
    helm.args(["--namespace", NAMESPACE, "--create-namespace", "--reset-then-reuse-values"]);
    helm.args(["--wait", "--timeout", READY_WITHIN]);
    for value in args.values(member) {
        helm.args(["--set", &value]);
    }
    let Err(error) = run(helm).await else { return Ok(()) };
    // The kubelet's messages about the agents' pods are the useful ones.
    match check::agents::on_every_node(&member.cluster).await {
        Err(agents) => bail!("{error:#}; agents: {agents:#}"),
        Ok(_) => Err(error),
    }
}

/// The objects that [`install_types`] and [`install`] would apply, without hooks, which run at an uninstall.
pub(super) async fn draft(args: &ChartArgs, member: &Member) -> anyhow::Result<Draft> {
    let draft = Draft::default();
    if !member.has_types {
        for file in args.types() {
            let mut kubectl = tool("kubectl", "--context", &member.kubeconfig)?;
            kubectl.args(["create", "--dry-run=client", "--output", "yaml", "--filename", file]);
            draft.text_of(&output(kubectl, &[]).await?);
        }
    }
    draft.object(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    )?;
    draft.text_of(&own_types(args).await?);
    let mut helm = tool("helm", "--kube-context", &member.kubeconfig)?;
    helm.args(["template", RELEASE, &args.chart, "--namespace", NAMESPACE]);
    helm.args(["--no-hooks", "--dry-run=server", "--values", "-"]);
    // `helm template` does not ask the cluster.
    let version = member.cluster.client().await?.apiserver_version().await?;
    helm.args(["--kube-version", &version.git_version]);
    for value in args.values(member) {
        helm.args(["--set", &value]);
    }
    let former = former_values(&member.kubeconfig).await?;
    draft.text_of(&output(helm, &former).await?);
    Ok(draft)
}

/// The values of the former release.
async fn former_values(kubeconfig: &KubeconfigArg) -> anyhow::Result<Vec<u8>> {
    let mut list = tool("helm", "--kube-context", kubeconfig)?;
    list.args(["list", "--all", "--short", "--namespace", NAMESPACE]);
    let releases = output(list, &[]).await?;
    if !String::from_utf8_lossy(&releases).lines().any(|name| name == RELEASE) {
        return Ok(Vec::new());
    }
    let mut get = tool("helm", "--kube-context", kubeconfig)?;
    get.args(["get", "values", RELEASE, "--namespace", NAMESPACE, "--output", "yaml"]);
    output(get, &[]).await
}

/// The types of the chart.
async fn own_types(args: &ChartArgs) -> anyhow::Result<Vec<u8>> {
    let mut show = Command::new("helm");
    show.args(["show", "crds", &args.chart]);
    output(show, &[]).await
}

/// Installs the types of the chart, which helm never upgrades.
async fn install_own_types(args: &ChartArgs, member: &Member) -> anyhow::Result<()> {
    let types = own_types(args).await?;
    let mut kubectl = tool("kubectl", "--context", &member.kubeconfig)?;
    kubectl.args(["apply", "--server-side", "--force-conflicts", "--filename", "-"]);
    output(kubectl, &types).await.map(drop)
}

/// Uninstalls the release, if it is there.
pub(super) async fn uninstall(kubeconfig: &KubeconfigArg) -> anyhow::Result<()> {
    let mut helm = tool("helm", "--kube-context", kubeconfig)?;
    helm.args(["uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found"]);
    helm.args(["--wait", "--timeout", READY_WITHIN]);
    run(helm).await
}
