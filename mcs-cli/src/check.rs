//! `mcs check`: checks the needs of a clusterset, and says what to do about failures.

pub(crate) mod addresses;
pub(crate) mod agents;
mod chain;
pub(crate) mod controller;
mod dns;
mod ids;
#[cfg(test)]
mod many_nodes;
mod nodes;
mod others;
mod peers;
pub(crate) mod pods;
mod reach;
mod reports;
pub(crate) mod rights;
mod row;
mod same_addresses;

use std::{io, process::ExitCode, time::Duration};

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use mcs_kube::{
    program::{self, OutputArgs},
    reasons::ClusterCheck,
};
use tokio::{
    signal::ctrl_c,
    time::{Instant, sleep_until},
};

use self::{
    chain::{
        Compared,
        gather::{self, Reading},
    },
    controller::Silent,
    nodes::Proof,
    pods::{ProbeArgs, Probing, source::Controller},
    reports::Reports,
    row::{Finding, Unknown, Warning, exit_code, listed, missing_right, table},
};
use super::{
    cluster::{ALPHA_IMPORTS, Cluster, EXPORTS, IMPORTS, Kind, PEERS, is_absent},
    fleet,
    kubeconfig::ClusterArgs,
    settings,
};

/// How long a link may differ from the one before: objects follow each other within seconds.
const SETTLES: Duration = Duration::from_secs(5);

/// Check that clusters can export to and import from each other.
///
/// Follows each exported service from its ready pods to the tables of the agents, and names the first link that differs from the one
/// before, twice within seconds. Asks each cluster for its id, types, rights, controller, agents, settings, peers and DNS, and connects to
/// a few pods of each peer. The agent of every node tries ClusterSetIPs, names and large answers. The controllers of the clusters say which source address they see. Each failure says what to do, and failures come first. Exits with 1 if anything is missing, and with 3 if
/// clusters do not answer, or it is not known whether a peer is read now, and nothing is missing elsewhere. Warnings, and what you may not ask (`skipped`), leave it 0.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs check east.conf west.conf
  mcs check ~/.kube/config:east -o json
  mcs check east.conf west.conf --probe=off")]
pub(super) struct CheckCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    /// The namespace in which each cluster publishes
    #[arg(long, env = "MCS_MAILBOX", value_name = "NAMESPACE", default_value = "mcs-mailbox")]
    mailbox: String,

    /// The Secret with which the controllers publish on a hub [default: that of the Deployment mcs-controller]
    #[arg(long, env = "MCS_MAILBOX_SECRET", value_name = "NAME")]
    mailbox_secret: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    probe: ProbeArgs,
}

pub(super) fn run(command: &CheckCommand) -> anyhow::Result<ExitCode> {
    let read = || {
        program::block_on(async {
            let probing = Probing::default();
            tokio::select! {
                findings = check_all(command, &probing) => findings,
                Ok(()) = interrupted(&probing) => bail!("it was interrupted"),
            }
        })
    };
    let findings = command.output.show(read, |findings, style| table(findings, style))?;
    Ok(exit_code(&findings).into())
}

/// Waits for Ctrl-C, and then until no cluster has a pod of this check.
async fn interrupted(probing: &Probing) -> io::Result<()> {
    ctrl_c().await?;
    drop(probing.write().await);
    Ok(())
}

