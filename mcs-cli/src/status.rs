//! `mcs status`: the peers of clusters, their exports and imports.

pub(crate) mod known;

use std::{collections::BTreeSet, fmt, process::ExitCode};

use clap::Args;
use jiff::Timestamp;
use mcs_kube::{
    program::{self, OutputArgs, Style, print},
    reasons::{self, Coded as _, Reason},
    told,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    cluster::{Cluster, EXPORTS, IMPORTS, PEERS},
    exit::UNASKED,
    kubeconfig::{ClusterArgs, KubeconfigArg},
};
use mcs_controller::core::clusterset::{ConditionType, well_known};

/// Show the peers of clusters, and how many services they export and import.
///
/// `-o wide` also shows when the token by which each peer is read expires, unless the controller renews it.
///
/// Exits with 0 if every cluster answers, every peer is connected, synced and fresh, none of its endpoints is refused, every
/// ServiceExport is exported, and every ServiceImport of the controller is ready; with 3 if clusters do not answer, or what is said
/// of a peer is unknown or not of now (`unknown`), and nothing is wrong elsewhere; else with 1. Without kubeconfigs it asks the
/// current context.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs status
  mcs status east.conf west.conf -o json")]
pub(super) struct StatusCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The status of one cluster.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ClusterStatus {
    /// Its id; its kubeconfig if it does not answer.
    cluster: String,
    server: String,
    /// Why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    exports: usize,
    /// ServiceExports that are not exported, with the reason.
    not_exported: Vec<Problem>,
    imports: usize,
    /// ServiceImports that are not ready, with the reason.
    not_ready: Vec<Problem>,
    /// ServiceImports about which the exporting clusters disagree.
    conflicts: Vec<Problem>,
    peers: Vec<PeerStatus>,
}

/// An object with a problem.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    namespace: String,
    name: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The status of a ClusterPeer.
#[derive(Debug, Serialize)]
struct PeerStatus {
    peer: String,
    cluster: String,
    connected: String,
    synced: String,
    fresh: String,
    pods_reachable: String,
    /// Null: the controller does not know.
    services: Option<u64>,
    endpoints: Option<u64>,
    /// When the token for it expires, unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_expires: Option<String>,
    /// False conditions, and rejected endpoints.
    problems: Vec<String>,
    /// Why it is not known whether the peer is read now.
    unknown: Vec<String>,
    /// Notes of true conditions: services that wait for a namespace, a token that is not renewed.
    notes: Vec<String>,
}

pub(super) fn run(command: &StatusCommand) -> anyhow::Result<ExitCode> {
    let named = command.clusters.named()?;
    let read = || program::block_on(read_all(&named));
    let clusters = command.output.show(read, |clusters, style| show(clusters, style))?;
    Ok(if clusters.iter().any(ClusterStatus::is_wrong) {
        ExitCode::FAILURE
    } else if clusters.iter().all(ClusterStatus::is_known) {
        ExitCode::SUCCESS
    } else {
        UNASKED.into()
    })
}

async fn read_all(kubeconfigs: &[KubeconfigArg]) -> anyhow::Result<Vec<ClusterStatus>> {
    let mut all = Vec::new();
    for (name, cluster) in Cluster::open_each(kubeconfigs).await? {
        let unread = |name: String, server: String, error: anyhow::Error| ClusterStatus {
            cluster: name,
            server,
            error: Some(told(&error)),
            ..ClusterStatus::default()
        };
        all.push(match cluster {
            Ok(cluster) => read(&cluster).await.unwrap_or_else(|error| {
                unread(cluster.id.to_string(), cluster.server.clone(), error)
            }),
            Err(error) => unread(name, String::new(), error),
        });
    }
    Ok(all)
}

