//! What an API server refuses of a service keeps nothing else of it from being written, and is said where it is felt.

use anyhow::{Context as _, ensure};
use mcs_tests::{suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    check,
    cluster::{Cluster, conditions},
    controller::MAILBOX,
    objects::{self, NAME, service},
    world::{World, pod},
};

/// What the policies answer.
const WORDS: &str = "the operator of these tests forbids it";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a slice that a mailbox refuses stops none of the others", refused_by_a_mailbox);
    suite.case("a Service with more than Kubernetes' least is exported", wide_service);
    suite.case("what the importing API server refuses is said there", refused_where_imported);
}

/// A policy that forbids what `condition` holds for.
fn policy(name: &str, resource: (&str, &str), condition: &str) -> [Value; 2] {
    let version = "admissionregistration.k8s.io/v1";
    let (group, resources) = resource;
    let object = |kind: &str, spec: Value| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec });
    let rules = json!([{
        "apiGroups": [group], "apiVersions": ["*"], "resources": [resources],
        "operations": ["CREATE", "UPDATE"],
    }]);
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": rules },
        "validations": [{ "expression": format!("!({condition})"), "message": WORDS, "reason": "Forbidden" }],
    });
    let binding = json!({ "policyName": name, "validationActions": ["Deny"] });
    [object("ValidatingAdmissionPolicy", spec), object("ValidatingAdmissionPolicyBinding", binding)]
}

/// Makes a policy, and waits until it is in force: it forbids `probe`.
fn forbid(cluster: &Cluster, policy: &[Value; 2], probe: &Value) -> anyhow::Result<()> {
    cluster.api().apply_all(policy)?;
    wait::until("a policy that is in force", || {
        let answer = cluster.api().would_apply(probe).err().context("it is allowed")?;
        ensure!(format!("{answer:#}").contains(WORDS), "{answer:#}");
        Ok(())
    })
}

fn allow(cluster: &Cluster, policy: &[Value; 2]) -> anyhow::Result<()> {
    policy.iter().rev().try_for_each(|object| cluster.api().delete(object))
}

/// A slice of that name with these pods of the first cluster.
fn slice(namespace: &str, name: &str, pods: &[u8]) -> Value {
    let addresses: Vec<_> = pods.iter().map(|number| pod(0, *number).to_string()).collect();
    let mut slice = objects::slice(namespace, &addresses, objects::PORTS);
    slice["metadata"]["name"] = json!(name);
    slice
}

fn refused_by_a_mailbox(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let (first, second) = (world.first(), world.second());
    let middle = slice(&namespace, "hello-m", &[0, 1]);
    first.export(&service(&namespace), Some(&middle))?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    let name = format!("{namespace}.hello-a");
    let policy = policy(
        "no-slice",
        ("discovery.k8s.io", "endpointslices"),
        &format!("object.metadata.namespace == '{MAILBOX}' && object.metadata.name == '{name}'"),
    );
    let mut probe = slice(MAILBOX, &name, &[9]);
    probe["metadata"]["labels"] = json!({});
    forbid(first, &policy, &probe)?;
    // A name before that of the other: one pod comes, and then one of before ends.
    first.api().apply(&slice(&namespace, "hello-a", &[2]))?;
    first.wait_for_conditions(&namespace, &["Ready=False/Failed"])?;
    first.api().apply(&slice(&namespace, "hello-m", &[0]))?;
    second.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    // An endpoint moves to the refused slice, and the others are gone.
    first.api().apply(&slice(&namespace, "hello-m", &[0, 1, 3]))?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18", "10.77.9.20"])?;
    first.api().apply(&slice(&namespace, "hello-a", &[0]))?;
    first.api().delete(&middle)?;
    second.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    // Pods are replaced by those of the refused slice.
    first.api().apply(&slice(&namespace, "hello-a", &[4]))?;
    second.wait_for_addresses(&namespace, &[])?;
    second.wait_for_import(&namespace, |import| {
        let said = conditions(import);
        ensure!(
            said.iter().any(|one| one == "clusterset.mcs-agent.io/EndpointsReady=False/NoneReady"),
            "{said:?}"
        );
        Ok(())
    })?;
    allow(first, &policy)?;
    // A change is tried at once; a refused write alone is tried again within a minute.
    first.api().apply(&slice(&namespace, "hello-a", &[4, 5]))?;
    second.wait_for_addresses(&namespace, &["10.77.9.21", "10.77.9.22"])?;
    first.wait_for_conditions(&namespace, &["Ready=True/Exported"])?;
    first.unexport(&namespace)?;
    second.wait_for_nothing(&namespace)
}

