//! What a cluster has to say: its objects, its logs, and its agents.

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use mcs_kube::told;
use serde_json::Value;

use super::archive::Archive;
use crate::{
    agent_pod::{self, AgentPod},
    check::agents,
    cluster::{
        Cluster, EXPORTED, EXPORTS, IMPORTS, Kind, LEASES, NODES, PEERS, PODS, PROPERTIES, SLICES,
    },
    status,
    tool::said_last,
};
use mcs_controller::clusterset::well_known;

/// The objects, and the labels that they need to have. None of them is a Secret.
const OBJECTS: [(Kind, &str); 8] = [
    (EXPORTS, ""),
    (IMPORTS, ""),
    (PEERS, ""),
    (EXPORTED, ""),
    (PROPERTIES, ""),
    (SLICES, well_known::SERVICE_NAME),
    (NODES, ""),
    (EXPORT_RULES, ""),
];
const EXPORT_RULES: Kind = ("clusterset.mcs-agent.io", "v1alpha1", "ExportRule", "exportrules");
const CONTROLLERS: &str = "app.kubernetes.io/name=mcs-controller";
/// What agents are asked for: the file, and the words.
const QUESTIONS: [(&str, &[&str]); 3] = [
    ("report.json", &["status", "--output", "json"]),
    ("services.json", &["services", "--output", "json"]),
    ("flows.json", &["flows", "--output", "json"]),
];
/// Agents that are asked at a time.
const AT_A_TIME: usize = 8;
/// The bytes of a log.
const MOST_BYTES: i64 = 1 << 20;

/// Adds everything of a cluster. What fails is noted.
pub(super) async fn collect(
    cluster: &Cluster,
    log_lines: u32,
    archive: &mut Archive,
) -> anyhow::Result<()> {
    let id = cluster.id.to_string();
    match status::read(cluster).await {
        Ok(found) => archive.json(&format!("{id}/status.json"), &found)?,
        Err(error) => archive.fail(&format!("{id}/status.json"), &told(&error)),
    }
    for (kind, selector) in OBJECTS {
        let name = format!("{id}/objects/{}.json", kind.3);
        let list = cluster.list_in(kind, None, selector).await;
        objects(archive, &name, list)?;
    }
    for (name, namespace, selector) in
        [("agents", None, agents::SELECTOR), ("controllers", None, CONTROLLERS)]
    {
        let pods = cluster.list_in(PODS, namespace, selector).await;
        for pod in pods.iter().flatten() {
            logs(cluster, pod, &format!("{id}/{name}"), log_lines, archive).await?;
        }
        objects(archive, &format!("{id}/{name}/pods.json"), pods)?;
    }
    let leases = cluster.list_in(LEASES, None, "").await.map(|leases| {
        let is_ours = |lease: &Value| {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            name == well_known::PUBLISHER_LEASE || name.starts_with("mcs-")
        };
        leases.into_iter().filter(is_ours).collect()
    });
    objects(archive, &format!("{id}/objects/leases.json"), leases)?;
    ask_agents(cluster, &id, archive).await
}

/// Who has written which field says nothing here.
fn objects(
    archive: &mut Archive,
    name: &str,
    list: anyhow::Result<Vec<Value>>,
) -> anyhow::Result<()> {
    match list {
        Ok(mut list) => {
            for object in &mut list {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
            }
            archive.json(name, &list)?;
        }
        Err(error) => archive.fail(name, &told(&error)),
    }
    Ok(())
}

/// The log of each container of a pod, and of the one before it.
async fn logs(
    cluster: &Cluster,
    pod: &Value,
    directory: &str,
    lines: u32,
    archive: &mut Archive,
) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, &namespace);
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    for container in containers.map(|one| text(&one["name"])) {
        let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        let restarts =
            statuses.filter(|one| one["name"] == container).map(|one| &one["restartCount"]);
        let was_restarted = restarts.into_iter().any(|count| count.as_u64() > Some(0));
        for previous in [false, true].into_iter().filter(|previous| !previous || was_restarted) {
            let params = LogParams {
                container: Some(container.clone()),
                limit_bytes: Some(MOST_BYTES),
                tail_lines: Some(lines.into()),
                previous,
                ..LogParams::default()
            };
            let suffix = if previous { "-previous" } else { "" };
            let file = format!("{directory}/logs/{name}-{container}{suffix}.txt");
            match pods.logs(&name, &params).await {
                Ok(log) => archive.text(&file, &log)?,
                Err(error) => archive.fail(&file, &told(&error.into())),
            }
        }
    }
    Ok(())
}

async fn ask_agents(cluster: &Cluster, id: &str, archive: &mut Archive) -> anyhow::Result<()> {
    let pods = match agent_pod::pods(cluster, None).await {
        Ok(pods) => pods,
        Err(error) => {
            archive.fail(&format!("{id}/agents"), &told(&error));
            return Ok(());
        }
    };
    let questions = pods.iter().flat_map(|pod| QUESTIONS.map(|(file, words)| (pod, file, words)));
    let asked = questions.map(|(pod, file, words)| async move {
        (format!("{id}/agents/{}/{file}", pod.node), ask(cluster, pod, words).await)
    });
    let mut answers = stream::iter(asked).buffered(AT_A_TIME);
    while let Some((file, answer)) = answers.next().await {
        match answer {
            Ok(text) => archive.text(&file, &text)?,
            Err(error) => archive.fail(&file, &told(&error)),
        }
    }
    Ok(())
}

/// What a command prints. `status` of an agent that is not well ends with 1, and prints its report.
async fn ask(cluster: &Cluster, pod: &AgentPod, words: &[&str]) -> anyhow::Result<String> {
    let output = pod.run(cluster, words).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(!text.trim().is_empty(), "{}", said_last(&output));
    Ok(text)
}
