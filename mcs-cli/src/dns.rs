//! `mcs dns`: edits the configuration of CoreDNS and NodeLocal DNSCache for names in clusterset.local.

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use mcs_kube::program::{self, print};
use serde_json::{Value, json};

use crate::{
    cluster::{CONFIG_MAPS, Cluster, DAEMON_SETS, DEPLOYMENTS, containers},
    corefile,
    kubeconfig::ClusterArgs,
};

pub(crate) const SYSTEM: &str = "kube-system";
/// The ConfigMap of server blocks that some distributions import, and our key there.
pub(crate) const CUSTOM: &str = "coredns-custom";
const CUSTOM_KEY: &str = "clusterset.server";
/// The annotation of a ConfigMap with the former Corefile.
const BACKUP: &str = "clusterset.mcs-agent.io/corefile-before";
/// The first version of CoreDNS with `multicluster`.
pub(crate) const FIRST_VERSION: [u64; 3] = [1, 12, 2];

/// Let the DNS of clusters answer names in clusterset.local, or take that away.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs dns apply --context east
  mcs dns undo --context east --context west")]
pub(crate) struct DnsCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add the block for clusterset.local to the configuration of CoreDNS, and of NodeLocal DNSCache if it is there
    ///
    /// The type ServiceImport and the right to list it have to be there. The former configuration stays as an annotation.
    Apply(VerbArgs),
    /// Take out what `apply` has added; other lines stay as they are
    Undo(VerbArgs),
}

#[derive(Debug, Args)]
struct VerbArgs {
    #[command(flatten)]
    clusters: ClusterArgs,
}

/// How the DNS of a cluster is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Provider {
    /// By the ConfigMap `coredns`.
    Corefile,
    /// The ConfigMap `coredns` imports blocks of `coredns-custom`, as in k3s and AKS.
    Custom,
}

/// Why the DNS of a cluster is not edited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum DnsError {
    #[error(
        "GKE's kube-dns cannot answer names in clusterset.local: install CoreDNS beside it, and let kube-dns send it the zone \
         (stubDomains of the ConfigMap kube-dns)"
    )]
    KubeDns,
    #[error(
        "the DNS operator of OpenShift writes the Corefile: run a CoreDNS with the block of deploy/dns, and let the operator send it \
         the zone (spec.servers of dns.operator/default)"
    )]
    OpenShift,
    #[error(
        "RKE2 writes the Corefile from its chart rke2-coredns: add the block of deploy/dns by a HelmChartConfig (servers), since an \
         edit of the ConfigMap is lost"
    )]
    Rke2,
    #[error(
        "there is no Deployment kube-system/coredns: let your DNS server answer clusterset.local (deploy/dns)"
    )]
    Unknown,
}

/// The plan for the DNS of a cluster.
pub(crate) struct Plan {
    pub(crate) provider: Provider,
    /// The ServiceAccount of CoreDNS.
    pub(crate) account: String,
    /// Whether DNS already answers the names.
    pub(crate) is_done: bool,
    pub(crate) has_node_local: bool,
    /// A note for the operator.
    pub(crate) notes: Vec<String>,
}

impl Plan {
    /// Plans for a cluster. Changes nothing.
    ///
    /// # Errors
    /// The DNS of the cluster is none that can be edited, or CoreDNS is too old.
    pub(crate) async fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let deployment = cluster.get(DEPLOYMENTS, Some(SYSTEM), "coredns").await?;
        let Some(deployment) = deployment else { return Err(other(cluster).await?.into()) };
        let config = cluster.get(CONFIG_MAPS, Some(SYSTEM), "coredns").await?;
        let config = config.with_context(|| format!("there is no ConfigMap {SYSTEM}/coredns"))?;
        let text = corefile_of(&config);
        let custom = cluster.get(CONFIG_MAPS, Some(SYSTEM), CUSTOM).await?;
        let provider =
            if corefile::imports_servers(text) { Provider::Custom } else { Provider::Corefile };
        let is_done = corefile::serves_zone(text)
            || provider == Provider::Custom && custom.as_ref().is_some_and(has_server);
        if !is_done {
            ensure_version(&deployment)?;
        }
        let mut notes = Vec::new();
        if deployment["metadata"]["labels"]["eks.amazonaws.com/component"] == "coredns" {
            notes.push(
                "an update of EKS's add-on coredns resets the Corefile: put the block into the add-on's configuration too"
                    .to_owned(),
            );
        }
        let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str();
        let node_local = cluster.get(CONFIG_MAPS, Some(SYSTEM), "node-local-dns").await?;
        Ok(Self {
            provider,
            account: account.unwrap_or("default").to_owned(),
            is_done,
            has_node_local: node_local.is_some(),
            notes,
        })
    }

    /// The plan in a line.
    pub(crate) fn text(&self) -> String {
        let place = match self.provider {
            Provider::Corefile => "add the block for clusterset.local to the ConfigMap coredns",
            Provider::Custom => {
                "add the block for clusterset.local to the ConfigMap coredns-custom"
            }
        };
        let what = if self.is_done { "CoreDNS answers clusterset.local already" } else { place };
        let node_local = if self.has_node_local { ", and see to NodeLocal DNSCache" } else { "" };
        let notes: Vec<_> = self.notes.iter().map(|note| format!("; note: {note}")).collect();
        format!("{what}{node_local}{}", notes.concat())
    }
}

