//! `mcs down`: takes clusters out of a clusterset, each by itself, and says what stays.

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use anyhow::ensure;
use clap::Args;
use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::{
    program::{self, print, table, terminal_width},
    told,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{ensure_confirmed, member, release, stays};
use crate::{
    cluster::{Cluster, DEPLOYMENTS, EXPORTED, IMPORTS, Kind, LEASES, PEERS, SLICES},
    dns,
    fleet::{self, Outcome, Outcomes},
    kubeconfig::{ClusterArgs, KubeconfigArg},
    link, progress, wait,
};

/// How long controllers may take to delete what they have imported: they wait 10 s after a ClusterPeer has gone.
const WITHDRAWN_WITHIN: Duration = Duration::from_mins(1);

/// Take clusters out of a clusterset: links, then imports, then names, then the chart
///
/// The types of the Multi-Cluster Services API, ServiceExports and the ids of clusters stay, and what else stays is listed. Clusters
/// that are not named keep what they have from these until they forget them: the last lines say how.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs down --context east --context west
  mcs down east.conf --hub hub.conf")]
pub(crate) struct DownCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    /// The kubeconfig of the hub, if the mailboxes are on one
    #[arg(long, value_name = "KUBECONFIG")]
    hub: Option<KubeconfigArg>,

    /// Leave DNS as it is
    #[arg(long)]
    no_dns: bool,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// A cluster that leaves.
struct Leaving {
    cluster: Cluster,
    kubeconfig: KubeconfigArg,
    peers: Vec<Value>,
}

pub(crate) fn down(command: &DownCommand) -> anyhow::Result<ExitCode> {
    program::block_on(async {
        let named = command.clusters.named()?;
        ensure!(
            !named.is_empty(),
            "name the clusters: mcs down takes nothing from a context by default"
        );
        let opened = fleet::each(&named, async |kubeconfig: &KubeconfigArg| {
            let (cluster, _) = member::open(kubeconfig).await?;
            let peers = cluster.list_if_served(PEERS).await?;
            release::ensure_idle(&cluster, kubeconfig).await?;
            anyhow::Ok(Leaving { cluster, kubeconfig: kubeconfig.clone(), peers })
        });
        let leaving = fleet::all_of(opened.await)?;
        let hub = link::open_hub(command.hub.as_ref()).await?;
        if hub.is_none() {
            for one in &leaving {
                if let Some(peer) = link::peer_on_hub(&one.peers) {
                    return Err(link::needs_hub(&one.cluster.id, peer));
                }
            }
        }
        let ids: Vec<_> = leaving.iter().map(|one| one.cluster.id.clone()).collect();
        let others = others(&leaving);
        let dns = if command.no_dns { "" } else { ", names in clusterset.local" };
        print(&format!(
            "Take links, imports{dns} and the release mcs from {}. Imported services end.",
            joined(&ids)
        ))?;
        if !others.is_empty() {
            print(&format!(
                "{} keep what they have from these clusters, until they forget them.",
                joined(&others)
            ))?;
        }
        ensure_confirmed(command.yes)?;
        let outcomes = take(&leaving, hub.as_ref(), !command.no_dns).await?;
        let code = outcomes.show()?;
        let stays =
            fleet::each(&leaving, async |one| stays::rows(&one.cluster, &one.kubeconfig).await);
        let rows = stays.await.into_iter().flatten();
        print("")?;
        print(&table(terminal_width(), &["CLUSTER", "STAYS", "REMOVE IT WITH"], rows))?;
        // A cluster without links may have lost them by an earlier `down`, and nothing in it names the others then.
        let is_again = leaving.iter().any(|one| one.peers.is_empty());
        if !others.is_empty() {
            print("\nThe other clusters forget these, where their kubeconfigs are:")?;
        } else if is_again {
            print(
                "\nOther clusters that were linked with these forget them, with the kubeconfigs of all of these others:",
            )?;
        }
        if !others.is_empty() || is_again {
            for id in &ids {
                print(&forget(id, &others, command.hub.as_ref()))?;
            }
        }
        Ok(code)
    })
}

/// Takes everything away, a few clusters at a time. A failure in one ends nothing in another.
async fn take(
    leaving: &[Leaving],
    hub: Option<&Cluster>,
    with_dns: bool,
) -> anyhow::Result<Outcomes> {
    let left = fleet::each(leaving, async |one| link::leave(&one.cluster, &one.peers).await);
    let left = left.await;
    let ids: Vec<_> = leaving.iter().map(|one| one.cluster.id.clone()).collect();
    let mut outcomes = Outcomes::default();
    if let Some(hub) = hub {
        // A cluster that could not leave still has its links, and needs its account for them.
        let have_left = ids.iter().zip(&left).filter(|(_, left)| left.is_ok());
        let have_left: Vec<_> = have_left.map(|(id, _)| id.clone()).collect();
        let of_hub = match link::leave_hub(hub, &have_left).await {
            Ok(_) if have_left.is_empty() => Outcome::Left("no cluster has left it".to_owned()),
            Ok(said) if said.is_empty() => Outcome::Done("unlinked".to_owned()),
            Ok(said) => Outcome::Done(said.join("; ")),
            Err(error) => Outcome::Failed(told(&error)),
        };
        outcomes.add(&"hub", of_hub);
    }
    let taken = fleet::each(leaving.iter().zip(left), async |(one, left): (&Leaving, _)| {
        let mut done = Vec::new();
        let result = match left {
            Ok(()) => remove(one, with_dns, &mut done).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => Outcome::Done(done.join(", ")),
            Err(error) if done.is_empty() => Outcome::Failed(told(&error)),
            Err(error) => {
                Outcome::Failed(format!("{}; done before: {}", told(&error), done.join(", ")))
            }
        }
    });
    for (id, outcome) in ids.iter().zip(taken.await) {
        outcomes.add(id, outcome);
    }
    Ok(outcomes)
}

/// What follows once a cluster has no links.
async fn remove(one: &Leaving, with_dns: bool, done: &mut Vec<String>) -> anyhow::Result<()> {
    let Leaving { cluster, kubeconfig, .. } = one;
    let id = cluster.id.as_str();
    let mut say = |what: String| {
        progress::say(id, &what)?;
        done.push(what);
        anyhow::Ok(())
    };
    say("unlinked".to_owned())?;
    if let Err(late) = withdrawn(cluster).await {
        // They are deleted below, when nothing serves them any more.
        print(&told(&late))?;
    }
    if with_dns {
        say(dns::undo(cluster).await?.join("; "))?;
    }
    release::uninstall(cluster, kubeconfig).await?;
    say("the release mcs is gone".to_owned())?;
    if has_controller(cluster).await? {
        // It maintains the imports, and is of another release or of none.
        return say(format!(
            "imports stay, since the Deployment {0}/{0} does, which the release mcs does not have: remove it and run this again",
            well_known::CONTROLLER
        ));
    }
    match sweep(cluster).await? {
        0 => Ok(()),
        count => say(format!("deleted {count} imports, slices and mailbox objects")),
    }
}

/// Whether a controller stays in the cluster.
async fn has_controller(cluster: &Cluster) -> anyhow::Result<bool> {
    let namespace = Some(well_known::CONTROLLER);
    let deployment = cluster.get(DEPLOYMENTS, namespace, well_known::CONTROLLER).await?;
    Ok(deployment.is_some_and(|one| one["metadata"]["deletionTimestamp"].is_null()))
}

/// Waits until the controller has deleted what other clusters had exported, if a controller runs.
async fn withdrawn(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = Some(well_known::CONTROLLER);
    let deployment = cluster.get(DEPLOYMENTS, namespace, well_known::CONTROLLER).await?;
    if deployment.is_none_or(|one| one["status"]["readyReplicas"].as_u64().unwrap_or(0) == 0) {
        return Ok(());
    }
    let end = Instant::now() + WITHDRAWN_WITHIN;
    wait::patiently(end, async || {
        let imports = cluster.list_in_if_served(IMPORTS, None, &ours()).await?;
        let from = sources(&imports, cluster.id.as_str());
        let late = || format!("{}: imports still have endpoints of {}", cluster.id, joined(&from));
        Ok(from.is_empty().then_some(()).ok_or_else(late))
    })
    .await
}

/// The clusters that imports have endpoints of, without the own one.
fn sources<'a>(imports: &'a [Value], own: &str) -> BTreeSet<&'a str> {
    let all =
        imports.iter().flat_map(|one| one["status"]["clusters"].as_array().into_iter().flatten());
    all.filter_map(|one| one["cluster"].as_str()).filter(|id| *id != own).collect()
}

