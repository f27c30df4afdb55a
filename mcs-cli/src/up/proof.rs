//! The proof at the end of `mcs up`: a service of all clusters, to which a pod on every node connects by name.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use futures_util::{StreamExt as _, stream};
use mcs_controller::{clusterset::well_known, probe::Outcome};
use mcs_kube::dns_name;
use serde_json::{Value, json};
use tokio::{signal::ctrl_c, time::Instant};

use super::member::Member;
use crate::{
    check::pods::{Errand, ProbeArgs, run_pod},
    cluster::{Cluster, DEPLOYMENTS, EXPORTS, IMPORTS, NODES, SERVICES},
    progress, wait,
};

/// The service, in the namespace of the controllers, whose pods are its endpoints.
const NAME: &str = "mcs-canary";
const NAMESPACE: &str = well_known::CONTROLLER;
const PORT: u16 = 80;
/// How long it may take until the service is imported everywhere.
const IMPORTED_WITHIN: Duration = Duration::from_mins(1);
/// How long a changed configuration may take to reach CoreDNS: the kubelet's period, and that of `reload`.
const NAMED_WITHIN: Duration = Duration::from_mins(4);
/// How long one pod tries.
const ATTEMPT: Duration = Duration::from_secs(30);
/// Connections of each pod: they go to endpoints at random.
const CONNECTIONS: usize = 8;
/// Nodes of a cluster that are tried, and how many at a time.
const NODES_OF_CLUSTER: usize = 100;
const NODES_AT_A_TIME: usize = 10;

/// Proves that every node of every cluster reaches a service of all by name. Returns what was found, in lines.
///
/// # Errors
/// What does not work. The service is gone in either case.
pub(super) async fn prove(members: &[Member]) -> anyhow::Result<Vec<String>> {
    progress::say(
        "all",
        "the proof begins: every node connects to a service of all clusters by name",
    )?;
    let proof = async {
        for member in members {
            export(&member.cluster).await.with_context(|| in_cluster(member))?;
        }
        imported(members).await?;
        let mut lines = Vec::new();
        for member in members {
            lines.push(connects(member).await.with_context(|| in_cluster(member))?);
        }
        Ok(lines)
    };
    let proven = tokio::select! {
        proven = proof => proven,
        Ok(()) = ctrl_c() => Err(anyhow!("it was interrupted")),
    };
    for member in members {
        withdraw(&member.cluster).await.with_context(|| in_cluster(member))?;
    }
    proven
}

fn in_cluster(member: &Member) -> String {
    format!("cluster {}", member.cluster.id)
}

/// Makes the service of the controller's own pods, and exports it.
async fn export(cluster: &Cluster) -> anyhow::Result<()> {
    let deployment = cluster.get(DEPLOYMENTS, Some(NAMESPACE), well_known::CONTROLLER).await?;
    let deployment =
        deployment.with_context(|| format!("there is no Deployment {NAMESPACE}/{NAMESPACE}"))?;
    cluster.apply(SERVICES, service(&deployment)).await?;
    cluster.apply(EXPORTS, json!({"metadata": {"namespace": NAMESPACE, "name": NAME}})).await
}

fn service(deployment: &Value) -> Value {
    json!({
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "spec": {
            "selector": deployment["spec"]["selector"]["matchLabels"],
            "ports": [{"name": "health", "port": PORT, "targetPort": "health"}],
        },
    })
}

async fn withdraw(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.delete(EXPORTS, Some(NAMESPACE), NAME).await?;
    cluster.delete(SERVICES, Some(NAMESPACE), NAME).await
}

/// Waits until each cluster has imported the service from all.
async fn imported(members: &[Member]) -> anyhow::Result<()> {
    let all: BTreeSet<&str> = members.iter().map(|member| member.cluster.id.as_str()).collect();
    let end = Instant::now() + IMPORTED_WITHIN;
    for Member { cluster, .. } in members {
        let import = async || {
            let import = cluster.get(IMPORTS, Some(NAMESPACE), NAME).await?.unwrap_or_default();
            let sources = import["status"]["clusters"].as_array().into_iter().flatten();
            let sources: BTreeSet<&str> =
                sources.filter_map(|one| one["cluster"].as_str()).collect();
            Ok(all.is_subset(&sources).then_some(()).ok_or_else(|| {
                format!(
                    "cluster {} has imported {NAMESPACE}/{NAME} from {sources:?} alone: `mcs status --service {NAMESPACE}/{NAME}` says why",
                    cluster.id
                )
            }))
        };
        wait::until(end, import).await?;
    }
    Ok(())
}