async fn check_all(command: &CheckCommand, probing: &Probing) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut clusters = Vec::new();
    for (kubeconfig, cluster) in Cluster::open_each(&command.clusters.named()?).await? {
        match cluster {
            Ok(cluster) => clusters.push(cluster),
            Err(error) => {
                findings.push(Finding::new(&kubeconfig, ClusterCheck::ApiServer, Err(error)));
            }
        }
    }
    let (clusters, alike) = ids::sift(clusters).await;
    findings.extend(alike);
    let namespace = &command.probe.namespace;
    let known = fleet::each(&clusters, async |cluster| peers::Known::of(cluster, namespace).await);
    let known = known.await;
    let controllers =
        fleet::each(&clusters, async |cluster| Controller::of(cluster, namespace).await).await;
    let known = (&*known, &*controllers);
    let tried = (!command.probe.is_off()).then_some(&*controllers);
    let read = async |cluster: &Cluster| {
        let mailbox = controller::mailbox(cluster, command).await;
        (gather::read(cluster, mailbox, tried).await, mailbox)
    };
    let (readings, mailboxes): (Vec<_>, Vec<_>) =
        fleet::each(&clusters, read).await.into_iter().unzip();
    let readings = readings.into_iter();
    let (facts, (statuses, proofs)): (Vec<_>, (Vec<_>, Vec<_>)) =
        readings.map(|Reading { facts, statuses, proof }| (facts, (statuses, proof))).unzip();
    let compared = chain::compare(&facts);
    let begin = Instant::now();
    let each = clusters.iter().zip(statuses.into_iter().zip(&proofs));
    let found = fleet::each(each, async |(cluster, (statuses, proof))| {
        check_one(command, cluster, (Reports::of(statuses), proof), known, probing).await
    });
    let (found, silent): (Vec<_>, Vec<_>) = found.await.into_iter().unzip();
    let mut found: Vec<Vec<Finding>> = found;
    let compared = if compared.differences.is_empty() {
        compared
    } else {
        sleep_until(begin + SETTLES).await;
        let differences = &compared.differences;
        let again = fleet::each(clusters.iter().zip(&mailboxes), async |(cluster, mailbox)| {
            gather::again(cluster, *mailbox, differences).await
        });
        let again = again.await;
        compared.persisting(chain::compare(&again).differences)
    };
    for ((cluster, found), since) in clusters.iter().zip(&mut found).zip(&silent) {
        found.extend(links(cluster.id.as_str(), &compared, since.as_deref()));
    }
    for ((facts, found), proof) in facts.iter().zip(&mut found).zip(&proofs) {
        found.extend(proof.findings(&facts.cluster, &facts.tables));
    }
    findings.extend(found.into_iter().flatten());
    let imports = clusters.iter().zip(&facts);
    let imports: Vec<_> =
        imports.map(|(cluster, facts)| (cluster.id.as_str(), facts.imports())).collect();
    findings.extend(same_addresses::finding(&imports));
    Ok(findings)
}

/// What each link of a cluster says. `since`: no controller writes since then.
fn links(cluster: &str, compared: &Compared, since: Option<&str>) -> Vec<Finding> {
    let others = [ClusterCheck::Peers, ClusterCheck::Namespaces].into_iter();
    let others = others.filter(|check| !compared.of(cluster, *check).is_empty());
    let finding = |check| {
        let is_written = matches!(check, ClusterCheck::Exports | ClusterCheck::Imports);
        let result = as_of(since.filter(|_| is_written), compared.result(cluster, check));
        let differences = compared.of(cluster, check);
        Finding { differences, ..Finding::new(cluster, check, result) }
    };
    chain::LINKS.into_iter().chain(others).map(finding).collect()
}

/// Also says since when no controller of the cluster writes.
async fn check_one(
    command: &CheckCommand,
    cluster: &Cluster,
    (reports, proof): (Reports, &Proof),
    (known, controllers): (&[peers::Known], &[Controller]),
    probing: &Probing,
) -> (Vec<Finding>, Option<String>) {
    let namespace = &command.probe.namespace;
    let mut findings = Vec::new();
    let mut add = |check, result| findings.push(Finding::new(cluster.id.as_str(), check, result));
    add(ClusterCheck::Id, Ok(format!("the cluster is {} at {}", cluster.id, cluster.server)));
    add(ClusterCheck::Types, types(cluster).await);
    add(ClusterCheck::Rights, rights::of_controller(cluster, namespace).await);
    let controller = controller::check(cluster, command).await;
    let silent = controller.as_ref().err().and_then(|error| error.downcast_ref::<Silent>());
    let since = silent.map(|silent| silent.since.clone());
    add(ClusterCheck::Controller, controller);
    if let Some((check, result)) = others::cilium(cluster).await {
        add(check, result);
    }
    let ready = agents::on_every_node(cluster).await;
    add(
        ClusterCheck::Agents,
        ready.and_then(|ready| agents::reported(&ready, &reports, Timestamp::now())),
    );
    add(ClusterCheck::Addresses, addresses::vip_ranges(cluster, namespace).await);
    add(ClusterCheck::Settings, settings::check(cluster).await);
    let found = peers::checks(cluster, known).await.into_iter();
    // Whether there are peers is no controller's word.
    let told = |check| since.as_deref().filter(|_| check != ClusterCheck::Peers);
    let found = found.map(|(check, result)| (check, as_of(told(check), result)));
    for (check, result) in found.chain(dns::checks(cluster).await) {
        add(check, result);
    }
    match pods::checks(cluster, &command.probe, probing, controllers, proof.services()).await {
        Ok(found) => findings.extend(found),
        Err(error) => add(ClusterCheck::Pods, Err(error)),
    }
    findings.extend(reach::findings(cluster.id.as_str(), &reports));
    (findings, since)
}

