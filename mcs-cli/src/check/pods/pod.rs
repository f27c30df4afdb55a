//! A short-lived pod that runs `mcs-controller probe`.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    signal::ctrl_c,
    time::{Instant, sleep},
};

use super::ProbeArgs;
use crate::{
    cluster::{Cluster, DEPLOYMENTS, PODS},
    wait::Waiting,
};
use mcs_controller::{
    core::{
        apply::{Action, Request},
        clusterset::well_known,
    },
    features::rights::Right,
};
use mcs_kube::reach::{Found, Targets};

/// The time limit of the pod, with the download of its image.
const LIMIT: Duration = Duration::from_mins(1);
/// The name of the pods: a label, and the prefix before their number.
const NAME: &str = "mcs-probe";
/// The rights to run a pod and to see its end.
const RIGHTS: [Right; 4] = [
    ("create", "", "pods"),
    ("get", "", "pods"),
    ("delete", "", "pods"),
    ("get", "apps", "deployments"),
];
/// How often the pod's state is read.
const PAUSE: Duration = Duration::from_millis(500);
/// The kubelet creates this file in a container, and copies its content to the pod's status.
const MESSAGE: &str = "/dev/termination-log";

/// Probes targets in a pod of the cluster, on this node, or any. Failed connections are retried for half a minute at most.
/// Returns the pod's node too, if it has one. The inner error: no pod could be created.
pub(crate) async fn run_pod(
    cluster: &Cluster,
    args: &ProbeArgs,
    targets: &Targets,
    node: Option<&str>,
) -> anyhow::Result<Result<(Found, Option<String>), String>> {
    let namespace = &args.namespace;
    for right in RIGHTS {
        if !cluster.may(Some(namespace), right).await? {
            let (verb, _, resource) = right;
            return Ok(Err(format!(
                "not probed, as you may not {verb} {resource} in namespace {namespace} of this cluster (Role mcs-prober): \
                 let somebody who may run `check`, or give --probe=off"
            )));
        }
    }
    delete_old(cluster, namespace).await;
    let deployment = cluster.get(DEPLOYMENTS, Some(namespace), well_known::CONTROLLER).await?;
    let template = deployment.map(|mut one| one["spec"]["template"]["spec"].take());
    let name = format!("{NAME}-{:08x}", fastrand::u32(..));
    let pod = pod(args, &name, &template.unwrap_or_default(), targets, node)?;
    let request = Request::new(PODS, Some(namespace), &name, Action::Create(pod));
    let found = async {
        cluster.send(request).await?;
        found(cluster, namespace, &name, targets).await
    };
    let found = tokio::select! {
        found = found => found,
        Ok(()) = ctrl_c() => Err(anyhow!("it was interrupted")),
    };
    // An API server that did not answer may have created the pod.
    let deleted = cluster.delete(PODS, Some(namespace), &name).await;
    let deleted = deleted.with_context(|| format!("delete the pod {namespace}/{name}"));
    both(found, deleted).map(Ok)
}

/// The results of a pod, after it was deleted.
fn both<T>(outcomes: anyhow::Result<T>, deleted: anyhow::Result<()>) -> anyhow::Result<T> {
    match (outcomes, deleted) {
        (Err(error), Err(deleted)) => Err(anyhow!("{error:#}; {deleted:#}")),
        (outcomes, Ok(())) => outcomes,
        (Ok(_), Err(deleted)) => Err(deleted),
    }
}

/// Deletes the pods of a killed `check`. Nothing depends on the success.
async fn delete_old(cluster: &Cluster, namespace: &str) {
    let selector = format!("app.kubernetes.io/name={NAME}");
    let pods = cluster.list_in(PODS, Some(namespace), &selector).await.unwrap_or_default();
    for pod in pods.iter().filter(|pod| is_old(pod, Timestamp::now())) {
        if let Some(name) = pod["metadata"]["name"].as_str() {
            let _ = cluster.delete(PODS, Some(namespace), name).await;
        }
    }
}

