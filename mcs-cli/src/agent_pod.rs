//! Finds the agent's pods of a cluster, and runs commands in them.

use std::{cmp::Reverse, collections::BTreeMap, process::Output, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use mcs_kube::report::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    process::Command,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    cluster::{Cluster, PODS},
    fleet,
    status::condition,
    tool::{said_last, tool},
};

/// The label of the agent's pods.
pub(crate) const SELECTOR: &str = "app.kubernetes.io/name=mcs-agent";
/// The agents that are asked at a time.
const AT_A_TIME: usize = 8;
/// The time limit of a command in a pod. A probe of 16 silent backends takes 6 seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// The time for a short answer of one among many. A probe takes six seconds at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(7);

/// A pod of the agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) node: String,
    /// Why it is not ready.
    pub(crate) obstacle: Option<String>,
}

/// The agent's pod of each node, or of one node. A ready pod is preferred.
///
/// Anybody who may create a pod can give it the agent's label. So only pods of a DaemonSet count, in the namespace with
/// most of them.
pub(crate) async fn pods(cluster: &Cluster, node: Option<&str>) -> anyhow::Result<Vec<AgentPod>> {
    // The pods of one node do not show which namespace has most.
    let mut pods = of_nodes(&cluster.list_in(PODS, None, SELECTOR).await?);
    pods.retain(|pod| node.is_none_or(|node| pod.node == node));
    Ok(pods)
}

