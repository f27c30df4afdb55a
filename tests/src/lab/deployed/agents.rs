//! The agent's DaemonSet and pods.

use super::Member;
use crate::prelude::*;

/// The name of the release and of its DaemonSet.
pub const NAME: &str = "mcs-agent";
/// Their namespace.
pub const NAMESPACE: &str = "mcs-system";
/// The label selector of all its objects.
pub const SELECTOR: &str = "app.kubernetes.io/name=mcs-agent";

/// The DaemonSet.
pub fn daemon_set(member: &Member) -> Result<Value> {
    member.kubectl.get(&["daemonset", NAME, "--namespace", NAMESPACE])
}

/// Its pods.
pub fn pods(member: &Member) -> Result<Vec<Value>> {
    let words = ["pods", "--namespace", NAMESPACE, "--selector", SELECTOR];
    let mut list = member.kubectl.get(&words)?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Deletes its pods, and returns when others are ready in their place.
pub fn delete_pods(member: &Member) -> Result {
    kubectl(member, &["delete", "pods", "--selector", SELECTOR])?;
    wait(member)
}

/// What `mcs-agent` prints in each of its pods.
pub fn ask(member: &Member, words: &[&str]) -> Result<Vec<String>> {
    let ask = |pod: Value| {
        let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
        kubectl(member, &[&["exec", name, "--", "mcs-agent"], words].concat())
    };
    pods(member)?.into_iter().map(ask).collect()
}

/// What `mcs-agent status` says in each of its pods, whether all is well or not.
pub fn statuses(member: &Member) -> Result<Vec<Value>> {
    let status = |pod: Value| {
        let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
        let mut command = member.kubectl.command();
        command.args(["--namespace", NAMESPACE, "exec", name, "--", "mcs-agent", "status"]);
        process::json(&command.args(["--output", "json"]).output()?)
    };
    pods(member)?.into_iter().map(status).collect()
}

/// What a pod has logged.
pub fn log(member: &Member, pod: &Value) -> Result<String> {
    let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
    kubectl(member, &["logs", name])
}

/// Changes the DaemonSet by a JSON patch, without waiting for what comes of it.
pub fn patch(member: &Member, patch: &Value) -> Result {
    let patch = patch.to_string();
    kubectl(member, &["patch", "daemonset", NAME, "--type=json", "--patch", &patch]).map(drop)
}

/// Waits until every pod is as the DaemonSet wants it, and ready.
pub fn wait(member: &Member) -> Result {
    kubectl(member, &["rollout", "status", "daemonset", NAME, "--timeout=90s"]).map(drop)
}

/// What pods say when they do not get ready.
pub fn explain(member: &Member) -> String {
    let describe = kubectl(member, &["describe", "pods", "--selector", SELECTOR]);
    let logs = kubectl(member, &["logs", "--tail=20", "--selector", SELECTOR]);
    [describe, logs].map(|text| text.unwrap_or_else(|error| format!("{error:#}"))).join("\n")
}

/// Runs kubectl in the agent's namespace.
fn kubectl(member: &Member, words: &[&str]) -> Result<String> {
    member.kubectl.run(&[&["--namespace", NAMESPACE], words].concat())
}