fn ours() -> String {
    format!("{}={}", well_known::MANAGED_BY, well_known::CONTROLLER)
}

/// Selects imported slices. The mailboxes of other clusters on a hub have slices of their controllers too, without a source cluster.
fn imported_slices() -> String {
    let ours = format!("{}={}", well_known::SLICE_MANAGED_BY, well_known::CONTROLLER);
    format!("{ours},{}", well_known::SOURCE_CLUSTER)
}

/// Deletes what no controller maintains any more: imports, also of the cluster's own exports, their slices, and what is in the
/// mailbox. Its namespace stays when the chart goes. Returns the number of objects.
async fn sweep(cluster: &Cluster) -> anyhow::Result<usize> {
    let lists: [(Kind, Option<&str>, &str); 5] = [
        (IMPORTS, None, &ours()),
        (SLICES, None, &imported_slices()),
        (EXPORTED, Some(link::MAILBOX), ""),
        (SLICES, Some(link::MAILBOX), ""),
        (LEASES, Some(link::MAILBOX), ""),
    ];
    let mut objects: BTreeSet<(Kind, String, String)> = BTreeSet::new();
    for (kind, namespace, selector) in lists {
        let listed = cluster.list_in_if_served(kind, namespace, selector).await?;
        objects.extend(listed.iter().map(|object| {
            let text =
                |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            (kind, text("namespace"), text("name"))
        }));
    }
    let deleted =
        fleet::each(&objects, async |(kind, namespace, name): &(Kind, String, String)| {
            cluster.delete(*kind, Some(namespace), name).await
        });
    fleet::all_of(deleted.await)?;
    Ok(objects.len())
}

