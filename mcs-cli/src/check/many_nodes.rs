//! A cluster of a hundred nodes, whose agents are made up: some answer late, some never.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use clap::FromArgMatches as _;
use futures_util::FutureExt as _;
use mcs_kube::testing::{
    in_memory::{Asked, Served, whole},
    kubeconfig,
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::time::sleep;

use super::{
    chain::{
        What,
        world::{services, world},
    },
    nodes::folded,
    *,
};
use crate::agent_pod::tests::status_document;

const NODES: usize = 100;
/// How long an agent takes for an answer.
const ANSWER: Duration = Duration::from_millis(400);
/// Nodes with a fault of their own: a ClusterSetIP is silent, large answers are lost, DNS is silent.
const FAULTS: [usize; 3] = [3, 7, 9];

/// The API server of a cluster with that many nodes. Of them each `silent`-th has an agent that never answers.
fn serve(number: usize, nodes: usize, silent: usize) -> (Served, NamedTempFile) {
    let mut world = world(2);
    let facts = world.swap_remove(number - 1);
    let id = facts.cluster.clone();
    let mut lists = BTreeMap::<String, Value>::new();
    for (what, path) in [
        (What::Exports, "apis/multicluster.x-k8s.io/v1beta1/serviceexports"),
        (What::Imports, "apis/multicluster.x-k8s.io/v1beta1/serviceimports"),
        (
            What::Published,
            "apis/clusterset.mcs-agent.io/v1alpha1/namespaces/mcs-mailbox/exportedservices",
        ),
        (What::Peers, "apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers"),
        (What::Properties, "apis/about.k8s.io/v1beta1/clusterproperties"),
        (What::Slices, "apis/discovery.k8s.io/v1/endpointslices"),
        (What::Services, "api/v1/services"),
        (What::Namespaces, "api/v1/namespaces"),
        (What::Pods, "api/v1/namespaces/shop/pods"),
    ] {
        lists.insert(format!("/{path}"), list(facts.read(what).unwrap().to_vec()));
    }
    let names = (1..=nodes).map(|node| format!("n{node}"));
    let node = |name: String| json!({"metadata": {"name": name}});
    lists.insert("/api/v1/nodes".to_owned(), list(names.clone().map(node)));
    lists.insert("/api/v1/pods".to_owned(), list(names.map(|node| agent(&node))));
    let controller = json!({
        "status": {
            "podIPs": [{"ip": format!("10.{number}.9.9")}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    lists.insert("/api/v1/namespaces/mcs-controller/pods".to_owned(), list([controller]));
    let container = json!({"image": "mcs", "ports": [{"name": "health", "containerPort": 16460}]});
    let template = json!({"spec": {"containers": [container]}});
    let deployment =
        json!({"spec": {"selector": {"matchLabels": {"app": "mcs"}}, "template": template}});
    let id_property = "/apis/about.k8s.io/v1beta1/clusterproperties/cluster.clusterset.k8s.io";
    for (path, object) in [
        (id_property, json!({"spec": {"value": id}})),
        ("/apis/apps/v1/namespaces/mcs-controller/deployments/mcs-controller", deployment),
        (
            "/api/v1/namespaces/kube-system/services/kube-dns",
            json!({"spec": {"clusterIP": "10.96.0.10"}}),
        ),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "it"});
        lists.insert(path.to_owned(), object);
    }
    let lists = Arc::new(lists);
    let answer = move |asked: Asked| {
        let lists = Arc::clone(&lists);
        async move {
            let said = match asked.path.strip_suffix("/exec") {
                Some(path) => {
                    let node = path.rsplit_once("-n").unwrap().1.parse().unwrap();
                    if node % silent == 0 {
                        pending::<()>().await;
                    }
                    sleep(ANSWER).await;
                    Some(said(node, &asked.query["command"]))
                }
                None => lists.get(&asked.path).cloned(),
            };
            let absent =
                || json!({"kind": "Status", "status": "Failure", "message": "none", "code": 404});
            let code = if said.is_some() { 200 } else { 404 };
            Ok((code, whole(said.unwrap_or_else(absent).to_string())))
        }
        .boxed()
    };
    let host = format!("{id}.memory");
    let (_, file) = kubeconfig(&format!("http://{host}"));
    (Served::at(&host, Arc::new(answer)), file)
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    json!({"metadata": {}, "items": items.into_iter().collect::<Vec<_>>()})
}

fn agent(node: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true});
    // The last ones are not ready.
    let ready = if ["n90", "n80"].contains(&node) { "False" } else { "True" };
    json!({
        "metadata": {
            "namespace": "mcs-system", "name": format!("agent-{node}"), "ownerReferences": [owner],
        },
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// What an agent answers.
fn said(node: usize, words: &str) -> Value {
    if words.starts_with("status") {
        let way = json!({
            "cluster": "c2", "family": "IPv4", "reachable": true, "reached": 2, "silent": 0,
            "round_trip_micros": 100 * node, "silent_endpoints": [],
        });
        return status_document(json!({"report": {"reach": [way]}}));
    }
    if words.starts_with("services") {
        return services(2);
    }
    let words: Vec<_> = words.split(' ').skip(1).collect();
    let (flags, targets): (Vec<_>, Vec<_>) = words.iter().partition(|one| one.starts_with("--"));
    assert!(flags.contains(&&"--dns-server=10.96.0.10") && !targets.is_empty(), "{words:?}");
    let count = |name: &str| flags.iter().filter(|flag| flag.starts_with(name)).count();
    let (asked, full) = (count("--ask="), count("--full="));
    assert!(full > 0, "{words:?}");
    let outcome = |target: &&&str| match (node, target.starts_with("241.")) {
        (3, true) => "timeout",
        (9, false) => "dns_silent",
        _ => "answered",
    };
    json!({
        "outcomes": targets.iter().map(outcome).collect::<Vec<_>>(),
        "sources": vec![json!({"own": "10.1.0.1", "seen": "10.1.0.1"}); asked],
        "large": vec![true; asked],
        "full": vec![node != 7; full],
    })
}

/// Checks it, and says how long that has taken.
async fn checked(silent: usize) -> (Vec<Finding>, Duration) {
    let (_one, first) = serve(1, NODES, silent);
    let (_two, second) = serve(2, 2, 3);
    let command = CheckCommand::augment_args(clap::Command::new("check").no_binary_name(true));
    let words = [&first, &second].map(|file| file.path().display().to_string());
    let matches = command.try_get_matches_from(words).unwrap();
    let command = CheckCommand::from_arg_matches(&matches).unwrap();
    let begin = Instant::now();
    let findings = check_all(&command, &Probing::default()).await.unwrap();
    (findings, begin.elapsed())
}

const OF_NODES: [ClusterCheck; 4] = [
    ClusterCheck::Reach,
    ClusterCheck::ByAddress,
    ClusterCheck::ByName,
    ClusterCheck::LargeAnswers,
];

#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_are_checked_within_half_a_minute() {
    let (findings, took) = checked(10).await;
    assert!(took <= Duration::from_secs(30), "{took:?}");
    let of = |check: ClusterCheck, result: &str| {
        let mut nodes: Vec<usize> = findings
            .iter()
            .filter(|one| one.cluster == "c1" && one.check == check && one.result() == result)
            .filter_map(|one| one.node.as_ref()?.strip_prefix('n')?.parse().ok())
            .collect();
        nodes.sort_unstable();
        nodes
    };
    let silent = [10, 20, 30, 40, 50, 60, 70, 100];
    for check in OF_NODES {
        assert_eq!(of(check, "skipped"), silent, "{check}");
        let fault = FAULTS.into_iter().zip([1, 3, 2]).find(|(_, row)| OF_NODES[*row] == check);
        let fault: Vec<_> = fault.map(|(node, _)| node).into_iter().collect();
        assert_eq!(of(check, "FAILED"), fault, "{check}");
        assert_eq!(of(check, "ok").len(), 90 - fault.len(), "{check}");
    }
    let all: Vec<_> = findings.iter().collect();
    let shown = folded(&all);
    for check in OF_NODES {
        let rows = shown.iter().filter(|(one, _)| one.cluster == "c1" && one.check == check);
        let rows: Vec<_> = rows.filter(|(one, _)| one.node.is_some()).collect();
        assert!((2..=3).contains(&rows.len()), "{check}: {rows:?}");
        let skipped = rows.iter().find(|(one, _)| one.result() == "skipped").unwrap();
        let expected = "n10; n100; n20; n30; n40; and 3 more: no answer within ";
        assert!(skipped.1.starts_with(expected), "{}", skipped.1);
    }
}

#[tokio::test(start_paused = true)]
async fn agents_that_never_answer_hold_nobody_up() {
    for silent in [1, 2] {
        let (findings, took) = checked(silent).await;
        assert!(took <= Duration::from_secs(30), "{took:?}");
        for check in OF_NODES {
            let rows = findings.iter().filter(|one| one.check == check && one.cluster == "c1");
            let skipped = rows.filter(|one| one.node.is_some() && one.result() == "skipped");
            assert!(skipped.count() >= 96 / silent, "{check}");
        }
    }
}