/// Whether this pod is left over from a former `check`. Clocks differ a little.
fn is_old(pod: &Value, now: Timestamp) -> bool {
    let created = pod["metadata"]["creationTimestamp"].as_str();
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    let limit = i64::try_from(2 * LIMIT.as_secs()).unwrap_or(i64::MAX);
    created.is_some_and(|created| now.as_second() - created.as_second() > limit)
}

/// The pod. `like`: the spec of the controller's pods.
fn pod(
    args: &ProbeArgs,
    name: &str,
    like: &Value,
    targets: &Targets,
    node: Option<&str>,
) -> anyhow::Result<Value> {
    let namespace = &args.namespace;
    let container = &like["containers"][0];
    let given = args.probe_image.as_deref();
    let image = given.or(container["image"].as_str()).with_context(|| {
        format!(
            "there is no Deployment {namespace}/{}: give --namespace or --probe-image",
            well_known::CONTROLLER
        )
    })?;
    let mut command =
        vec!["mcs-controller".to_owned(), "probe".to_owned(), format!("--outcomes={MESSAGE}")];
    command.extend(targets.words());
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIMIT.as_secs(),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "probe",
            "image": image,
            "command": command,
            "terminationMessagePath": MESSAGE,
            "resources": {
                "requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        }],
    });
    for field in ["imagePullSecrets", "nodeSelector", "tolerations"] {
        if !like[field].is_null() {
            spec[field] = like[field].clone();
        }
    }
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
        spec["tolerations"] = json!([{"operator": "Exists"}]);
    }
    if given.is_none() && !container["imagePullPolicy"].is_null() {
        spec["containers"][0]["imagePullPolicy"] = container["imagePullPolicy"].clone();
    }
    let labels = json!({
        "app.kubernetes.io/name": NAME, well_known::MANAGED_BY: well_known::CONTROLLER,
    });
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": spec,
    }))
}

/// Waits until the pod has ended.
async fn found(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    targets: &Targets,
) -> anyhow::Result<(Found, Option<String>)> {
    let end = Instant::now() + LIMIT;
    let mut waiting = Waiting::new(&format!("{}: pod {namespace}/{name}", cluster.id));
    loop {
        let pod = waiting.during(cluster.get(PODS, Some(namespace), name)).await?;
        let pod =
            pod.with_context(|| format!("somebody has deleted the pod {namespace}/{name}"))?;
        let status = &pod["status"];
        let node = pod["spec"]["nodeName"].as_str();
        let container = &status["containerStatuses"][0]["state"];
        if let Some(text) = container["terminated"]["message"].as_str()
            && let Ok(found) = serde_json::from_str::<Found>(text)
            && found.is_of(targets)
        {
            return Ok((found, node.map(str::to_owned)));
        }
        let has_ended = status["phase"] == "Failed" || status["phase"] == "Succeeded";
        if has_ended || Instant::now() > end {
            let what = if has_ended { "has failed" } else { "does not run" };
            bail!(
                "the pod {namespace}/{name} that probes pods of peers {what} on node {}: {}. Mend that, or give --probe-image",
                node.unwrap_or("-"),
                reason(status)
            );
        }
        let state =
            if container["running"].is_null() { reason(status) } else { "it connects".to_owned() };
        waiting.note(format!("{}: pod {namespace}/{name}: {state}", cluster.id));
        sleep(PAUSE).await;
    }
}

/// Why a pod does not run.
fn reason(status: &Value) -> String {
    let state = &status["containerStatuses"][0]["state"];
    let unscheduled = status["conditions"].as_array().into_iter().flatten();
    let unscheduled = unscheduled.filter(|one| one["status"] == "False");
    let found = [&state["waiting"], &state["terminated"], status].into_iter().chain(unscheduled);
    let said = found.flat_map(|one| [&one["reason"], &one["message"]]).filter_map(Value::as_str);
    let said: Vec<_> = said.take(2).collect();
    if said.is_empty() { "no kubelet has taken it".to_owned() } else { said.join(": ") }
}

