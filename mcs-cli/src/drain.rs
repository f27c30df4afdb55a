//! `mcs drain` and `mcs undrain`: move new connections away from a cluster, and back.

mod alone;
mod remaining;

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Args;
use jiff::{Timestamp, Unit};
use kube::api::{Patch, PatchParams};
use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::{
    Drain, TRAFFIC_PROPERTY, Traffic, duration,
    program::{self, FormatArgs, Style},
    told,
};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::{
    alone::{Alone, alone},
    remaining::Remaining,
};
use crate::{
    cluster::{Cluster, PEERS, PROPERTIES},
    fleet,
    kubeconfig::ClusterArgs,
    wait,
};

/// The time for a controller to tell its agents: it includes a write and a read of the drained cluster's Lease.
const LIMIT: Duration = Duration::from_mins(1);
/// The pause before the agents are asked again for remaining clients.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest duration of a flag.
const LONGEST: Duration = Duration::from_hours(8760);
/// The most services in a message.
const NAMED: usize = 5;

/// Send new connections elsewhere than to one cluster, for all services.
///
/// If the cluster itself is among those that are given, it tells all others, and every cluster that imports from it obeys.
/// Otherwise only the given clusters obey, each by its ClusterPeer. TCP connections, UDP sockets and flows that exist go
/// on. A service that no other cluster serves is served by the drained one all the same. Waits until the given clusters
/// have told their agents, and says which clients are left: the command asks the agent of every node, by kubectl, and says
/// of which nodes it knows nothing. Exits with 1 if a cluster has not told its agents within a minute, or if after
/// `--until-idle` clients are left, or are not known to have left.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs drain west --context west --context east
  mcs drain west --context west --context east --deadline 30m --until-idle
  mcs drain west --context east                   # clients of east alone")]
pub(crate) struct DrainCommand {
    #[command(flatten)]
    target: TargetArgs,

    /// Drain it although no other cluster is known to serve some services
    #[arg(long)]
    force: bool,

    /// After this time, unconnected UDP sockets and UDP flows of packets leave the cluster too. Agents with --stale-udp=destroy and
    /// --stale-tcp=destroy also end sockets that are connected; both are off in the chart
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    deadline: Option<Duration>,

    /// Wait until no node of the given clusters has a client left, as the agent of each says
    #[arg(long)]
    until_idle: bool,

    /// How long to wait for that
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
    timeout: Duration,
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let parsed = duration(text).filter(|one| *one <= LONGEST);
    parsed.ok_or("write a duration of at most 8760h, such as 90s or 30m")
}

/// Send new connections to a cluster again.
///
/// It ends what `drain` has begun, in the clusters that are given.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mcs undrain west --context west --context east")]
pub(crate) struct UndrainCommand {
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
struct TargetArgs {
    /// The id of the cluster to drain
    #[arg(value_name = "CLUSTER")]
    cluster: ClusterId,

    #[command(flatten)]
    clusters: ClusterArgs,