/// Chooses one of these pods for each node.
pub(crate) fn of_nodes(pods: &[Value]) -> Vec<AgentPod> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let has_ended =
        |pod: &&Value| ["Succeeded", "Failed"].map(Value::from).contains(&pod["status"]["phase"]);
    let is_agent = |pod: &&Value| {
        !has_ended(pod) && pod["spec"]["nodeName"].is_string() && is_of_daemon_set(pod)
    };
    let mut counts = BTreeMap::<&str, usize>::new();
    for pod in pods.iter().filter(is_agent) {
        *counts.entry(pod["metadata"]["namespace"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let most = counts.into_iter().min_by_key(|(_, count)| Reverse(*count));
    let mut all: Vec<_> = pods
        .iter()
        .filter(is_agent)
        .filter(|pod| most.is_some_and(|(most, _)| pod["metadata"]["namespace"] == most))
        .map(|pod| AgentPod {
            namespace: text(&pod["metadata"]["namespace"]),
            name: text(&pod["metadata"]["name"]),
            node: text(&pod["spec"]["nodeName"]),
            obstacle: (!is_ready(pod)).then(|| obstacle(pod)),
        })
        .collect();
    all.sort_by(|a, b| (&a.node, a.obstacle.is_some()).cmp(&(&b.node, b.obstacle.is_some())));
    all.dedup_by(|a, b| a.node == b.node);
    all
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Why a pod is not ready, by the scheduler, by the kubelet, and by the last line of the agent before it ended.
pub(crate) fn obstacle(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let statuses = statuses.iter().filter_map(|field| pod["status"][field].as_array()).flatten();
    let reason = statuses.into_iter().find_map(|one| {
        let (waiting, before) = (&one["state"]["waiting"], &one["lastState"]["terminated"]);
        let reason = waiting["reason"].as_str().filter(|reason| *reason != "PodInitializing")?;
        let said = before["message"].as_str().filter(|_| reason == "CrashLoopBackOff");
        let line = said.and_then(|said| {
            // Help follows an error about flags.
            let is_error = |line: &&str| line.starts_with("error: ");
            said.lines().find(is_error).or(said.trim().lines().next_back())
        });
        let message = line.or(waiting["message"].as_str()).unwrap_or_default();
        Some(format!("{reason} {message}"))
    });
    let unscheduled = condition(pod, "PodScheduled").filter(|one| one["status"] == "False");
    let unscheduled = unscheduled.map(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        format!("{} {}", text("reason"), text("message"))
    });
    match reason.or(unscheduled) {
        Some(reason) => format!("pod {name}: {}", reason.trim_end()),
        None => format!("pod {name} is not ready"),
    }
}

fn is_of_daemon_set(pod: &Value) -> bool {
    let is_daemon_set = |owner: &Value| {
        let version = owner["apiVersion"].as_str().unwrap_or_default();
        owner["kind"] == "DaemonSet" && version.starts_with("apps/") && owner["controller"] == true
    };
    pod["metadata"]["ownerReferences"].as_array().is_some_and(|all| all.iter().any(is_daemon_set))
}

impl AgentPod {
    /// Runs `mcs-agent` with these words in the pod, by kubectl.
    pub(crate) async fn run(&self, cluster: &Cluster, words: &[&str]) -> anyhow::Result<Output> {
        #[cfg(not(test))]
        let ended = crate::tool::ended(self.kubectl(cluster, words)?, &[]);
        #[cfg(test)]
        let ended = tests::in_memory(self, cluster, words);
        let ended = timeout(LIMIT, ended).await;
        ended.with_context(|| format!("no answer within {} s", LIMIT.as_secs()))?
    }

    /// The kubectl that runs `mcs-agent` with these words in the pod.
    pub(crate) fn kubectl(&self, cluster: &Cluster, words: &[&str]) -> anyhow::Result<Command> {
        let mut kubectl = match &cluster.kubeconfig {
            Some(kubeconfig) => tool("kubectl", "--context", kubeconfig)?,
            None => Command::new("kubectl"),
        };
        kubectl.kill_on_drop(true);
        kubectl.args(["exec", "--stdin", "--namespace", &self.namespace, &self.name]);
        kubectl.args(["--container", "mcs-agent", "--", "mcs-agent"]).args(words);
        Ok(kubectl)
    }

    /// Runs `mcs-agent` with these words, and reads its JSON.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        cluster: &Cluster,
        words: &[&str],
    ) -> anyhow::Result<T> {
        let output = self.run(cluster, &[words, &["--output", "json"]].concat()).await?;
        ensure!(output.status.success(), "{}", said_last(&output));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// What its agent says of itself. The command of a degraded agent ends with another status than 0.
    pub(crate) async fn status<R: DeserializeOwned>(
        &self,
        cluster: &Cluster,
    ) -> anyhow::Result<Status<R>> {
        self.said(cluster, &["status", "--output", "json"]).await
    }

    /// The JSON that `mcs-agent` prints with these words, whatever status it ends with.
    pub(crate) async fn said<T: DeserializeOwned>(
        &self,
        cluster: &Cluster,
        words: &[&str],
    ) -> anyhow::Result<T> {
        let output = self.run(cluster, words).await?;
        serde_json::from_slice(&output.stdout).map_err(|_| anyhow!(said_last(&output)))
    }
}

/// What one agent answers within this time, which ends with that of all at the latest.
pub(crate) async fn within<T>(
    patience: Duration,
    end: Instant,
    answer: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let begin = Instant::now();
    ensure!(begin < end, "not asked: the time for all agents was over");
    let late = |_| anyhow!("no answer within {} s", begin.elapsed().as_secs());
    timeout_at(end.min(begin + patience), answer).await.map_err(late)?
}

/// Asks the agents of these pods, a few at a time. The answers are in the order of the pods.
pub(crate) async fn ask_each<T>(
    pods: &[AgentPod],
    ask: impl AsyncFn(&AgentPod) -> T,
) -> Vec<(&AgentPod, T)> {
    fleet::each_of(AT_A_TIME, pods, async |pod| (pod, ask(pod).await)).await
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::ExitStatus;

    use http::Request;
    use serde_json::json;

    use super::*;

    /// What an API server in memory answers for the command in the pod. kubectl does not run.
    pub(super) async fn in_memory(
        pod: &AgentPod,
        cluster: &Cluster,
        words: &[&str],
    ) -> anyhow::Result<Output> {
        let AgentPod { namespace, name, .. } = pod;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/exec");
        let request = Request::get(format!("{path}?command={}", words.join("+")));
        let said = cluster.client().await?.request_text(request.body(vec![])?).await?;
        Ok(Output { status: ExitStatus::default(), stdout: said.into_bytes(), stderr: vec![] })
    }

    /// The status of a healthy agent, but for what differs.
    pub(crate) fn status<R: DeserializeOwned>(other: Value) -> Status<R> {
        serde_json::from_value(status_document(other)).unwrap()
    }

    /// The same as the agent prints it.
    pub(crate) fn status_document(other: Value) -> Value {
        let mut status = json!({
            "degraded": [], "counters": {}, "start": null,
            "report": {
                "agent": {"version": "1", "pid": 1, "host": "n", "started": 0, "updated": 0},
                "source": {"name": "Kubernetes", "kinds": [], "problems": [], "skipped": {}},
                "node": {"api_servers": []}, "rejections": [], "pending": [],
            },
        });
        merge(&mut status, other);
        status
    }

    fn merge(into: &mut Value, other: Value) {
        match (into, other) {
            (Value::Object(into), Value::Object(other)) => {
                for (name, value) in other {
                    merge(into.entry(name).or_insert(Value::Null), value);
                }
            }
            (into, other) => *into = other,
        }
    }

    #[test]
    fn a_node_has_the_pod_that_is_ready() {
        let pod = |name: &str, node: &str, phase: &str, ready: &str| {
            json!({
                "metadata": {"namespace": "mcs-system", "name": name, "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true},
                ]},
                "spec": {"nodeName": node},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let mut pending = pod("e", "n3", "Pending", "False");
        pending["spec"] = json!({});
        let (mut alone, mut elsewhere) =
            (pod("f", "n1", "Running", "True"), pod("g", "n1", "Running", "True"));
        alone["metadata"]["ownerReferences"] = json!([]);
        elsewhere["metadata"]["namespace"] = json!("a");
        let found = of_nodes(&[
            alone,
            elsewhere,
            pod("a", "n1", "Running", "False"),
            pod("b", "n1", "Running", "True"),
            pod("c", "n2", "Failed", "False"),
            pod("d", "n2", "Running", "False"),
            pending,
        ]);
        let mut unscheduled = pod("h", "n4", "Pending", "False");
        unscheduled["status"]["conditions"] = json!([
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
        ]);
        assert_eq!(obstacle(&unscheduled), "pod h: Unschedulable 0/3 nodes");
        let found: Vec<_> = found.iter().map(|one| (&*one.name, one.obstacle.as_deref())).collect();
        assert_eq!(found, [("b", None), ("d", Some("pod d is not ready"))]);
    }
}