/// Reads the status of a cluster.
pub(crate) async fn read(cluster: &Cluster) -> anyhow::Result<ClusterStatus> {
    let exports = cluster.list(EXPORTS).await?;
    let imports = cluster.list(IMPORTS).await?;
    let conflict = |import| Problem::if_condition(import, ConditionType::ImportConflict, "True");
    let now = Timestamp::now();
    Ok(ClusterStatus {
        cluster: cluster.id.to_string(),
        server: cluster.server.clone(),
        error: None,
        exports: exports.len(),
        not_exported: exports.iter().filter_map(problem).collect(),
        not_ready: imports.iter().filter_map(unready).collect(),
        conflicts: imports.iter().filter_map(conflict).collect(),
        imports: imports.len(),
        peers: cluster.list(PEERS).await?.iter().map(|one| peer(one, now)).collect(),
    })
}

impl ClusterStatus {
    fn is_wrong(&self) -> bool {
        !self.not_exported.is_empty()
            || !self.not_ready.is_empty()
            || self.peers.iter().any(|peer| !peer.problems.is_empty())
    }

    fn is_known(&self) -> bool {
        self.error.is_none() && self.peers.iter().all(|peer| peer.unknown.is_empty())
    }
}

impl Problem {
    /// The message of the condition with this status.
    pub(super) fn if_condition(object: &Value, kind: ConditionType, status: &str) -> Option<Self> {
        let condition = condition(object, kind.name()).filter(|one| one["status"] == status);
        condition.map(|condition| Self::of(object, condition))
    }

    fn of(object: &Value, condition: &Value) -> Self {
        Self::new(object, text(&condition["reason"]), text(&condition["message"]))
    }

    #[expect(clippy::needless_pass_by_value, reason = "a code, or words")]
    pub(super) fn new(object: &Value, reason: impl ToString, message: String) -> Self {
        let metadata = &object["metadata"];
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        Self { namespace, name, reason: reason.to_string(), message }
    }

    /// Nobody has judged the object.
    fn unseen(object: &Value) -> Self {
        let message = "no controller has looked at it yet, or the API server refuses its status: see the log of the controller";
        Self::new(object, Reason::Pending, message.to_owned())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, reason, message } = self;
        write!(f, "{namespace}/{name}: {reason}: {message}")
    }
}

/// The condition of this type.
pub(super) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

/// A text; empty for anything else.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Why a ServiceExport is not exported.
pub(super) fn problem(export: &Value) -> Option<Problem> {
    let failing = ["Valid", "Ready"].into_iter().find_map(|name| {
        let condition = condition(export, name);
        let holds = condition.is_some_and(|condition| condition["status"] == "True");
        (!holds).then_some(condition)
    })?;
    Some(failing.map_or_else(|| Problem::unseen(export), |failing| Problem::of(export, failing)))
}

/// Why a ServiceImport is not ready, as far as its controller has to say it: others need not write condition `Ready`.
pub(super) fn unready(import: &Value) -> Option<Problem> {
    match condition(import, ConditionType::Ready.name()) {
        Some(ready) => (ready["status"] != "True").then(|| Problem::of(import, ready)),
        None => is_own(import).then(|| Problem::unseen(import)),
    }
}

/// Whether the controller of this project writes the import.
pub(super) fn is_own(import: &Value) -> bool {
    import["metadata"]["labels"][well_known::MANAGED_BY] == well_known::CONTROLLER
}

/// The messages of a ClusterPeer's true conditions with these reasons.
fn said(peer: &Value, reasons: &[Reason]) -> Vec<String> {
    let conditions = peer["status"]["conditions"].as_array().into_iter().flatten();
    let said = conditions.filter(|one| {
        one["status"] == "True" && reasons.iter().any(|reason| one["reason"] == reason.name())
    });
    said.map(|one| text(&one["message"])).collect()
}

/// The notes of a ClusterPeer's true conditions.
fn notes(peer: &Value) -> Vec<String> {
    said(peer, &[Reason::TokenNotRenewed, Reason::NamespacesMissing, Reason::Masqueraded])
}

/// The note of a ClusterPeer about services whose namespace this cluster lacks.
pub(super) fn missing_namespaces(peer: &Value) -> Vec<String> {
    let cluster = text(&peer["spec"]["clusterId"]);
    let missing = said(peer, &[Reason::NamespacesMissing]).into_iter();
    missing.map(|message| format!("{cluster}: {message}")).collect()
}