#[cfg(test)]
mod tests {
    use mcs_kube::reach::{Outcome, source::Source};

    use super::*;

    #[test]
    fn the_pod_is_like_those_of_the_controller() {
        let args = ProbeArgs { from: None, namespace: "ns".to_owned(), probe_image: None };
        let like = json!({
            "containers": [{"image": "mcs:1", "imagePullPolicy": "Never", "env": [{"name": "A"}]}],
            "tolerations": [{"operator": "Exists"}],
        });
        let targets = Targets::new(vec!["10.2.0.1:80".parse().unwrap()], vec![]);
        let made = pod(&args, "name", &like, &targets, None).unwrap();
        let container = &made["spec"]["containers"][0];
        assert_eq!(container["image"], "mcs:1");
        assert_eq!(container["imagePullPolicy"], "Never");
        assert_eq!(container["command"][3], "10.2.0.1:80");
        assert_eq!(made["spec"]["tolerations"], like["tolerations"]);
        assert!(container["env"].is_null());
        let error = pod(&args, "name", &Value::Null, &targets, None).unwrap_err().to_string();
        assert!(error.contains("--probe-image"), "{error}");
        let args = ProbeArgs { probe_image: Some("other".to_owned()), ..args };
        let made = pod(&args, "name", &Value::Null, &targets, Some("n1")).unwrap();
        assert_eq!(made["spec"]["nodeName"], "n1");
        assert_eq!(made["spec"]["containers"][0]["image"], "other");
    }

    #[test]
    fn a_pod_that_cannot_be_deleted_is_named() {
        let result = |is_ok: bool, what: &str| if is_ok { Ok(()) } else { Err(anyhow!("{what}")) };
        let both = |outcomes, deleted| {
            both(result(outcomes, "it fails"), result(deleted, "delete it"))
                .map_err(|error| error.to_string())
        };
        assert_eq!(both(true, true), Ok(()));
        assert_eq!(both(false, true), Err("it fails".to_owned()));
        assert_eq!(both(true, false), Err("delete it".to_owned()));
        assert_eq!(both(false, false), Err("it fails; delete it".to_owned()));
    }

    #[test]
    fn a_pod_of_a_check_that_was_killed_is_old() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let is_old = |time: &str| is_old(&json!({"metadata": {"creationTimestamp": time}}), now);
        assert!(is_old("2026-01-02T03:00:00Z") && !is_old("2026-01-02T03:03:00Z"));
        assert!(!is_old(""));
    }

    #[test]
    fn a_pod_that_does_not_run_says_why() {
        let waiting = json!({"reason": "ErrImagePull", "message": "not found"});
        let status = json!({"containerStatuses": [{"state": {"waiting": waiting}}]});
        assert_eq!(reason(&status), "ErrImagePull: not found");
        let condition =
            json!({"status": "False", "reason": "Unschedulable", "message": "0/3 nodes"});
        assert_eq!(reason(&json!({"conditions": [condition]})), "Unschedulable: 0/3 nodes");
        assert_eq!(reason(&Value::Null), "no kubelet has taken it");
    }

    /// The kubelet cuts messages at 4,096 bytes.
    #[test]
    fn the_results_of_a_cluster_fit_into_the_status_of_a_pod() {
        let outcomes = vec![Outcome::Unreachable; super::super::ENDPOINTS_OF_CLUSTER + 5];
        let long = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        let source = Some(Source { own: long, seen: long });
        let sources = vec![source; super::super::source::ASKED];
        let large = vec![Some(false); super::super::source::ASKED];
        let found = Found { outcomes, sources, large, full: vec![] };
        assert!(serde_json::to_vec(&found).unwrap().len() <= 4096);
    }
}
