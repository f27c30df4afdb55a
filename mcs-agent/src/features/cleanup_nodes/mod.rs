//! Switches the agent's DaemonSet to cleanup, and waits until every node is clean.
//!
//! The chart runs it before `helm uninstall` deletes the DaemonSet, which alone would leave programs and maps on the nodes.

use std::{fmt, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Command, FromArgMatches as _};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use mcs_kube::program::{self, print};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::core::{
    cli::view::parse_key,
    feature::{Definition, Verb},
    model::ObjectKey,
};

/// The command in the list of features.
pub const FEATURE: Definition = Definition {
    verbs: &[Verb {
        command: || CleanupNodesArgs::augment_args(Command::new("cleanup-nodes")),
        run: |_, matches| run(&CleanupNodesArgs::from_arg_matches(matches)?),
    }],
    ..Definition::named("cleanup_nodes")
};

/// How often the API server is asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many nodes that are not clean are named.
const NAMED: usize = 10;

/// How far a DaemonSet's roll-out is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Progress {
    /// The nodes whose pod has the latest template and is ready.
    clean: u64,
    /// The nodes that should have a pod.
    nodes: u64,
}

impl Progress {
    /// `None` until the DaemonSet's controller has seen the latest change.
    fn of(object: &Value) -> Option<Self> {
        let status = |field: &str| object["status"][field].as_u64().unwrap_or_default();
        let generation = object["metadata"]["generation"].as_u64().unwrap_or_default();
        let nodes = status("desiredNumberScheduled");
        // A pod of the former template can be ready too.
        let clean = status("updatedNumberScheduled").min(status("numberReady"));
        (status("observedGeneration") >= generation).then_some(Self { clean, nodes })
    }

    const fn is_complete(self) -> bool {
        self.clean >= self.nodes
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} nodes are clean", self.clean, self.nodes)
    }
}

/// Applies a JSON merge patch to the DaemonSet, and waits until the pods of every node are ready. Reports each step.
pub(crate) async fn clean_nodes(
    daemon_set: &ObjectKey,
    patch: &Value,
    timeout: Duration,
    mut report: impl FnMut(&str),
) -> anyhow::Result<()> {
    let config =
        Config::infer().await.context("neither a kubeconfig nor a pod's service account")?;
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).context("cannot use the credentials")?;
    let namespace = daemon_set.namespace.as_ref();
    let sets: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<DaemonSet>(&()));
    let deadline = Instant::now() + timeout;
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = retry(deadline, || sets.patch(&daemon_set.name, &parameters, &patch)).await;
    match patched {
        Err(error) if is_absent(&error) => {
            report(&format!("there is no DaemonSet {daemon_set}: no node is cleaned"));
            return Ok(());
        }
        patched => {
            patched.with_context(|| format!("cannot change the DaemonSet {daemon_set} at {url}"))?
        }
    };
    report(&format!("the DaemonSet {daemon_set} cleans its nodes"));
    let mut reported = None;
    loop {
        let found = retry(deadline, || sets.get(&daemon_set.name)).await;
        let found =
            found.with_context(|| format!("cannot read the DaemonSet {daemon_set} at {url}"))?;
        let object = serde_json::to_value(&found)?;
        let progress = Progress::of(&object);
        if let Some(progress) = progress.filter(|_| progress != reported) {
            report(&progress.to_string());
            reported = Some(progress);
        }
        if progress.is_some_and(Progress::is_complete) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let names = unclean(&client, namespace, &object).await;
            let names =
                names.unwrap_or_else(|error| format!("their pods cannot be read: {error:#}"));
            bail!(
                "not every node is clean after {} s: {names}; the others are clean and serve no VIP: \
                 repeat the uninstall, or skip the hooks (`helm uninstall --no-hooks`) and clean \
                 these nodes with `mcs-agent cleanup`; `helm rollback` keeps the release, and lets \
                 every node serve again",
                timeout.as_secs()
            );
        }
        sleep(INTERVAL).await;
    }
}

/// Repeats a request until the deadline, unless the API server says that it will never do.
async fn retry<T, F: Future<Output = kube::Result<T>>>(
    deadline: Instant,
    mut request: impl FnMut() -> F,
) -> kube::Result<T> {
    loop {
        match request().await {
            Err(error) if !is_final(&error) && Instant::now() < deadline => {
                sleep(INTERVAL).await;
            }
            result => return result,
        }
    }
}

fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500 && status.code != 429)
}

fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// `NODE (POD Pending), ...` for the nodes whose pod is not ready, or is of the former template.
async fn unclean(client: &Client, namespace: &str, daemon_set: &Value) -> anyhow::Result<String> {
    let labels = daemon_set["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten();
    let selector: Vec<_> =
        labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    let pods: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
    let list = pods.list(&ListParams::default().labels(&selector.join(","))).await?;
    let lines: Vec<_> = list
        .items
        .iter()
        .filter_map(|pod| unclean_node(&serde_json::to_value(pod).ok()?))
        .collect();
    let more = lines.len().checked_sub(NAMED).filter(|more| *more > 0);
    let names = lines[..lines.len().min(NAMED)].join(", ");
    Ok(more.map_or_else(|| names.clone(), |more| format!("{names} and {more} more")))
}

/// The node of a pod that does not show it as clean, with the pod's state.
fn unclean_node(pod: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let cleans = pod["spec"]["containers"][0]["args"][0] == "cleanup";
    let is_ready = pod["status"]["containerStatuses"][0]["ready"] == true;
    if cleans && is_ready {
        return None;
    }
    let state = match &pod["status"]["initContainerStatuses"][0]["state"]["waiting"]["reason"] {
        _ if !cleans => "still runs the agent".to_owned(),
        Value::String(reason) => reason.clone(),
        _ => text(&pod["status"]["phase"]),
    };
    Some(format!(
        "{} (pod {}: {state})",
        text(&pod["spec"]["nodeName"]),
        text(&pod["metadata"]["name"])
    ))
}

/// Make a DaemonSet of the agent clean its nodes, and wait until every node is clean
///
/// The chart's pre-delete hook runs this. It asks the API server of `$KUBECONFIG` or of the pod's service account.
/// Exits with 1 and names the nodes that are not clean in time.
#[derive(Debug, Args)]
pub(crate) struct CleanupNodesArgs {
    /// The DaemonSet
    #[arg(long, env = "MCS_DAEMON_SET", value_name = "NAMESPACE/NAME", value_parser = parse_key)]
    daemon_set: ObjectKey,

    /// The JSON merge patch that makes its pods run `mcs-agent cleanup`
    #[arg(long, env = "MCS_PATCH", value_name = "JSON", value_parser = |text: &str| text.parse::<Value>())]
    patch: Value,

    /// How long to wait
    #[arg(long, env = "MCS_TIMEOUT", value_name = "SECONDS", default_value_t = 240)]
    timeout: u64,
}

pub(crate) fn run(args: &CleanupNodesArgs) -> anyhow::Result<ExitCode> {
    // Whoever reads the output does not matter to the nodes.
    let tell = |text: &str| drop(print(text));
    let timeout = Duration::from_secs(args.timeout);
    program::block_on(clean_nodes(&args.daemon_set, &args.patch, timeout, tell))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn daemon_set(observed: u64, updated: u64, ready: u64) -> Value {
        json!({
            "metadata": {"generation": 2},
            "status": {"observedGeneration": observed, "desiredNumberScheduled": 3,
                "updatedNumberScheduled": updated, "numberReady": ready},
        })
    }

    #[test]
    fn nodes_are_clean_when_updated_pods_are_ready() {
        assert_eq!(Progress::of(&daemon_set(1, 3, 3)), None, "the controller has not seen it");
        let progress = |updated, ready| Progress::of(&daemon_set(2, updated, ready)).unwrap();
        assert_eq!(progress(1, 3).to_string(), "1 of 3 nodes are clean");
        assert!(!progress(3, 2).is_complete());
        assert!(progress(3, 3).is_complete());
        assert!(Progress::of(&json!({"status": {}})).unwrap().is_complete(), "no node");
    }

    #[test]
    fn nodes_that_are_not_clean_are_named() {
        let pod = |argument: &str, ready: bool, state: Value| {
            json!({
                "metadata": {"name": "mcs-agent-x"},
                "spec": {"nodeName": "a", "containers": [{"args": [argument]}]},
                "status": {"phase": "Pending", "containerStatuses": [{"ready": ready}],
                    "initContainerStatuses": [{"state": state}]},
            })
        };
        let of = |argument, ready, state| unclean_node(&pod(argument, ready, state));
        assert_eq!(of("cleanup", true, json!({})), None);
        assert_eq!(of("cleanup", false, json!({})).unwrap(), "a (pod mcs-agent-x: Pending)");
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(of("cleanup", false, waiting).unwrap(), "a (pod mcs-agent-x: CrashLoopBackOff)");
        assert!(of("run", true, json!({})).unwrap().ends_with("still runs the agent)"));
    }
}
