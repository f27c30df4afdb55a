//! `mcs check`: checks the needs of a clusterset, and says what to do about failures.

pub(crate) mod addresses;
pub(crate) mod agents;
mod chain;
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
mod same_addresses;

use std::{io, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use mcs_kube::{
    program::{self, OutputArgs, Style},
    reasons::{ClusterCheck, Coded as _, Reason},
    told,
};
use serde::Serialize;
use serde_json::Value;
use tokio::{
    signal::ctrl_c,
    time::{Instant, sleep_until},
};

use self::{
    chain::{
        Compared, Difference,
        gather::{self, Reading},
    },
    nodes::Proof,
    pods::{Probe, ProbeArgs, Probing, source::Controller},
    reports::Reports,
};
use super::{
    cluster::{
        ALPHA_IMPORTS, Cluster, DEPLOYMENTS, EXPORTS, IMPORTS, Kind, LEASES, PEERS, SECRETS,
        containers, is_absent,
    },
    exit::UNASKED,
    fleet,
    kubeconfig::ClusterArgs,
    settings, status,
};
use mcs_controller::core::{clusterset::well_known, peers::token::TokenClaims};

/// The greatest age of a publisher's Lease, in seconds, with a margin for clocks.
const OLDEST_LEASE: i64 = 60;
/// How long a link may differ from the one before: objects follow each other within seconds.
const SETTLES: Duration = Duration::from_secs(5);
/// The flag of a controller whose mailbox is on a hub.
const MAILBOX_SECRET: &str = "--mailbox-secret";

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

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    /// The id of the cluster; its kubeconfig if it does not answer.
    cluster: String,
    check: ClusterCheck,
    ok: bool,
    /// It may be on purpose.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    warning: bool,
    /// The check did not get an answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    message: String,
    /// The link to the explanation of the check.
    see: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    /// The node from which it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    probes: Vec<Probe>,
    /// The services whose chain breaks at this link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
}

impl Finding {
    /// The result of a check. An error is advice, or a [`Warning`], or [`Unknown`]. It counts as unknown if the caller
    /// lacks a right.
    fn new(cluster: &str, check: ClusterCheck, result: anyhow::Result<String>) -> Self {
        let mut finding = Self {
            cluster: cluster.to_owned(),
            check,
            ok: true,
            warning: false,
            skipped: false,
            message: String::new(),
            see: check.link(),
            peer: None,
            node: None,
            probes: vec![],
            differences: vec![],
        };
        finding.message = match result {
            Ok(message) => message,
            Err(error) => {
                if let Some(right) = missing_right(&error) {
                    finding.skipped = true;
                    format!("not checked, as you may not {right}: let somebody run `check` who may")
                } else {
                    finding.warning = error.is::<Warning>();
                    finding.skipped = error.is::<Unknown>();
                    finding.ok = finding.warning || finding.skipped;
                    told(&error)
                }
            }
        };
        finding
    }

    /// What is said of a node.
    fn of_node(
        cluster: &str,
        node: &str,
        check: ClusterCheck,
        result: anyhow::Result<String>,
    ) -> Self {
        let result = result.map(|message| format!("{node}: {message}"));
        let result = result.map_err(|error| error.context(node.to_owned()));
        Self { node: Some(node.to_owned()), ..Self::new(cluster, check, result) }
    }

    const fn result(&self) -> &'static str {
        match self {
            Self { ok: false, .. } => "FAILED",
            Self { warning: true, .. } => "warning",
            Self { skipped: true, .. } => "skipped",
            _ => "ok",
        }
    }
}

/// A problem that may be on purpose.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Warning(String);

/// A check without an answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unknown(String);

/// No controller writes any more.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Silent {
    what: String,
    /// When one did.
    since: String,
}

/// The first of many, and the number of the others.
fn listed(all: &[String]) -> String {
    const NAMED: usize = 5;
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// The right that the caller lacks, if a request failed for that reason. Admission also answers 403, with another text.
fn missing_right(error: &anyhow::Error) -> Option<&str> {
    error.chain().find_map(|cause| match cause.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) if status.code == 403 => {
            Some(status.message.split_once("\" cannot ")?.1)
        }
        _ => None,
    })
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

