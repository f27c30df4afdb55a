//! `mcs up` and `mcs down`: make and remove a clusterset with one command.

mod chart;
mod member;
mod pending;
mod proof;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use futures_util::future::try_join_all;
use mcs_controller::clusterset::ClusterId;
use mcs_kube::program::{self, print, table, terminal_width};
use serde_json::Value;
use tokio::time::Instant;

use self::{
    chart::ChartArgs,
    member::{Member, MemberArgs},
};
use crate::{
    cluster::{Cluster, PEERS},
    dns,
    draft::Draft,
    kubeconfig::{ClusterArgs, KubeconfigArg},
    link::{self, LinkCommand},
    progress,
    status::condition,
    wait,
};

/// The time limit for controllers to read each other.
const CONNECTED_WITHIN: Duration = Duration::from_mins(2);

/// Make a clusterset of these clusters.
///
/// It looks at each cluster, shows what it is going to do, and asks. Then it installs the types of the Multi-Cluster Services
/// API, the chart and the names in clusterset.local where they are missing, links the clusters, and ends with a proof: from every
/// node, a pod connects by name to a service of all clusters. Run it again to repair, or with one more cluster to add it. It
/// needs helm and kubectl in the PATH.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs up --context east --context west
  mcs up --context east --context west --context south --yes
  mcs up east.conf west.conf --chart deploy/helm/mcs --dry-run
  mcs up --context east --context west --dry-run -o yaml > clusterset.yaml")]
pub(crate) struct UpCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    #[command(flatten)]
    chart: ChartArgs,

    #[command(flatten)]
    member: MemberArgs,

    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// With --dry-run: print what would be written instead of the plan
    #[arg(short, long, value_name = "FORMAT", requires = "dry_run")]
    output: Option<DraftFormat>,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// How a dry run prints objects.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DraftFormat {
    /// Documents for each context, in the order in which they are applied. Credentials are not among them
    Yaml,
}