    #[command(flatten)]
    format: FormatArgs,
}

/// The result in one cluster.
#[derive(Debug, Serialize)]
struct Obeyed {
    cluster: ClusterId,
    /// Whether its controller has told the agents, and each agent that was asked knows of it.
    obeys: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Services of the drained cluster with a port for which no other cluster is known to have a ready endpoint: the drained
    /// cluster continues to serve what nobody else does. `undrain` does not ask.
    only_there: Vec<String>,
    /// Those of which it is not known whether another cluster serves them, with the reason.
    not_known: Vec<String>,
    /// Its clients that still use the drained cluster. Absent after `undrain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<Remaining>,
}

pub(crate) fn drain(command: &DrainCommand) -> anyhow::Result<ExitCode> {
    let deadline = |after: Duration| (Timestamp::now() + after).round(Unit::Second);
    let deadline = command.deadline.map(deadline).transpose()?;
    let drain = Drain { deadline };
    let idle = command.until_idle.then_some(command.timeout);
    run(&command.target, Wish::Drain { drain, force: command.force, idle })
}

pub(crate) fn undrain(command: &UndrainCommand) -> anyhow::Result<ExitCode> {
    run(&command.target, Wish::Undrain)
}

#[derive(Clone, Copy)]
enum Wish {
    /// Waits for a cluster; with `idle`, until no client of it remains.
    Drain {
        drain: Drain,
        force: bool,
        idle: Option<Duration>,
    },
    Undrain,
}

fn run(target: &TargetArgs, wish: Wish) -> anyhow::Result<ExitCode> {
    let obeyed = program::block_on(carry_out(target, wish))?;
    target.format.show(&obeyed, |obeyed, style| table(obeyed, style))?;
    let is_idle = |one: &Obeyed| one.left.as_ref().is_some_and(Remaining::is_none);
    let waits = matches!(wish, Wish::Drain { idle: Some(_), .. });
    let all = obeyed.iter().all(|one| one.obeys && (!waits || is_idle(one)));
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(obeyed: &[Obeyed], style: Style) -> anyhow::Result<()> {
    let rows = obeyed.iter().map(Obeyed::row);
    style.table(&["CLUSTER", "OBEYS", "SERVED THERE ALONE", "CLIENTS LEFT"], rows)
}

impl Obeyed {
    fn row(&self) -> Vec<String> {
        let obeys = self.problem.clone().unwrap_or_else(|| "yes".to_owned());
        let left = self.left.as_ref().map_or_else(|| "-".to_owned(), Remaining::to_string);
        let alone = match (&self.left, self.not_known.len()) {
            (None, _) => "-".to_owned(),
            (_, 0) => self.only_there.len().to_string(),
            (_, unknown) => format!("{}, {unknown} of them not known", self.only_there.len()),
        };
        vec![self.cluster.to_string(), obeys, alone, left]
    }
}

async fn carry_out(target: &TargetArgs, wish: Wish) -> anyhow::Result<Vec<Obeyed>> {
    let TargetArgs { cluster: drained, clusters, .. } = target;
    let clusters = Cluster::open_all(&clusters.named()?).await?;
    let source = clusters.iter().find(|cluster| cluster.id == *drained);
    let read = fleet::each(&clusters, async |cluster| {
        let is_reader = cluster.id != *drained;
        let peer = if is_reader { Some(peer_of(cluster, drained).await?) } else { None };
        // Who undrains takes nothing from anybody.
        let alone = match wish {
            Wish::Drain { .. } => alone(cluster, drained, told_traffic(cluster).await?).await?,
            Wish::Undrain => vec![],
        };
        anyhow::Ok((cluster, peer, alone))
    });
    let all = fleet::all_of(read.await)?;
    if matches!(wish, Wish::Drain { force: false, .. }) {
        refuse_the_last(drained, all.iter().map(|(cluster, _, alone)| (&cluster.id, &alone[..])))?;
    }
    let drain = match wish {
        Wish::Drain { drain, .. } => Some(drain),
        Wish::Undrain => None,
    };
    if let Some(source) = source {
        set_property(source, drain).await?;
    }
    let set = fleet::each(&all, async |(cluster, peer, _)| {
        // The drained cluster itself tells its readers.
        match peer.as_deref().filter(|_| source.is_none() || drain.is_none()) {
            Some(peer) => set_peer(cluster, peer, drain).await,
            None => Ok(()),
        }
    });
    fleet::all_of(set.await)?;
    let end = Instant::now() + LIMIT;
    let problems = fleet::each(&all, async |(cluster, ..)| {
        wait::until(end, async || tells(cluster, drained, drain).await).await.err()
    });
    let problems = problems.await;
    let left = match wish {
        Wish::Drain { idle, .. } => {
            let idle_by = Instant::now() + idle.unwrap_or_default();
            let left = fleet::each(&all, async |(cluster, ..)| {
                Some(what_is_left(cluster, drained, end, idle_by).await)
            });
            left.await
        }
        Wish::Undrain => all.iter().map(|_| None).collect(),
    };
    let obeyed =
        all.iter().zip(problems).zip(left).map(|(((cluster, _, alone), problem), left)| {
            let untold = left.as_ref().and_then(|left| left.untold.first());
            let untold = untold.map(|node| format!("no: {node}"));
            let problem = problem.map(|error| told(&error)).or(untold);
            let unknown = alone.iter().filter(|one| one.unknown.is_some());
            Obeyed {
                cluster: cluster.id.clone(),
                obeys: problem.is_none(),
                problem,
                only_there: alone.iter().map(|one| one.service.clone()).collect(),
                not_known: unknown.map(Alone::to_string).collect(),
                left,
            }
        });
    Ok(obeyed.collect())
}

/// Counts the remaining clients of a cluster: until its agents know of the drain or `told_by`, and then until there are none
/// or `idle_by`. Reports progress on standard error.
async fn what_is_left(
    cluster: &Cluster,
    drained: &ClusterId,
    told_by: Instant,
    idle_by: Instant,
) -> Remaining {
    let mut before = None;
    loop {
        let left = Remaining::in_cluster(cluster, drained).await;
        let end = if left.untold.is_empty() { idle_by } else { idle_by.max(told_by) };
        if left.is_none() || Instant::now() + PAUSE > end {
            return left;
        }
        if before.as_ref() != Some(&left) {
            eprintln!("{}: clients left: {left}", cluster.id);
        }
        before = Some(left);
        sleep(PAUSE).await;
    }
}

/// The name of the ClusterPeer of a cluster.
async fn peer_of(cluster: &Cluster, drained: &ClusterId) -> anyhow::Result<String> {
    let peers = cluster.list(PEERS).await?;
    let peer = peers.iter().find(|peer| peer["spec"]["clusterId"] == *drained.as_str());
    let name = peer.and_then(|peer| peer["metadata"]["name"].as_str()).map(str::to_owned);
    name.with_context(|| format!("cluster {} has no ClusterPeer of {drained}", cluster.id))
}

/// Fails if services would have no other cluster.
fn refuse_the_last<'a>(
    drained: &ClusterId,
    clusters: impl Iterator<Item = (&'a ClusterId, &'a [Alone])>,
) -> anyhow::Result<()> {
    for (cluster, alone) in clusters {
        let named: Vec<_> = alone.iter().take(NAMED).map(Alone::to_string).collect();
        let named = named.join(", ");
        let more = match alone.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        ensure!(
            alone.is_empty(),
            "nothing was changed: for cluster {cluster}, {drained} alone serves {named}{more}; with --force it goes on serving \
             what no other cluster has a ready endpoint for, and is drained for all others"
        );
    }
    Ok(())
}

async fn set_property(source: &Cluster, drain: Option<Drain>) -> anyhow::Result<()> {
    let name = well_known::DRAIN_PROPERTY;
    let Some(drain) = drain else { return source.delete(PROPERTIES, None, name).await };
    let value = drain.deadline.map_or_else(|| "true".to_owned(), |deadline| deadline.to_string());
    let property = json!({"metadata": {"name": name}, "spec": {"value": value}});
    source.apply(PROPERTIES, property).await
}

/// A merge patch, not server-side apply: `link` applies the whole ClusterPeer and would reset the field.
async fn set_peer(cluster: &Cluster, peer: &str, drain: Option<Drain>) -> anyhow::Result<()> {
    let api = cluster.api(PEERS).await?;
    let deadline = drain.and_then(|drain| drain.deadline);
    let patch = json!({"spec": {"drain": drain.map(|_| true), "drainDeadline": deadline}});
    let patched = api.patch(peer, &PatchParams::default(), &Patch::Merge(patch)).await;
    let patched = patched.with_context(|| format!("cluster {}: ClusterPeer {peer}", cluster.id))?;
    ensure!(
        (drain.is_none() || patched.data["spec"]["drain"] == true)
            && (deadline.is_none() || patched.data["spec"]["drainDeadline"].is_string()),
        "the type ClusterPeer of cluster {} lacks spec.drain or spec.drainDeadline: kubectl apply --filename \
         deploy/helm/mcs-controller/crds",
        cluster.id
    );
    Ok(())
}

async fn told_traffic(cluster: &Cluster) -> anyhow::Result<Traffic> {
    let value = cluster.property(TRAFFIC_PROPERTY).await?;
    let parsed = value.map_or_else(|| Ok(Traffic::default()), |value| Traffic::parse(&value));
    parsed.map_err(|error| {
        anyhow::anyhow!("cluster {}: ClusterProperty {TRAFFIC_PROPERTY}: {error}", cluster.id)
    })
}

/// Whether the agents of a cluster have the setting.
async fn tells(
    cluster: &Cluster,
    drained: &ClusterId,
    drain: Option<Drain>,
) -> anyhow::Result<Result<(), String>> {
    let traffic = told_traffic(cluster).await?;
    let is_late = drain.and_then(|drain| drain.deadline).is_some_and(|wanted| {
        let told = traffic.drain(drained.as_str()).and_then(|drain| drain.deadline);
        told.is_none_or(|told| told > wanted)
    });
    Ok(match (drain.is_some(), traffic.is_drained(drained.as_str())) {
        (true, true) if is_late => {
            Err("drained, but its controller has not told the agents of the deadline".to_owned())
        }
        (true, true) | (false, false) => Ok(()),
        (true, false) => Err("no: its controller has not told the agents".to_owned()),
        (false, true) if traffic.weight(drained.as_str()) == Some(0) => {
            Err("no: the weight of its ClusterPeer is 0".to_owned())
        }
        (false, true) if traffic.is_withdrawn(drained.as_str()) => {
            Err(format!("no: {drained} is silent, and whenStale of its ClusterPeer is withdraw"))
        }
        (false, true) => Err(format!("no: {drained} itself or the ClusterPeer still says drain")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_flags_are_bounded() {
        assert_eq!(parse_duration("30m"), Ok(Duration::from_mins(30)));
        assert!(parse_duration("8761h").is_err() && parse_duration("soon").is_err());
    }

    #[test]
    fn what_undrain_does_not_ask_is_not_said() {
        let row = |left| {
            let cluster = "east".parse().unwrap();
            let (only_there, not_known) = (vec![], vec![]);
            Obeyed { cluster, obeys: true, problem: None, only_there, not_known, left }.row()
        };
        assert_eq!(row(None), ["east", "yes", "-", "-"]);
        assert_eq!(row(Some(Remaining::default())), ["east", "yes", "0", "none"]);
    }

    #[test]
    fn the_last_cluster_is_refused_by_the_names_of_services() {
        let [east, west] = ["east", "west"].map(|id| id.parse::<ClusterId>().unwrap());
        let services: Vec<_> =
            (0..7).map(|number| Alone::of(&format!("shop/web-{number}"))).collect();
        assert!(refuse_the_last(&west, [(&east, &[][..])].into_iter()).is_ok());
        let error = refuse_the_last(&west, [(&east, &services[..])].into_iter()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("for cluster east, west alone serves shop/web-0, "), "{text}");
        assert!(text.contains("shop/web-4 and 2 more;"), "{text}");
    }
}