/// Connects from every node.
async fn connects(member: &Member) -> anyhow::Result<String> {
    let cluster = &member.cluster;
    let target = if member.dns.is_some() {
        format!("{}:{PORT}", dns_name::of(NAMESPACE, NAME))
    } else {
        let import = cluster.get(IMPORTS, Some(NAMESPACE), NAME).await?.unwrap_or_default();
        let vip = import["spec"]["ips"][0].as_str().context("its import has no ClusterSetIP")?;
        if vip.contains(':') { format!("[{vip}]:{PORT}") } else { format!("{vip}:{PORT}") }
    };
    named(cluster, &target).await?;
    let nodes = cluster.list(NODES).await?;
    let ready: Vec<&str> = nodes.iter().filter_map(ready_name).take(NODES_OF_CLUSTER).collect();
    let attempts = ready.iter().map(|node| attempt(cluster, &target, Some(node)));
    let attempts: Vec<_> = stream::iter(attempts).buffered(NODES_AT_A_TIME).collect().await;
    let mut lost = Vec::new();
    for (node, attempt) in ready.iter().zip(attempts) {
        match attempt {
            Ok(outcomes) if outcomes.iter().all(|one| *one == Outcome::Answered) => {}
            Ok(outcomes) => lost.push(format!("node {node}: {}", said(&target, &outcomes))),
            Err(error) => lost.push(format!("node {node}: {error:#}")),
        }
    }
    ensure!(
        lost.is_empty(),
        "{} of {} nodes do not reach it: {}",
        lost.len(),
        ready.len(),
        lost.join("; ")
    );
    let others = match nodes.len() - ready.len() {
        0 => String::new(),
        others => {
            format!(" ({others} more were not tried: not ready, or beyond {NODES_OF_CLUSTER})")
        }
    };
    Ok(format!(
        "{}: {} of {} nodes connect to {target}{others}",
        cluster.id,
        ready.len(),
        ready.len()
    ))
}

/// Waits until the name is known and answered from one pod.
async fn named(cluster: &Cluster, target: &str) -> anyhow::Result<()> {
    let answer = async || {
        let outcomes = attempt(cluster, target, None).await?;
        if outcomes.iter().all(|one| *one == Outcome::Answered) {
            return Ok(Ok(()));
        }
        let said = said(target, &outcomes);
        progress::say(cluster.id.as_str(), &said)?;
        Ok(Err(format!("{said}: `mcs check` says what is missing")))
    };
    wait::until(Instant::now() + NAMED_WITHIN, answer).await
}

async fn attempt(
    cluster: &Cluster,
    target: &str,
    node: Option<&str>,
) -> anyhow::Result<Vec<Outcome>> {
    let errand = Errand { targets: vec![target.to_owned(); CONNECTIONS], wait: ATTEMPT, node };
    run_pod(cluster, &ProbeArgs::in_namespace(NAMESPACE), &errand)
        .await?
        .map_err(|why| anyhow!(why))
}

fn said(target: &str, outcomes: &[Outcome]) -> String {
    let failed: Vec<_> = outcomes.iter().filter(|one| **one != Outcome::Answered).collect();
    let what = failed.first().map_or("answers", |outcome| outcome.text());
    format!("{target} {what}, in {} of {} attempts", failed.len(), outcomes.len())
}

/// The name of a node on which pods can run.
fn ready_name(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    (ready["status"] == "True").then(|| node["metadata"]["name"].as_str()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_has_the_pods_of_the_controller() {
        let deployment = json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}});
        let service = service(&deployment);
        assert_eq!(service["spec"]["selector"], json!({"app": "x"}));
        assert_eq!(service["spec"]["ports"][0]["targetPort"], "health");
    }

    #[test]
    fn what_fails_is_told_with_its_share() {
        let outcomes = [Outcome::Answered, Outcome::Timeout, Outcome::Timeout];
        assert_eq!(said("web:80", &outcomes), "web:80 does not answer, in 2 of 3 attempts");
    }

    #[test]
    fn pods_run_on_ready_nodes() {
        let node = |status: &str| json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert_eq!(ready_name(&node("True")), Some("n"));
        assert_eq!(ready_name(&node("Unknown")), None);
    }
}