/// As much as an API server takes of a Service.
fn wide_service(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let (first, second) = (world.first(), world.second());
    let mut wide = service(&namespace);
    let protocol = format!("{}.{}/{}", "a".repeat(63), "b.".repeat(94) + "b", "c".repeat(63));
    wide["spec"]["ports"][0]["appProtocol"] = json!(protocol);
    let ports = wide["spec"]["ports"].as_array_mut().context("ports")?;
    let further = (0..1001).map(
        |number| json!({ "name": format!("p{number}"), "port": 1000 + number, "protocol": "TCP" }),
    );
    ports.extend(further);
    first.export(&wide, Some(&slice(&namespace, "hello-m", &[0])))?;
    first.wait_for_conditions(&namespace, &["Ready=True/Exported"])?;
    second.wait_for_import(&namespace, |import| {
        let ports = import["spec"]["ports"].as_array().context("no ports")?;
        ensure!(ports.len() == 1003, "{} ports", ports.len());
        ensure!(ports.iter().any(|port| port["appProtocol"] == protocol), "no protocol");
        Ok(())
    })?;
    first.unexport(&namespace)?;
    second.wait_for_nothing(&namespace)
}

/// Waits for an event with the API server's words.
fn is_told(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    wait::until(&format!("an event in {namespace}"), || {
        let events = cluster.api().get(&path)?;
        let mut events = events["items"].as_array().context("a list")?.iter();
        let is_meant = |event: &Value| {
            event["regarding"]["kind"] == "ServiceImport"
                && event["reason"] == "Refused"
                && event["note"].to_string().contains(WORDS)
        };
        ensure!(events.any(is_meant), "there is none");
        Ok(())
    })
}

fn refused_where_imported(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let other = world.fresh()?;
    let (first, second) = (world.first(), world.second());
    first.export(&service(&namespace), Some(&slice(&namespace, "hello-m", &[0, 1])))?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    let no_slices = policy(
        "no-imported-slice",
        ("discovery.k8s.io", "endpointslices"),
        &format!("object.metadata.namespace == '{namespace}'"),
    );
    forbid(second, &no_slices, &slice(&namespace, "probe", &[9]))?;
    let no_imports = policy(
        "no-import",
        ("multicluster.x-k8s.io", "serviceimports"),
        &format!("object.metadata.namespace == '{other}'"),
    );
    let mut probe = objects::import(&other);
    probe["spec"] = json!({ "type": "ClusterSetIP", "ports": [] });
    forbid(second, &no_imports, &probe)?;
    // One of two pods ends, another slice comes.
    first.api().apply(&slice(&namespace, "hello-m", &[0]))?;
    first.api().apply(&slice(&namespace, "hello-n", &[2, 3]))?;
    second.wait_for_import(&namespace, |import| {
        let conditions = import["status"]["conditions"].as_array().context("no conditions")?;
        let said = |kind: &str| {
            conditions.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default()
        };
        let ready = said("Ready");
        ensure!((&ready["status"], &ready["reason"]) == (&json!("False"), &json!("Refused")));
        ensure!(ready["message"].as_str().is_some_and(|words| words.contains(WORDS)));
        let counted = said("clusterset.mcs-agent.io/EndpointsReady")["message"].to_string();
        ensure!(counted.contains("1 of 3 ready"), "{counted}");
        Ok(())
    })?;
    is_told(second, &namespace)?;
    // No import at all.
    first.export(&service(&other), Some(&slice(&other, "hello-m", &[4])))?;
    is_told(second, &other)?;
    let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1";
    wait::until("a condition of the peer", || {
        let said = conditions(&second.api().get(path)?);
        ensure!(said.iter().any(|one| one == "ImportsWritten=False/Refused"), "{said:?}");
        Ok(())
    })?;
    // A peer's condition is written at intervals: its message may still be that of the first refusal.
    wait::until("check names both services", || {
        let found = check::of(world, second)?;
        for (kind, named) in [("imports", &namespace), ("peer", &other)] {
            let is_told = found.iter().any(|one| {
                let message = one["message"].to_string();
                one["check"] == kind
                    && message.contains(WORDS)
                    && message.contains(&format!("{named}/{NAME}"))
            });
            ensure!(is_told, "{kind} does not tell of {named}: {found:#?}");
        }
        Ok(())
    })?;
    allow(second, &no_slices)?;
    allow(second, &no_imports)?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.19", "10.77.9.20"])?;
    second.wait_for_import(&namespace, |import| {
        let said = conditions(import);
        ensure!(said.iter().any(|one| one == "Ready=True/Ready"), "{said:?}");
        Ok(())
    })?;
    second.wait_for_import(&other, |_| Ok(()))?;
    for namespace in [&namespace, &other] {
        first.unexport(namespace)?;
        second.wait_for_nothing(namespace)?;
    }
    Ok(())
}