/// The problems of a ClusterPeer: false conditions, and rejected endpoints.
pub(super) fn problems(peer: &Value) -> Vec<String> {
    let status = &peer["status"];
    let Some(conditions) = status["conditions"].as_array() else {
        let unseen = "no controller has looked at it yet: is one running? Or the API server refuses its status: see the log of the controller";
        return vec![unseen.to_owned()];
    };
    let failing = conditions.iter().filter(|one| one["status"] == "False");
    let failing = failing.map(|one| {
        let [kind, message, reason] = ["type", "message", "reason"].map(|of| text(&one[of]));
        format!("{kind} is False: {message} ({})", reasons::link(&reason))
    });
    let refused = status["refusedEndpoints"].as_u64().filter(|count| *count > 0);
    let refused = refused.map(|count| {
        format!(
            "{count} of its endpoints are refused: `kubectl get events --all-namespaces --field-selector \
             reason=EndpointsRefused` says why"
        )
    });
    failing.chain(refused).collect()
}

fn peer(object: &Value, now: Timestamp) -> PeerStatus {
    let status = |name: &str| {
        condition(object, name).map_or_else(|| "Unknown".to_owned(), |one| text(&one["status"]))
    };
    let count = |name: &str| object["status"][name].as_u64();
    PeerStatus {
        peer: text(&object["metadata"]["name"]),
        cluster: text(&object["spec"]["clusterId"]),
        connected: status("Connected"),
        synced: status("Synced"),
        fresh: status("Fresh"),
        pods_reachable: status("PodsReachable"),
        services: count("services"),
        endpoints: count("endpoints"),
        token_expires: object["status"]["tokenExpires"].as_str().map(str::to_owned),
        problems: problems(object),
        unknown: known::unknown(object, now),
        notes: notes(object),
    }
}

fn show(clusters: &[ClusterStatus], style: Style) -> anyhow::Result<()> {
    let rows = clusters.iter().map(|one| {
        let exported = one.exports - one.not_exported.len();
        vec![
            one.cluster.clone(),
            one.server.clone(),
            format!("{exported}/{}", one.exports),
            one.imports.to_string(),
            one.peers.len().to_string(),
            one.error.clone().unwrap_or_default(),
        ]
    });
    style.table(&["CLUSTER", "API SERVER", "EXPORTED", "IMPORTS", "PEERS", "ERROR"], rows)?;
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |one| one.to_string());
    let rows = clusters.iter().flat_map(|one| {
        one.peers.iter().map(|peer| {
            let mut row = vec![
                one.cluster.clone(),
                peer.cluster.clone(),
                peer.connected.clone(),
                peer.synced.clone(),
                peer.fresh.clone(),
                peer.pods_reachable.clone(),
                count(peer.services),
                count(peer.endpoints),
            ];
            row.extend(style.wide.then(|| peer.token_expires.clone().unwrap_or_default()));
            let said = [&*peer.problems, &*peer.unknown, &*peer.notes].concat();
            row.push(said.join("; "));
            row
        })
    });
    let mut header =
        vec!["CLUSTER", "PEER", "CONNECTED", "SYNCED", "FRESH", "REACHED", "SERVICES", "ENDPOINTS"];
    header.extend(style.wide.then_some("TOKEN EXPIRES"));
    header.push("PROBLEMS");
    print("")?;
    style.table(&header, rows)?;
    show_problems(clusters, style, "NOT EXPORTED", |one| &one.not_exported)?;
    show_problems(clusters, style, "IMPORT NOT READY", |one| &one.not_ready)?;
    show_problems(clusters, style, "CONFLICT", |one| &one.conflicts)
}