/// Take a clusterset away: names, then links, then charts
///
/// The types of the Multi-Cluster Services API, ServiceExports and the ids of clusters stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs down --context east --context west")]
pub(crate) struct DownCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn up(command: &UpCommand) -> anyhow::Result<ExitCode> {
    program::block_on(async {
        let mut members = inspect(command).await?;
        if let Some(DraftFormat::Yaml) = command.output {
            draft(command, &mut members).await?;
            return Ok(ExitCode::SUCCESS);
        }
        show(&members)?;
        if command.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !command.yes && !confirmed("Go on?")? {
            bail!("nothing was done");
        }
        chart::prepare(&command.chart).await?;
        try_join_all(members.iter().map(|member| install(command, member))).await?;
        link_all(command, &members).await?;
        progress::say("all", "linked")?;
        connected(&members).await?;
        progress::say("all", "the controllers read each other")?;
        let proven = proof::prove(&members).await?;
        for line in &proven {
            print(line)?;
        }
        print(
            "\nThe clusterset is up. Export a Service: kubectl apply -f - <<EOF\n\
             {apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: SERVICE, namespace: NAMESPACE}}\nEOF",
        )?;
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn down(command: &DownCommand) -> anyhow::Result<ExitCode> {
    program::block_on(async {
        let named = command.clusters.named()?;
        ensure!(
            !named.is_empty(),
            "name the clusters: mcs down takes nothing from a context by default"
        );
        let clusters = Cluster::open_all(&named).await?;
        let ids: Vec<_> = clusters.iter().map(|one| one.id.to_string()).collect();
        let what = format!(
            "Take names in clusterset.local, links and the release mcs from {}. Imported services end.",
            ids.join(", ")
        );
        print(&what)?;
        if !command.yes && !confirmed("Go on?")? {
            bail!("nothing was done");
        }
        for cluster in &clusters {
            let done =
                dns::undo(cluster).await.with_context(|| format!("cluster {}", cluster.id))?;
            progress::say(cluster.id.as_str(), &done.join("; "))?;
        }
        if named.len() > 1 {
            link::end(named.clone()).await?;
            progress::say("all", "unlinked")?;
        }
        let uninstalls = named.iter().zip(&ids).map(async |(kubeconfig, id)| {
            chart::uninstall(kubeconfig).await.with_context(|| format!("cluster {id}"))?;
            progress::say(id, "the release mcs is gone")
        });
        try_join_all(uninstalls).await?;
        print(
            "The types, the ids of the clusters, and the namespaces mcs-system, mcs-controller and mcs-mailbox stay.",
        )?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Inspects all clusters. Changes nothing.
async fn inspect(command: &UpCommand) -> anyhow::Result<Vec<Member>> {
    let named = command.clusters.named()?;
    ensure!(named.len() > 1, "name two clusters or more, such as --context east --context west");
    chart::ensure_tools().await?;
    let inspections =
        named.into_iter().map(|kubeconfig| Member::inspect(&command.member, kubeconfig));
    let members = try_join_all(inspections).await?;
    for (place, member) in members.iter().enumerate() {
        for other in &members[..place] {
            member.ensure_apart(other)?;
        }
    }
    Ok(members)
}

fn show(members: &[Member]) -> anyhow::Result<()> {
    let rows = members.iter().flat_map(|member| {
        let id = member.cluster.id.to_string();
        member.plan().into_iter().map(move |(step, what)| vec![id.clone(), step.to_owned(), what])
    });
    print(&table(terminal_width(), &["CLUSTER", "STEP", "WHAT"], rows))
}

/// Prints what each step would write.
async fn draft(command: &UpCommand, members: &mut [Member]) -> anyhow::Result<()> {
    chart::prepare(&command.chart).await?;
    for member in &mut *members {
        let draft = chart::draft(&command.chart, member).await;
        let draft = draft.with_context(|| format!("cluster {}", member.cluster.id))?;
        member.cluster.draft = Some(draft);
        if member.dns.is_some() {
            dns::apply(&member.cluster).await?;
        }
    }
    link_all(command, members).await?;
    for member in members {
        let text = member.cluster.draft.as_ref().map(Draft::text).unwrap_or_default();
        let context = member.kubeconfig.context_name()?;
        print(&format!(
            "# context: {context}, cluster: {}\n{}",
            member.cluster.id,
            text.trim_end()
        ))?;
    }
    Ok(())
}

/// Asks on the terminal.
fn confirmed(question: &str) -> anyhow::Result<bool> {
    ensure!(io::stdin().is_terminal(), "nobody can be asked here: give --yes");
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Installs everything in one cluster.
async fn install(command: &UpCommand, member: &Member) -> anyhow::Result<()> {
    let id = member.cluster.id.as_str();
    let in_cluster = || format!("cluster {id}");
    if !member.has_types {
        chart::install_types(&command.chart, member).await.with_context(in_cluster)?;
        progress::say(id, "the types of the Multi-Cluster Services API are served")?;
    }
    chart::install(&command.chart, member).await.with_context(in_cluster)?;
    progress::say(id, "the agent and the controller are ready")?;
    if member.dns.is_some() {
        let done = dns::apply(&member.cluster).await.with_context(in_cluster)?;
        progress::say(id, &done.join("; "))?;
    }
    Ok(())
}

async fn link_all(command: &UpCommand, members: &[Member]) -> anyhow::Result<()> {
    let kubeconfigs: Vec<KubeconfigArg> =
        members.iter().map(|member| member.kubeconfig.clone()).collect();
    let servers = members.iter().filter_map(|member| {
        let server = member.server.clone()?;
        Some((member.cluster.id.clone(), server))
    });
    let link = LinkCommand::new(kubeconfigs, command.member.pod_cidr.clone(), servers.collect());
    let clusters: Vec<_> = members.iter().map(|member| &member.cluster).collect();
    link::begin(&link, &clusters).await
}

/// Waits until each cluster reads each of the others.
async fn connected(members: &[Member]) -> anyhow::Result<()> {
    let end = Instant::now() + CONNECTED_WITHIN;
    for member in members {
        let id = &member.cluster.id;
        let read = async || {
            let peers = member.cluster.list(PEERS).await?;
            let mut others = members.iter().filter(|other| other.cluster.id != *id);
            let unread = others.find_map(|other| unread(&peers, &other.cluster.id));
            let why = unread.map(|unread| {
                format!("cluster {id} does not read its peers yet: {unread}. `mcs check` says more")
            });
            Ok(why.map_or(Ok(()), Err))
        };
        wait::until(end, read).await?;
    }
    Ok(())
}

/// Why a cluster is not read, if it is not.
fn unread(peers: &[Value], id: &ClusterId) -> Option<String> {
    let peer = peers.iter().find(|peer| peer["spec"]["clusterId"] == id.as_str());
    let Some(peer) = peer else { return Some(format!("there is no ClusterPeer of {id}")) };
    ["Accepted", "Connected", "Synced", "Fresh"].into_iter().find_map(|name| {
        let condition = condition(peer, name);
        if condition.is_some_and(|one| one["status"] == "True") {
            return None;
        }
        let message = condition.and_then(|one| one["message"].as_str()).unwrap_or("not told yet");
        Some(format!("{id} {name}: {message}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_peer_counts_once_it_is_read() {
        let id: ClusterId = "west".parse().unwrap();
        let peer = |fresh: &str| {
            let condition = |name: &str, status: &str| json!({"type": name, "status": status, "message": "why"});
            let conditions =
                ["Accepted", "Connected", "Synced"].map(|name| condition(name, "True"));
            let conditions: Vec<_> =
                conditions.into_iter().chain([condition("Fresh", fresh)]).collect();
            json!({"spec": {"clusterId": "west"}, "status": {"conditions": conditions}})
        };
        assert_eq!(unread(&[peer("True")], &id), None);
        assert_eq!(unread(&[peer("Unknown")], &id).as_deref(), Some("west Fresh: why"));
        assert!(unread(&[], &id).unwrap().contains("no ClusterPeer"));
    }
}
