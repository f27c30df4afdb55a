//! Collects the data of a cluster: objects, logs, and reports of agents.

use std::io;

use futures_util::{AsyncRead, AsyncReadExt as _, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use mcs_kube::told;
use serde_json::Value;

use super::{archive::Archive, events};
use crate::{
    agent_pod::{self, AgentPod},
    cluster::{
        Cluster, EXPORTED, EXPORTS, IMPORTS, Kind, LEASES, NODES, PEERS, PODS, PROPERTIES, SLICES,
    },
    dns::Sources,
    status,
    tool::said_last,
};
use mcs_controller::core::clusterset::well_known;

/// The kinds of objects, each with a label selector. Secrets are excluded.
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
/// The commands for agents: the file, and the words.
const QUESTIONS: [(&str, &[&str]); 3] = [
    ("report.json", &["status", "--output", "json"]),
    ("services.json", &["services", "--output", "json"]),
    ("flows.json", &["flows", "--output", "json"]),
];
/// In place of a value that is left out.
const HIDDEN: &str = "(left out)";
/// The agents that are asked at a time.
const AT_A_TIME: usize = 8;
/// The last bytes of a log. The API server's limit would keep the first bytes.
const MOST_BYTES: usize = 1 << 20;

/// Adds the data of a cluster, in the directory `id`. Records failures.
pub(super) async fn collect(
    cluster: &Cluster,
    id: &str,
    log_lines: u32,
    archive: &mut Archive,
) -> anyhow::Result<()> {
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
        [("agents", None, agent_pod::SELECTOR), ("controllers", None, CONTROLLERS)]
    {
        let pods = cluster.list_in(PODS, namespace, selector).await;
        for pod in pods.iter().flatten() {
            logs(cluster, pod, &format!("{id}/{name}"), log_lines, archive).await?;
        }
        let pods = pods.map(|mut pods| {
            pods.iter_mut().for_each(without_values);
            pods
        });
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
    objects(archive, &format!("{id}/objects/events.json"), events::of(cluster).await)?;
    corefiles(cluster, id, archive).await?;
    ask_agents(cluster, id, archive).await
}

/// Adds the texts that configure the DNS of the cluster.
async fn corefiles(cluster: &Cluster, id: &str, archive: &mut Archive) -> anyhow::Result<()> {
    match Sources::of(cluster).await {
        Ok(sources) => {
            for (name, text) in sources.texts() {
                archive.text(&format!("{id}/dns/{name}"), text)?;
            }
        }
        Err(error) => archive.fail(&format!("{id}/dns"), &told(&error)),
    }
    Ok(())
}

/// Takes the values of variables from a pod, but those of this project: others can hold passwords, as in the URL of a proxy.
fn without_values(pod: &mut Value) {
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod["spec"][kind].as_array_mut().into_iter().flatten();
        let variables =
            containers.filter_map(|container| container["env"].as_array_mut()).flatten();
        let others =
            variables.filter(|one| !one["name"].as_str().unwrap_or_default().starts_with("MCS_"));
        others.filter(|one| one["value"].is_string()).for_each(|one| one["value"] = HIDDEN.into());
    }
}

/// `managedFields` does not help here.
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

/// Adds the log of each container of a pod, and of its former run.
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
    for (container, was_restarted) in containers(pod) {
        for previous in [false, true].into_iter().filter(|previous| !previous || was_restarted) {
            let params = LogParams {
                container: Some(container.clone()),
                tail_lines: Some(lines.into()),
                previous,
                ..LogParams::default()
            };
            let suffix = if previous { "-previous" } else { "" };
            let file = format!("{directory}/logs/{name}-{container}{suffix}.txt");
            let log = async {
                let log = pods.log_stream(&name, &params).await?;
                anyhow::Ok(newest(Box::pin(log), MOST_BYTES).await?)
            };
            match log.await {
                Ok(log) => archive.text(&file, &log)?,
                Err(error) => archive.fail(&file, &told(&error)),
            }
        }
    }
    Ok(())
}