fn show_problems(
    clusters: &[ClusterStatus],
    style: Style,
    what: &str,
    problems: impl Fn(&ClusterStatus) -> &Vec<Problem>,
) -> anyhow::Result<()> {
    let links = clusters.iter().flat_map(|one| problems(one).iter().map(|one| &*one.reason));
    let links: BTreeSet<_> = links.map(reasons::link).collect();
    let rows: Vec<_> = clusters
        .iter()
        .flat_map(|one| {
            problems(one).iter().map(|problem| {
                let name = format!("{}/{}", problem.namespace, problem.name);
                vec![one.cluster.clone(), name, problem.reason.clone(), problem.message.clone()]
            })
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    print("")?;
    style.table(&["CLUSTER", what, "REASON", "MESSAGE"], rows)?;
    links.iter().try_for_each(|link| print(&format!("see {link}")))
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
    fn an_import_is_ready_if_its_controller_says_so() {
        let import = |manager: &str, conditions: Value| {
            let import = json!({
                "metadata": {"labels": {well_known::MANAGED_BY: manager}},
                "status": {"conditions": conditions},
            });
            unready(&import).map(|problem| problem.reason)
        };
        let ready = |status: &str| json!([{"type": "Ready", "status": status, "reason": "R"}]);
        for (own, theirs, conditions) in [
            (None, None, ready("True")),
            (Some("R"), Some("R"), ready("False")),
            (Some("R"), Some("R"), ready("Unknown")),
            (Some("Pending"), None, json!([])),
        ] {
            let found =
                [well_known::CONTROLLER, "other"].map(|one| import(one, conditions.clone()));
            assert_eq!(found.each_ref().map(Option::as_deref), [own, theirs], "{conditions}");
        }
    }

    #[test]
    fn a_peer_of_which_nothing_is_known_has_neither_counts_nor_a_success() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let of = |conditions: Value| {
            let object = json!({"status": {"conditions": conditions, "services": 2}});
            let peers = vec![peer(&object, now)];
            ClusterStatus { peers, ..ClusterStatus::default() }
        };
        let fine = of(known::tests::conditions("", ""));
        assert!(fine.is_known() && !fine.is_wrong());
        assert_eq!((fine.peers[0].services, fine.peers[0].endpoints), (Some(2), None));
        let begun = of(known::tests::conditions("Fresh", "Unknown"));
        assert!(!begun.is_known() && !begun.is_wrong());
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_a_row() {
        let dead = "/nonexistent/east.conf".parse().unwrap();
        let clusters = program::block_on(read_all(&[dead])).unwrap();
        let [cluster] = &*clusters else { panic!("{clusters:?}") };
        assert_eq!(cluster.cluster, "/nonexistent/east.conf");
        assert!(cluster.error.as_ref().is_some_and(|error| error.contains("east.conf")));
        assert!(!cluster.is_known() && !cluster.is_wrong());
    }

    #[test]
    fn services_that_wait_for_a_namespace_are_no_problem() {
        let conditions = json!([
            {"type": "Synced", "status": "True", "reason": "NamespacesMissing", "message": "shop/web"},
            {"type": "Fresh", "status": "True", "reason": "Fresh", "message": "fine"},
        ]);
        let peer = json!({"status": {"conditions": conditions}});
        assert_eq!((notes(&peer), problems(&peer)), (vec!["shop/web".to_owned()], vec![]));
    }

    #[test]
    fn a_peer_with_refused_endpoints_has_a_problem() {
        let peer = |status: Value| problems(&json!({"status": status}));
        let conditions = json!([
            {"type": "Connected", "status": "True", "message": "fine"},
            {"type": "Fresh", "status": "False", "reason": "Stale", "message": "silent"},
            {"type": "CIDRsDisjoint", "status": "Unknown", "message": "no ranges"},
        ]);
        let said = format!("Fresh is False: silent ({})", Reason::Stale.link());
        assert_eq!(peer(json!({"conditions": conditions})), [said]);
        let refused = peer(json!({"conditions": [], "refusedEndpoints": 2}));
        assert!(refused[0].starts_with("2 of its endpoints are refused: "), "{refused:?}");
        assert_eq!(peer(json!({"conditions": [], "refusedEndpoints": 0})), [""; 0]);
        assert!(peer(Value::Null)[0].contains("is one running?"));
    }
}
