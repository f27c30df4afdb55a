//! `mcs dns`: edits the configuration of CoreDNS and NodeLocal DNSCache for names in clusterset.local.

mod plan;
mod sources;
mod write;

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use mcs_kube::program::{self, print};
use serde_json::Value;

pub(crate) use self::{
    plan::{Plan, apply, undo},
    sources::{Sources, View, link_local_nameserver},
};
use crate::{
    cluster::{Cluster, DAEMON_SETS, DEPLOYMENTS, containers},
    kubeconfig::ClusterArgs,
};

pub(crate) const SYSTEM: &str = "kube-system";
/// The ConfigMap of server blocks that some distributions import.
const CUSTOM: &str = "coredns-custom";
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
    /// The type ServiceImport and the right to list it have to be there. The former configuration stays as an annotation. Nothing is
    /// written where another DNS answers clusterset.local, or where a Corefile cannot be parsed.
    Apply(VerbArgs),
    /// Take out what `apply` has added, and nothing else
    ///
    /// A block that answers clusterset.local and that others wrote is named, and stays.
    Undo(VerbArgs),
}

#[derive(Debug, Args)]
struct VerbArgs {
    #[command(flatten)]
    clusters: ClusterArgs,
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

pub(crate) fn corefile_of(config: &Value) -> &str {
    config["data"]["Corefile"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