pub(crate) fn run(command: &DnsCommand) -> anyhow::Result<ExitCode> {
    program::block_on(async {
        let (args, is_apply) = match &command.verb {
            Verb::Apply(args) => (args, true),
            Verb::Undo(args) => (args, false),
        };
        for cluster in Cluster::open_all(&args.clusters.named()?).await? {
            let done = if is_apply { apply(&cluster).await } else { undo(&cluster).await };
            let done = done.with_context(|| format!("cluster {}", cluster.id))?;
            print(&format!("{}: {}", cluster.id, done.join("; ")))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Adds the missing configuration. Returns the changes.
///
/// # Errors
/// The DNS cannot be edited. Nothing is changed then.
pub(crate) async fn apply(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let plan = Plan::of(cluster).await?;
    let mut done = Vec::new();
    match plan.provider {
        _ if plan.is_done => done.push("CoreDNS has the block for clusterset.local".to_owned()),
        Provider::Corefile => done.extend(edit(cluster, "coredns", corefile::with_zone).await?),
        Provider::Custom => {
            write_custom(cluster, Some(corefile::BLOCK)).await?;
            done.push(format!("added the block for clusterset.local to ConfigMap {CUSTOM}"));
        }
    }
    if !plan.is_done {
        done.extend(restart_unless_it_reloads(cluster).await?);
    }
    if plan.has_node_local {
        let edited = edit(cluster, "node-local-dns", corefile::node_local_with_zone).await?;
        done.extend(restart_node_local(cluster, edited).await?);
    }
    done.extend(plan.notes);
    Ok(done)
}

/// Removes the additions of [`apply`]. Returns the changes.
///
/// # Errors
/// A configuration cannot be read or written.
pub(crate) async fn undo(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let mut done = Vec::new();
    if cluster.get(CONFIG_MAPS, Some(SYSTEM), "coredns").await?.is_some() {
        done.extend(edit(cluster, "coredns", corefile::without_zone).await?);
    }
    let custom = cluster.get(CONFIG_MAPS, Some(SYSTEM), CUSTOM).await?;
    if custom.is_some_and(|custom| !custom["data"][CUSTOM_KEY].is_null()) {
        write_custom(cluster, None).await?;
        done.push(format!("took the block out of ConfigMap {CUSTOM}"));
    }
    if done.is_empty() {
        done.push("CoreDNS has no block for clusterset.local".to_owned());
    } else {
        done.extend(restart_unless_it_reloads(cluster).await?);
    }
    if cluster.get(CONFIG_MAPS, Some(SYSTEM), "node-local-dns").await?.is_some() {
        let edited = edit(cluster, "node-local-dns", corefile::node_local_without_zone).await?;
        done.extend(restart_node_local(cluster, edited).await?);
    }
    Ok(done)
}

/// The DNS of a cluster without a CoreDNS of the usual name.
async fn other(cluster: &Cluster) -> anyhow::Result<DnsError> {
    let exists = async |kind, namespace, name| {
        Ok::<_, anyhow::Error>(cluster.get(kind, Some(namespace), name).await?.is_some())
    };
    Ok(if exists(DEPLOYMENTS, SYSTEM, "kube-dns").await? {
        DnsError::KubeDns
    } else if exists(DAEMON_SETS, "openshift-dns", "dns-default").await? {
        DnsError::OpenShift
    } else if exists(DEPLOYMENTS, SYSTEM, "rke2-coredns-rke2-coredns").await? {
        DnsError::Rke2
    } else {
        DnsError::Unknown
    })
}

/// An older CoreDNS does not start with the block. One whose version is unknown may be older.
fn ensure_version(deployment: &Value) -> anyhow::Result<()> {
    let image = images(deployment).next().unwrap_or_default();
    let Some(version) = images(deployment).find_map(version) else {
        bail!(
            "the image {image} of CoreDNS has no version as tag, and one before 1.12.2 would not start with the block: add it by hand \
             (deploy/dns) if yours can do it"
        );
    };
    ensure!(
        version >= FIRST_VERSION,
        "{image} is too old: CoreDNS 1.12.2 is the first that can answer clusterset.local"
    );
    Ok(())
}

/// The images of a Deployment's containers.
pub(crate) fn images(deployment: &Value) -> impl Iterator<Item = &str> {
    containers(deployment).filter_map(|one| one["image"].as_str())
}

/// The version in the tag of an image.
pub(crate) fn version(image: &str) -> Option<[u64; 3]> {
    let tag = image.split('@').next()?.rsplit_once(':')?.1;
    let mut parts = tag.trim_start_matches('v').split(['.', '-']).map(str::parse);
    Some([parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?])
}

/// Whether a file of server blocks in this ConfigMap serves the zone.
pub(crate) fn has_server(custom: &Value) -> bool {
    let files = custom["data"].as_object().into_iter().flatten();
    files
        .filter(|(file, _)| file.ends_with(".server"))
        .any(|(_, text)| text.as_str().is_some_and(corefile::serves_zone))
}

pub(crate) fn corefile_of(config: &Value) -> &str {
    config["data"]["Corefile"].as_str().unwrap_or_default()
}

type Edit = fn(&str) -> Result<String, corefile::CorefileError>;

/// Changes the Corefile of a ConfigMap. Returns the change, if any. A concurrent write makes the request fail.
async fn edit(cluster: &Cluster, name: &str, edit: Edit) -> anyhow::Result<Option<String>> {
    let config = cluster.get(CONFIG_MAPS, Some(SYSTEM), name).await?;
    let config = config.with_context(|| format!("there is no ConfigMap {SYSTEM}/{name}"))?;
    let former = corefile_of(&config);
    let what = || format!("the Corefile of ConfigMap {SYSTEM}/{name} is left alone");
    let text = edit(former).with_context(what)?;
    if text == former || text.trim_end() == former.trim_end() {
        return Ok(None);
    }
    let object = json!({
        "metadata": {
            "namespace": SYSTEM, "name": name, "annotations": {BACKUP: former},
            "resourceVersion": config["metadata"]["resourceVersion"],
        },
        "data": {"Corefile": text},
    });
    cluster.apply(CONFIG_MAPS, object).await?;
    Ok(Some(format!(
        "changed the Corefile of ConfigMap {name}; annotation {BACKUP} has the former one"
    )))
}

/// Sets or removes our key of the ConfigMap for server blocks. Keys of others stay: each has its manager.
async fn write_custom(cluster: &Cluster, block: Option<&str>) -> anyhow::Result<()> {
    let data = block.map_or_else(|| json!({}), |block| json!({CUSTOM_KEY: block}));
    let metadata = json!({"namespace": SYSTEM, "name": CUSTOM});
    cluster.apply(CONFIG_MAPS, json!({"metadata": metadata, "data": data})).await
}

async fn restart_unless_it_reloads(cluster: &Cluster) -> anyhow::Result<Option<String>> {
    let config = cluster.get(CONFIG_MAPS, Some(SYSTEM), "coredns").await?.unwrap_or_default();
    if corefile::reloads(corefile_of(&config)) {
        return Ok(None);
    }
    restart(cluster, DEPLOYMENTS, "coredns").await?;
    Ok(Some("restarted CoreDNS, whose Corefile has no `reload`".to_owned()))
}

async fn restart_node_local(
    cluster: &Cluster,
    edited: Option<String>,
) -> anyhow::Result<Vec<String>> {
    let Some(edited) = edited else { return Ok(vec![]) };
    let config = cluster.get(CONFIG_MAPS, Some(SYSTEM), "node-local-dns").await?;
    if config.is_some_and(|config| corefile::reloads(corefile_of(&config))) {
        return Ok(vec![edited]);
    }
    restart(cluster, DAEMON_SETS, "node-local-dns").await?;
    Ok(vec![edited, "restarted NodeLocal DNSCache".to_owned()])
}

/// Restarts as `kubectl rollout restart` does.
async fn restart(cluster: &Cluster, kind: crate::cluster::Kind, name: &str) -> anyhow::Result<()> {
    if let Some(draft) = &cluster.draft {
        let kind = kind.2.to_lowercase();
        draft.comment(&format!(
            "Not an object: kubectl rollout restart --namespace {SYSTEM} {kind}/{name}"
        ));
        return Ok(());
    }
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": Timestamp::now().to_string()});
    let template = json!({"metadata": {"annotations": annotations}});
    let metadata = json!({"namespace": SYSTEM, "name": name});
    cluster.apply(kind, json!({"metadata": metadata, "spec": {"template": template}})).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(image: &str) -> Value {
        json!({"spec": {"template": {"spec": {"containers": [{"image": image}]}}}})
    }

    #[test]
    fn a_coredns_that_may_not_start_with_the_block_is_left_alone() {
        for (image, is_fine) in [
            ("registry.k8s.io/coredns/coredns:v1.12.2", true),
            ("localhost:5000/coredns:1.9.0-alpine@sha256:00", false),
            ("coredns:latest", false),
            ("coredns", false),
        ] {
            assert_eq!(ensure_version(&deployment(image)).is_ok(), is_fine, "{image}");
        }
        assert_eq!(version("coredns:v1.12.2"), Some([1, 12, 2]));
    }

    #[test]
    fn a_block_among_imported_servers_is_found() {
        assert!(has_server(&json!({ "data": { "mcs.server": corefile::BLOCK } })));
        assert!(!has_server(&json!({ "data": { "mcs.override": corefile::BLOCK } })));
        assert!(!has_server(&json!({})));
    }
}
