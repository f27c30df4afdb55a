//! `mcs-controller status`: the peers of clusters, their exports and imports.

use std::process::ExitCode;

use clap::Args;
use mcs_kube::program;
use serde::Serialize;
use serde_json::Value;

use super::{
    cluster::{Cluster, EXPORTS, IMPORTS, KubeconfigArg, PEERS},
    output::{self, Format},
};
use crate::clusterset::ClusterId;

/// Show the peers of clusters, and how many services they export and import.
///
/// Exits with 0 if every peer is connected, synced and fresh, none of its endpoints is refused, and every ServiceExport is
/// exported; else with 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-controller status
  mcs-controller status east.conf west.conf -o json")]
pub(super) struct StatusCommand {
    /// Kubeconfigs, one for each cluster: `FILE` or `FILE:CONTEXT` [default: KUBECONFIG, ~/.kube/config, or the service
    /// account of the pod]
    #[arg(value_name = "KUBECONFIG")]
    kubeconfigs: Vec<KubeconfigArg>,

    /// Output format
    #[arg(short, long, env = "MCS_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// What one cluster says.
#[derive(Debug, Serialize)]
struct ClusterStatus {
    cluster: ClusterId,
    server: String,
    exports: usize,
    /// ServiceExports that are not exported, with the reason.
    not_exported: Vec<Problem>,
    imports: usize,
    peers: Vec<PeerStatus>,
}

/// An object that is not as it should be.
#[derive(Debug, Serialize)]
struct Problem {
    namespace: String,
    name: String,
    reason: String,
    message: String,
}

/// What a ClusterPeer says.
#[derive(Debug, Serialize)]
struct PeerStatus {
    peer: String,
    cluster: String,
    connected: String,
    synced: String,
    fresh: String,
    services: u64,
    endpoints: u64,
    /// Conditions that do not hold, and refused endpoints.
    problems: Vec<String>,
}

pub(super) fn run(command: &StatusCommand) -> anyhow::Result<ExitCode> {
    let clusters = program::block_on(read_all(&command.kubeconfigs))?;
    match command.output {
        Format::Json => output::json(&clusters)?,
        Format::Table => show(&clusters)?,
    }
    let is_fine = |one: &ClusterStatus| {
        one.not_exported.is_empty() && one.peers.iter().all(|peer| peer.problems.is_empty())
    };
    Ok(if clusters.iter().all(is_fine) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn read_all(kubeconfigs: &[KubeconfigArg]) -> anyhow::Result<Vec<ClusterStatus>> {
    let mut all = Vec::new();
    for cluster in Cluster::open_all(kubeconfigs).await? {
        all.push(read(&cluster).await?);
    }
    Ok(all)
}

async fn read(cluster: &Cluster) -> anyhow::Result<ClusterStatus> {
    let exports = cluster.list(EXPORTS).await?;
    Ok(ClusterStatus {
        cluster: cluster.id.clone(),
        server: cluster.server.clone(),
        exports: exports.len(),
        not_exported: exports.iter().filter_map(problem).collect(),
        imports: cluster.list(IMPORTS).await?.len(),
        peers: cluster.list(PEERS).await?.iter().map(peer).collect(),
    })
}

/// The condition of this type.
pub(super) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Why a ServiceExport is not exported.
fn problem(export: &Value) -> Option<Problem> {
    let failing = ["Valid", "Ready"].into_iter().find_map(|name| {
        let condition = condition(export, name);
        let holds = condition.is_some_and(|condition| condition["status"] == "True");
        (!holds).then_some(condition)
    })?;
    let (reason, message) = match failing {
        Some(condition) => (text(&condition["reason"]), text(&condition["message"])),
        None => ("Pending".to_owned(), "no controller has looked at it yet".to_owned()),
    };
    let metadata = &export["metadata"];
    Some(Problem {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        reason,
        message,
    })
}

/// What is wrong with a ClusterPeer: conditions that do not hold, and refused endpoints.
pub(super) fn problems(peer: &Value) -> Vec<String> {
    let status = &peer["status"];
    let Some(conditions) = status["conditions"].as_array() else {
        return vec!["no controller has looked at it yet: is one running?".to_owned()];
    };
    let failing = conditions.iter().filter(|one| one["status"] == "False");
    let failing =
        failing.map(|one| format!("{} is False: {}", text(&one["type"]), text(&one["message"])));
    let refused = status["refusedEndpoints"].as_u64().filter(|count| *count > 0);
    let refused = refused.map(|count| {
        format!(
            "{count} of its endpoints are refused: `kubectl get events --all-namespaces --field-selector \
             reason=EndpointsRefused` says why"
        )
    });
    failing.chain(refused).collect()
}

fn peer(object: &Value) -> PeerStatus {
    let status = |name: &str| {
        condition(object, name).map_or_else(|| "Unknown".to_owned(), |one| text(&one["status"]))
    };
    let count = |name: &str| object["status"][name].as_u64().unwrap_or_default();
    PeerStatus {
        peer: text(&object["metadata"]["name"]),
        cluster: text(&object["spec"]["clusterId"]),
        connected: status("Connected"),
        synced: status("Synced"),
        fresh: status("Fresh"),
        services: count("services"),
        endpoints: count("endpoints"),
        problems: problems(object),
    }
}

fn show(clusters: &[ClusterStatus]) -> anyhow::Result<()> {
    let rows = clusters.iter().map(|one| {
        let exported = one.exports - one.not_exported.len();
        vec![
            one.cluster.to_string(),
            one.server.clone(),
            format!("{exported}/{}", one.exports),
            one.imports.to_string(),
            one.peers.len().to_string(),
        ]
    });
    output::table(&["CLUSTER", "API SERVER", "EXPORTED", "IMPORTS", "PEERS"], rows)?;
    let rows = clusters.iter().flat_map(|one| {
        one.peers.iter().map(|peer| {
            vec![
                one.cluster.to_string(),
                peer.cluster.clone(),
                peer.connected.clone(),
                peer.synced.clone(),
                peer.fresh.clone(),
                peer.services.to_string(),
                peer.endpoints.to_string(),
                peer.problems.join("; "),
            ]
        })
    });
    let header =
        ["CLUSTER", "PEER", "CONNECTED", "SYNCED", "FRESH", "SERVICES", "ENDPOINTS", "PROBLEMS"];
    println!();
    output::table(&header, rows)?;
    let rows: Vec<_> = clusters
        .iter()
        .flat_map(|one| {
            one.not_exported.iter().map(|problem| {
                let name = format!("{}/{}", problem.namespace, problem.name);
                vec![one.cluster.to_string(), name, problem.reason.clone(), problem.message.clone()]
            })
        })
        .collect();
    if !rows.is_empty() {
        println!();
        output::table(&["CLUSTER", "NOT EXPORTED", "REASON", "MESSAGE"], rows)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_export_is_exported_if_its_conditions_hold() {
        let export = |conditions: Value| json!({"metadata": {"namespace": "shop", "name": "web"}, "status": {"conditions": conditions}});
        let one = |name: &str, status: &str| json!({"type": name, "status": status, "reason": "R", "message": "m"});
        let reason = |conditions| problem(&export(conditions)).map(|problem| problem.reason);
        assert_eq!(reason(json!([one("Valid", "True"), one("Ready", "True")])), None);
        assert_eq!(reason(json!([one("Valid", "False"), one("Ready", "False")])).unwrap(), "R");
        assert_eq!(reason(json!([one("Valid", "True"), one("Ready", "Unknown")])).unwrap(), "R");
        assert_eq!(reason(json!([])).unwrap(), "Pending");
    }

    #[test]
    fn a_peer_with_refused_endpoints_has_a_problem() {
        let peer = |status: Value| problems(&json!({"status": status}));
        let conditions = json!([
            {"type": "Connected", "status": "True", "message": "fine"},
            {"type": "Fresh", "status": "False", "message": "silent"},
            {"type": "CIDRsDisjoint", "status": "Unknown", "message": "no ranges"},
        ]);
        assert_eq!(peer(json!({"conditions": conditions})), ["Fresh is False: silent"]);
        let refused = peer(json!({"conditions": [], "refusedEndpoints": 2}));
        assert!(refused[0].starts_with("2 of its endpoints are refused: "), "{refused:?}");
        assert_eq!(peer(json!({"conditions": [], "refusedEndpoints": 0})), [""; 0]);
        assert!(peer(Value::Null)[0].contains("is one running?"));
    }
}