/// The containers of a pod, and whether each has a former run.
fn containers(pod: &Value) -> Vec<(String, bool)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let kinds = [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")];
    let of_kind = kinds.into_iter().flat_map(|(kind, statuses)| {
        let statuses = list(&pod["status"][statuses]);
        list(&pod["spec"][kind]).into_iter().map(move |container| {
            let mut own = statuses.iter().filter(|one| one["name"] == container["name"]);
            let was_restarted = own.any(|one| one["restartCount"].as_u64() > Some(0));
            (container["name"].as_str().unwrap_or_default().to_owned(), was_restarted)
        })
    });
    of_kind.collect()
}

/// The last whole lines of a log.
async fn newest(mut log: impl AsyncRead + Unpin, most: usize) -> io::Result<String> {
    let (mut kept, mut buffer, mut is_cut) = (Vec::new(), vec![0; 16 << 10], false);
    loop {
        let count = log.read(&mut buffer).await?;
        kept.extend_from_slice(&buffer[..count]);
        // Cuts at the end, or before the text takes too much memory.
        if kept.len() > most && (count == 0 || kept.len() > 2 * most) {
            kept.drain(..kept.len() - most);
            is_cut = true;
        }
        if count == 0 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&kept);
    let rest = text.split_once('\n').filter(|_| is_cut).map(|(_, rest)| rest);
    Ok(rest.unwrap_or(&text).to_owned())
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
            // Masks texts before JSON escapes them.
            Ok(text) => match serde_json::from_str::<Value>(&text) {
                Ok(value) => archive.json(&file, &value)?,
                Err(_) => archive.text(&file, &text)?,
            },
            Err(error) => archive.fail(&file, &told(&error)),
        }
    }
    Ok(())
}

/// The output of a command. `status` of an unhealthy agent ends with 1, and prints its report.
async fn ask(cluster: &Cluster, pod: &AgentPod, words: &[&str]) -> anyhow::Result<String> {
    let output = pod.run(cluster, words).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(!text.trim().is_empty(), "{}", said_last(&output));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use serde_json::json;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_newest_lines_of_a_log_are_kept() {
        let lines: Vec<_> = (0..90_000).map(|line| format!("line {line}\n")).collect();
        let kept = newest(lines.concat().as_bytes(), 26).await.unwrap();
        assert_eq!(kept, "line 89998\nline 89999\n");
        assert_eq!(newest(&b"a\nb\n"[..], 4).await.unwrap(), "a\nb\n");
        let one: String = repeat_n('x', 40_000).collect();
        assert_eq!(newest(one.as_bytes(), 8).await.unwrap(), "xxxxxxxx", "it has no line's end");
    }

    #[test]
    fn a_pod_keeps_no_value_that_may_be_secret() {
        let mut pod = json!({"spec": {
            "initContainers": [{"env": [{"name": "TOKEN", "value": "secret"}]}],
            "containers": [{"name": "run"}, {"env": [
                {"name": "HTTPS_PROXY", "value": "http://me:secret@proxy:3128"},
                {"name": "MCS_LOG", "value": "debug"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ]}],
        }});
        without_values(&mut pod);
        assert!(!pod.to_string().contains("secret"), "{pod}");
        let env = &pod["spec"]["containers"][1]["env"];
        assert_eq!((&env[0]["name"], &env[0]["value"]), (&json!("HTTPS_PROXY"), &json!(HIDDEN)));
        assert_eq!(env[1]["value"], "debug");
        assert_eq!(env[2]["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
        assert!(env[2]["value"].is_null(), "{env}");
    }

    #[test]
    fn init_containers_have_logs_too() {
        let pod = json!({
            "spec": {"initContainers": [{"name": "wait"}], "containers": [{"name": "run"}]},
            "status": {"initContainerStatuses": [{"name": "wait", "restartCount": 2}]},
        });
        assert_eq!(containers(&pod), [("wait".to_owned(), true), ("run".to_owned(), false)]);
    }
}