/// A cluster that does not answer is unknown, as a peer is of which its controller does not say now whether it is read.
fn exit_code(findings: &[Finding]) -> u8 {
    let is_unasked = |one: &Finding| match one.check {
        ClusterCheck::ApiServer => !one.ok,
        ClusterCheck::Peer => one.skipped,
        _ => false,
    };
    if findings.iter().any(|one| !one.ok && !is_unasked(one)) {
        1
    } else if findings.iter().any(is_unasked) {
        UNASKED
    } else {
        0
    }
}

/// Failures come first.
fn table(findings: &[Finding], style: Style) -> anyhow::Result<()> {
    let mut sorted: Vec<_> = findings.iter().collect();
    sorted.sort_by_key(|one| (one.ok, !one.warning, !one.skipped));
    let rows = nodes::folded(&sorted).into_iter().map(|(one, message)| {
        let result = one.result();
        let see = if result == "ok" { String::new() } else { format!("\nsee {}", one.see) };
        let (cluster, check) = (one.cluster.clone(), one.check.to_string());
        vec![cluster, check, result.to_owned(), format!("{message}{see}")]
    });
    style.table(&["CLUSTER", "CHECK", "RESULT", "MESSAGE"], rows)
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
        let mailbox = mailbox(cluster, command).await;
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

/// The namespace in which a cluster publishes; none if its mailbox is on a hub.
async fn mailbox<'a>(cluster: &Cluster, command: &'a CheckCommand) -> Option<&'a str> {
    let namespace = Some(&*command.probe.namespace);
    let deployment = cluster.get(DEPLOYMENTS, namespace, well_known::CONTROLLER).await;
    let is_on_hub = deployment.ok().flatten().is_some_and(|known| has_hub(&known));
    (!is_on_hub && command.mailbox_secret.is_none()).then_some(&command.mailbox)
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
    let controller = controller(cluster, command).await;
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

/// Whether the controller runs: by the Lease of the mailbox, or by the leader's Lease if the mailbox is on a hub.
async fn controller(cluster: &Cluster, command: &CheckCommand) -> anyhow::Result<String> {
    let namespace = &command.probe.namespace;
    let deployment = cluster.get(DEPLOYMENTS, Some(namespace), well_known::CONTROLLER).await;
    let known = deployment.as_ref().ok().and_then(Option::as_ref);
    if command.mailbox_secret.is_some() || known.is_some_and(has_hub) {
        let lease = lease(cluster, namespace, well_known::CONTROLLER).await?;
        ensure_led(&lease)?;
        ensure_renewed(&lease, Timestamp::now())?;
        let named = known.and_then(|known| argument(known, MAILBOX_SECRET));
        return on_hub(cluster, command, named.unwrap_or("mailbox")).await;
    }
    let mailbox = &command.mailbox;
    let lease = match (lease(cluster, mailbox, well_known::PUBLISHER_LEASE).await, deployment) {
        // The mailbox may be on a hub, for all that the caller may read.
        (Err(_), Err(unread)) => return Err(unread),
        (lease, _) => lease?,
    };
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    anyhow::ensure!(
        holder == cluster.id.as_str(),
        "the mailbox {mailbox} is that of cluster {holder:?}: give the clusters different mailboxes"
    );
    ensure_renewed(&lease, Timestamp::now())?;
    let services = &lease["metadata"]["annotations"][well_known::PUBLISHED];
    Ok(format!("it runs; services that it publishes: {}", services.as_str().unwrap_or("0")))
}

/// Checks the mailbox on a hub from within the cluster: by the times of the token, and the conditions of the exports. `named`: the
/// Secret of the Deployment.
async fn on_hub(cluster: &Cluster, command: &CheckCommand, named: &str) -> anyhow::Result<String> {
    let silent = cluster.list(EXPORTS).await?;
    let silent = silent.iter().find_map(|export| {
        status::condition(export, "Ready")
            .filter(|ready| ready["reason"] == Reason::NotRenewed.name())
    });
    if let Some(silent) = silent {
        let message = silent["message"].as_str().unwrap_or_default();
        bail!("it runs, and cannot renew the Lease of its mailbox on the hub: {message}");
    }
    let name = command.mailbox_secret.as_deref().unwrap_or(named);
    // A caller without the right to read Secrets gets the other results.
    let secret = cluster.get(SECRETS, Some(&command.probe.namespace), name).await.ok().flatten();
    match secret.as_ref().and_then(TokenClaims::of_secret) {
        Some(token) => mailbox_token(&token, name, Timestamp::now()),
        None => Ok("it runs; its mailbox is on a hub".to_owned()),
    }
}