/// The clusters that are linked with those that leave, and stay.
fn others(leaving: &[Leaving]) -> Vec<String> {
    let ids: BTreeSet<&str> = leaving.iter().map(|one| one.cluster.id.as_str()).collect();
    let peers = leaving.iter().flat_map(|one| &one.peers);
    let others = peers.filter_map(|peer| peer["spec"]["clusterId"].as_str());
    let others: BTreeSet<_> = others.filter(|id| !ids.contains(id)).collect();
    others.into_iter().map(str::to_owned).collect()
}

/// The command by which other clusters forget one.
fn forget(id: &ClusterId, others: &[String], hub: Option<&KubeconfigArg>) -> String {
    let contexts = KubeconfigArg::of_all_contexts().unwrap_or_default();
    let contexts: Vec<String> = contexts.into_iter().filter_map(|one| one.context).collect();
    forget_with(id, others, hub, &contexts)
}

fn forget_with(
    id: &ClusterId,
    others: &[String],
    hub: Option<&KubeconfigArg>,
    contexts: &[String],
) -> String {
    let place = |other: &String| {
        let is_of =
            |context: &&String| member::id_of(context).is_ok_and(|id| id.as_str() == *other);
        match contexts.iter().find(is_of) {
            Some(context) => format!("--context {context}"),
            None => format!("KUBECONFIG-OF-{other}"),
        }
    };
    let mut words = vec![format!("  mcs forget {id}")];
    words.extend(others.iter().map(place));
    if others.is_empty() {
        words.push("KUBECONFIG...".to_owned());
    }
    words.extend(hub.map(|hub| format!("--hub {hub}")));
    words.join(" ")
}

fn joined<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_import_of_own_pods_alone_is_no_reason_to_wait() {
        let import = |ids: &[&str]| {
            let clusters: Vec<_> = ids.iter().map(|id| json!({"cluster": id})).collect();
            json!({"status": {"clusters": clusters}})
        };
        let imports = [import(&["east"]), import(&["east", "west"]), import(&[]), json!({})];
        assert_eq!(sources(&imports, "east"), BTreeSet::from(["west"]));
        assert!(sources(&imports[..1], "east").is_empty());
    }

    #[test]
    fn the_rest_of_a_clusterset_gets_the_command() {
        let id = "east".parse().unwrap();
        let others = ["south".to_owned(), "west".to_owned()];
        let contexts = ["arn:aws:eks:eu-west-1:1:cluster/West".to_owned()];
        let Ok(hub) = "hub.conf".parse::<KubeconfigArg>();
        assert_eq!(
            forget_with(&id, &others, Some(&hub), &contexts),
            "  mcs forget east KUBECONFIG-OF-south --context arn:aws:eks:eu-west-1:1:cluster/West --hub hub.conf"
        );
        let unknown = forget_with(&id, &[], None, &contexts);
        assert_eq!(unknown, "  mcs forget east KUBECONFIG...");
    }
}