/// What controllers have written, if none has since that time.
fn as_of(since: Option<&str>, result: anyhow::Result<String>) -> anyhow::Result<String> {
    let Some(since) = since else { return result };
    let as_of = format!("as of {since}, when a controller wrote last");
    match result {
        Ok(message) => Err(Unknown(format!("{as_of}: {message}")).into()),
        Err(error) => Err(error.context(as_of)),
    }
}

/// A type, and the advice if the API server does not serve it.
pub(crate) type TypeNeeded = (Kind, &'static str);

/// The types of the Multi-Cluster Services API that the controller and CoreDNS read.
pub(crate) const API_TYPES: [TypeNeeded; 3] = [
    (EXPORTS, "install the CRDs of sigs.k8s.io/mcs-api v0.5.1 or newer"),
    (IMPORTS, "install the CRDs of sigs.k8s.io/mcs-api v0.5.1 or newer"),
    (ALPHA_IMPORTS, "CoreDNS reads this version: let the CRD serve it"),
];

/// Fails unless the API server serves these types.
pub(crate) async fn serves(cluster: &Cluster, types: &[TypeNeeded]) -> anyhow::Result<()> {
    for (kind, advice) in types {
        let (group, version, _, plural) = kind;
        cluster.ensure_served(*kind).await.map_err(|error| {
            let advice = if is_absent(&error) { format!(": {advice}") } else { String::new() };
            error.context(format!("{plural}.{group} cannot be read as {version}{advice}"))
        })?;
    }
    Ok(())
}

async fn types(cluster: &Cluster) -> anyhow::Result<String> {
    serves(cluster, &API_TYPES).await?;
    serves(cluster, &[(PEERS, "install the chart mcs-controller")]).await?;
    Ok("ServiceExport, ServiceImport and ClusterPeer are served".to_owned())
}

#[cfg(test)]
mod tests {
    use mcs_kube::{testing::ScriptedAnswer, told};

    use super::*;
    use crate::cluster::tests::scripted;

    #[test]
    fn what_a_silent_controller_has_written_is_of_then() {
        let of = |result| Finding::new("east", ClusterCheck::Imports, as_of(Some("T"), result));
        let fine = of(Ok("12 ServiceImports".to_owned()));
        let expected = "as of T, when a controller wrote last: 12 ServiceImports";
        assert_eq!((fine.result(), &*fine.message), ("skipped", expected));
        let warned = of(Err(Warning("a port".to_owned()).into()));
        assert_eq!(warned.result(), "warning");
        let failed = of(Err(anyhow::anyhow!("no address")));
        let expected = "as of T, when a controller wrote last: no address";
        assert_eq!((failed.result(), &*failed.message), ("FAILED", expected));
        assert_eq!(as_of(None, Ok("fine".to_owned())).unwrap(), "fine");
    }

    #[tokio::test]
    async fn crds_are_missing_only_if_the_api_server_says_so() {
        for (code, is_advised) in [(404, true), (500, false), (403, false)] {
            let (cluster, _server, _file) = scripted("east", [ScriptedAnswer::error(code)]).await;
            let error = told(&types(&cluster).await.unwrap_err());
            assert_eq!(error.contains("install the CRDs"), is_advised, "{error}");
        }
    }
}