fn mailbox_token(token: &TokenClaims, secret: &str, now: Timestamp) -> anyhow::Result<String> {
    let TokenClaims { namespace, expires, .. } = token;
    anyhow::ensure!(
        *expires > now,
        "the token in Secret {secret}, with which it publishes on a hub, expired at {expires}: run `mcs \
         link --hub` again"
    );
    Ok(format!(
        "it runs; its mailbox is namespace {namespace} of a hub, and its token expires at {expires} unless it is renewed"
    ))
}

/// Whether the mailbox is on a hub, by the Deployment.
fn has_hub(deployment: &Value) -> bool {
    arguments(deployment).any(|argument| {
        argument.starts_with(MAILBOX_SECRET) || argument.starts_with("--mailbox-kubeconfig")
    })
}

/// The value of a flag, if a Deployment gives it.
fn argument<'a>(deployment: &'a Value, flag: &str) -> Option<&'a str> {
    arguments(deployment).find_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='))
}

/// The arguments of a Deployment's containers.
pub(crate) fn arguments(deployment: &Value) -> impl Iterator<Item = &str> {
    let arguments = containers(deployment).filter_map(|one| one["args"].as_array());
    arguments.flatten().filter_map(Value::as_str)
}

async fn lease(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Value> {
    cluster.get(LEASES, Some(namespace), name).await?.with_context(|| {
        format!("there is no Lease {namespace}/{name}: is the controller installed and running?")
    })
}

fn ensure_led(lease: &Value) -> anyhow::Result<()> {
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    anyhow::ensure!(
        !holder.is_empty(),
        Silent {
            what: "no replica of the controller writes: see its log".to_owned(),
            since: lease["spec"]["renewTime"].as_str().unwrap_or("some time").to_owned(),
        }
    );
    Ok(())
}

fn ensure_renewed(lease: &Value, now: Timestamp) -> anyhow::Result<()> {
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|text| text.parse().ok());
    let renewed: Timestamp = renewed.context("the Lease of the controller has no time")?;
    let age = now.as_second() - renewed.as_second();
    anyhow::ensure!(
        age <= OLDEST_LEASE,
        Silent {
            what: format!("the controller has not renewed its Lease for {age} s: see its log"),
            since: renewed.to_string(),
        }
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use mcs_kube::testing::ScriptedAnswer;
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::{object, scripted};

    #[test]
    fn a_deployment_says_whether_the_mailbox_is_on_a_hub() {
        let deployment = |argument: &str| {
            let containers = json!([{"name": "sidecar"}, {"args": ["run", argument]}]);
            json!({"spec": {"template": {"spec": {"containers": containers}}}})
        };
        assert!(has_hub(&deployment("--mailbox-secret=mailbox")));
        assert!(has_hub(&deployment("--mailbox-kubeconfig=/hub.conf")));
        let named = deployment("--mailbox-secret=mine");
        assert_eq!(argument(&named, MAILBOX_SECRET), Some("mine"));
        assert!(!has_hub(&deployment("--mailbox=mcs-mailbox")));
        assert!(!has_hub(&json!({})));
    }

    #[test]
    fn the_token_of_a_mailbox_on_a_hub_is_looked_at() {
        let expires: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let token = TokenClaims {
            namespace: "mcs-east".to_owned(),
            account: "publisher".to_owned(),
            issued: Timestamp::UNIX_EPOCH,
            expires,
        };
        let at = |seconds| {
            mailbox_token(&token, "mailbox", expires + jiff::SignedDuration::from_secs(seconds))
        };
        assert!(at(-1).unwrap().contains("namespace mcs-east of a hub"));
        assert!(at(0).unwrap_err().to_string().contains("link --hub"));
    }

    #[test]
    fn a_lease_that_nobody_renews_says_for_how_long() {
        let lease = json!({"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}});
        let after = |seconds| {
            let renewed: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
            ensure_renewed(&lease, renewed + jiff::SignedDuration::from_secs(seconds))
        };
        assert!(after(OLDEST_LEASE).is_ok());
        assert!(after(86_400).unwrap_err().to_string().contains("86400 s"));
        let since = |error: &anyhow::Error| error.downcast_ref::<Silent>().unwrap().since.clone();
        assert_eq!(since(&after(86_400).unwrap_err()), "2026-01-02T03:04:05Z");
        let left = json!({"spec": {"renewTime": "2026-01-02T03:04:05Z", "holderIdentity": ""}});
        assert_eq!(since(&ensure_led(&left).unwrap_err()), "2026-01-02T03:04:05Z");
    }

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

    #[test]
    fn what_is_not_known_now_is_no_success() {
        let find = |check, result| Finding::new("east", check, result);
        let good = || find(ClusterCheck::Id, Ok(String::new()));
        let skipped = || find(ClusterCheck::DnsVersion, Err(Unknown("no tag".to_owned()).into()));
        let begun = || find(ClusterCheck::Peer, Err(Unknown("not yet".to_owned()).into()));
        let away = || find(ClusterCheck::ApiServer, Err(anyhow::anyhow!("refused")));
        let failed = || find(ClusterCheck::Exports, Err(anyhow::anyhow!("no Service")));
        for (findings, code) in [
            (vec![good(), skipped()], 0),
            (vec![skipped(), begun()], 3),
            (vec![good(), away()], 3),
            (vec![away(), begun(), failed()], 1),
            (vec![find(ClusterCheck::Types, Err(anyhow::anyhow!("no CRD")))], 1),
        ] {
            assert_eq!(exit_code(&findings), code, "{findings:?}");
        }
        assert_eq!(begun().result(), "skipped");
    }

    #[tokio::test]
    async fn who_may_not_see_the_controller_does_not_learn_that_there_is_none() {
        let command = CheckCommand::augment_args(clap::Command::new("check"));
        let command = command.try_get_matches_from(["check"]).unwrap();
        let command = <CheckCommand as clap::FromArgMatches>::from_arg_matches(&command).unwrap();
        let of = async |answers: Vec<ScriptedAnswer>| {
            let (cluster, _server, _file) = scripted("east", answers).await;
            controller(&cluster, &command).await.map_err(|error| told(&error))
        };
        let absent = || ScriptedAnswer::error(404);
        let error = of(vec![absent(), absent()]).await.unwrap_err();
        assert!(error.contains("is the controller installed"), "{error}");
        let error = of(vec![ScriptedAnswer::error(403), absent()]).await.unwrap_err();
        assert!(error.contains("Deployment mcs-controller"), "{error}");
        let now = Timestamp::now().to_string();
        let lease = json!({"spec": {"holderIdentity": "east", "renewTime": now}});
        let runs = of(vec![ScriptedAnswer::error(403), object(lease)]).await.unwrap();
        assert!(runs.starts_with("it runs"), "{runs}");
    }

    #[tokio::test]
    async fn crds_are_missing_only_if_the_api_server_says_so() {
        for (code, is_advised) in [(404, true), (500, false), (403, false)] {
            let (cluster, _server, _file) = scripted("east", [ScriptedAnswer::error(code)]).await;
            let error = told(&types(&cluster).await.unwrap_err());
            assert_eq!(error.contains("install the CRDs"), is_advised, "{error}");
        }
    }

    #[test]
    fn a_right_that_the_caller_lacks_is_named() {
        let refused = |code, message: &str| {
            let status =
                kube::core::Status { code, message: message.to_owned(), ..Default::default() };
            let error = kube::Error::Api(Box::new(status));
            anyhow::Error::new(mcs_controller::core::apply::ApplyError::Refused(error))
                .context("Deployment")
        };
        let message = "deployments.apps \"coredns\" is forbidden: User \"operator\" cannot get resource \
                       \"deployments\" in API group \"apps\" in the namespace \"kube-system\"";
        let right =
            "get resource \"deployments\" in API group \"apps\" in the namespace \"kube-system\"";
        assert_eq!(missing_right(&refused(403, message)), Some(right));
        let message = "pods \"mcs-probe\" is forbidden: violates PodSecurity \"restricted:latest\"";
        assert_eq!(missing_right(&refused(403, message)), None);
        assert_eq!(missing_right(&refused(404, "not found")), None);
    }
}
