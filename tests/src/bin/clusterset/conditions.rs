//! What developers see of services that do not work: they have no access to nodes, and none to other clusters.

use anyhow::{Context as _, ensure};
use mcs_tests::{suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    check,
    cluster::{Cluster, conditions},
    events::wait_for_event,
    objects::{self, service},
    world::{World, pod, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("an import says how many endpoints are ready, and what a conflict costs", counts);
    suite.case("a port that no endpoint has is named, and so is one that a cluster lacks", ports);
    suite.case("an exporter is told where its namespace is missing", namespace_missing);
    suite.case("an import says what keeps agents from serving it, whoever writes it", accepted);
}

fn counts(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let [first, second] = [world.first(), world.second()];
    let mut slice = slice_of(&namespace, 0, 2);
    for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
        endpoint["conditions"] = json!({ "ready": false });
    }
    first.export(&service(&namespace), Some(&slice))?;
    for cluster in [first, second] {
        let none =
            ("clusterset.mcs-agent.io/EndpointsReady=False/NoneReady", "0 of 2 ready: c1 0 of 2");
        says(cluster, &namespace, none)?;
        says(cluster, &namespace, ("Ready=True/Ready", "no endpoint is ready"))?;
    }
    slice["endpoints"][1]["conditions"]["ready"] = json!(true);
    first.api().apply(&slice)?;
    for cluster in [first, second] {
        says(
            cluster,
            &namespace,
            ("clusterset.mcs-agent.io/EndpointsReady=True/Ready", "1 of 2 ready: c1 1 of 2"),
        )?;
    }
    let mut other = service(&namespace);
    other["spec"]["ports"][0]["name"] = json!("web");
    other["spec"]["ports"][1]["name"] = json!("voice");
    let ports = [("web", "TCP", 4242), ("voice", "UDP", 4242)];
    let unused = objects::slice(&namespace, &[pod(1, 0).to_string()], &ports);
    second.export(&other, Some(&unused))?;
    for cluster in [first, second] {
        let cost = "1 endpoint of c2 is not used: port tcp is named web there, port udp is named voice there";
        says(cluster, &namespace, ("clusterset.mcs-agent.io/Conflict=True/PortConflict", cost))?;
        let counted = "1 of 3 ready: c1 1 of 2, c2 0 of 1";
        says(cluster, &namespace, ("clusterset.mcs-agent.io/EndpointsReady=True/Ready", counted))?;
        wait::until("the export to say it", || {
            let export = export_of(cluster, &namespace)?;
            ensure!(export.to_string().contains(cost), "{export}");
            Ok(())
        })?;
    }
    second.unexport(&namespace)?;
    first.unexport(&namespace)?;
    second.wait_for_nothing(&namespace)
}

/// The control plane leaves out a port whose `targetPort` names what no pod has.
fn ports(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let [first, second] = [world.first(), world.second()];
    let ready = "clusterset.mcs-agent.io/EndpointsReady";
    let service = service(&namespace);
    let whole = slice_of(&namespace, 0, 2);
    let mut partial = whole.clone();
    partial["ports"] = json!([whole["ports"][0]]);
    first.export(&service, Some(&partial))?;
    let none = "port udp: none ready, 2 of c1 lack it";
    for cluster in [first, second] {
        says(cluster, &namespace, (&format!("{ready}=False/PortNotReady"), none))?;
        says(cluster, &namespace, (&format!("{ACCEPTED}=False/PortNotReady"), none))?;
        says(cluster, &namespace, ("Ready=True/Ready", "for one of its ports"))?;
        wait_for_event(cluster, &namespace, "ServiceImport", "PortNotReady")?;
    }
    let row = format!("{namespace}/{}: PortNotReady", objects::NAME);
    imports_row(world, second, &namespace, ("FAILED", &row))?;

    // The other cluster has the port.
    second.export(&service, Some(&slice_of(&namespace, 1, 1)))?;
    let partly = "3 of 3 ready: c1 2 of 2, c2 1 of 1; port udp: 1 ready, 2 of c1 lack it";
    for cluster in [first, second] {
        says(cluster, &namespace, (&format!("{ready}=True/PortPartlyReady"), partly))?;
        says(cluster, &namespace, (&format!("{ACCEPTED}=True/Accepted"), "knows of nothing"))?;
    }
    let row = format!("{namespace}/{}: PortPartlyReady", objects::NAME);
    imports_row(world, second, &namespace, ("warning", &row))?;

    // No port at all.
    partial["ports"] = json!([]);
    first.api().apply(&partial)?;
    let lost = "1 of 3 ready: c1 0 of 2, c2 1 of 1; port tcp: 1 ready, 2 of c1 lack it";
    says(second, &namespace, (&format!("{ready}=True/PortPartlyReady"), lost))?;
    first.api().apply(&whole)?;
    says(second, &namespace, (&format!("{ready}=True/Ready"), "3 of 3 ready"))?;
    second.unexport(&namespace)?;
    first.unexport(&namespace)?;
    second.wait_for_nothing(&namespace)
}

/// Waits until `mcs check` says this of imports. Other cases may have left problems of their own.
fn imports_row(
    world: &World,
    of: &Cluster,
    namespace: &str,
    (result, words): (&str, &str),
) -> anyhow::Result<()> {
    wait::until("the row of imports", || {
        let found = check::of(world, of)?;
        let row = found.iter().find(|one| one["check"] == "imports").context("no row")?;
        let is_failed = row["ok"] == false;
        if result == "warning" && is_failed {
            // A failure of another import hides warnings.
            ensure!(!row["message"].to_string().contains(namespace), "{row}");
            return Ok(());
        }
        ensure!(is_failed == (result == "FAILED"), "{row}");
        ensure!((row["warning"] == true) == (result == "warning"), "{row}");
        ensure!(row["message"].to_string().contains(words), "{row}");
        Ok(())
    })
}

/// Waits until a condition of the import says this.
fn says(cluster: &Cluster, namespace: &str, (turn, words): (&str, &str)) -> anyhow::Result<()> {
    let check = |import: &Value| {
        let place = conditions(import).iter().position(|one| one == turn);
        let condition = &import["status"]["conditions"][place.context("it has not turned")?];
        let message = condition["message"].as_str().unwrap_or_default();
        ensure!(message.contains(words), "{message}");
        Ok(())
    };
    cluster.wait_for_import(namespace, check).map(drop)
}

fn export_of(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    cluster.api().get(&format!(
        "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{namespace}/serviceexports/{}",
        objects::NAME
    ))
}

fn namespace_missing(world: &mut World) -> anyhow::Result<()> {
    let namespace = format!("{}-alone", world.fresh()?);
    let [first, second] = [world.first(), world.second()];
    first.add_namespace(&namespace)?;
    first.export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let missing = "clusterset.mcs-agent.io/Imported=False/NamespaceMissing";
    first.wait_for_conditions(&namespace, &["Ready=True/Exported", missing])?;
    wait_for_event(first, &namespace, "ServiceExport", "NamespaceMissing")?;
    let export = export_of(first, &namespace)?;
    ensure!(export.to_string().contains(&format!("{namespace} is missing: c2")), "{export}");
    for other in &world.clusters[1..] {
        other.add_namespace(&namespace)?;
    }
    wait_for_event(first, &namespace, "ServiceExport", "NamespaceFound")?;
    wait::until("the end of a missing namespace", || {
        let found = conditions(&export_of(first, &namespace)?);
        ensure!(!found.iter().any(|one| one == missing), "{found:?}");
        Ok(())
    })?;
    second.wait_for_import(&namespace, |_| Ok(()))?;
    first.unexport(&namespace)?;
    second.wait_for_nothing(&namespace)
}

/// The condition's type, which no other controller has.
const ACCEPTED: &str = "clusterset.mcs-agent.io/Accepted";

fn accepted(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let [first, second] = [world.first(), world.second()];
    let mut slice = slice_of(&namespace, 0, 1);
    slice["endpoints"][0]["conditions"] = json!({ "ready": false });
    first.export(&service(&namespace), Some(&slice))?;
    let says =
        |turn: &str, words: &str| says(second, &namespace, (&format!("{ACCEPTED}={turn}"), words));
    says("False/NoneReady", "clients are refused")?;
    wait_for_event(second, &namespace, "ServiceImport", "NoneReady")?;
    first.api().apply(&slice_of(&namespace, 0, 1))?;
    says("True/Accepted", "knows of nothing")?;
    wait_for_event(second, &namespace, "ServiceImport", "Accepted")?;
    first.unexport(&namespace)?;
    second.wait_for_nothing(&namespace)?;

    // One that another controller writes, and that nobody exports to this cluster.
    let mut import = objects::import(&namespace);
    import["spec"] = json!({ "type": "ClusterSetIP", "ips": ["241.0.0.7"], "ports": [] });
    second.api().apply(&import)?;
    let mut theirs = objects::import(&namespace);
    theirs["status"] = json!({
        "clusters": [{ "cluster": "c9" }],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Theirs", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }],
    });
    second.api().apply_status(&theirs)?;
    says("False/NoPorts", "no port")?;
    wait_for_event(second, &namespace, "ServiceImport", "NoPorts")?;
    let tenant = second.tenant(&namespace)?;
    let path = format!(
        "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{namespace}/serviceimports/{}",
        objects::NAME
    );
    let seen = wait::until("the rights of a tenant", || tenant.get(&path))?;
    let found = conditions(&seen);
    ensure!(found.iter().any(|one| one == "Ready=True/Theirs"), "{found:?}");
    ensure!(found.contains(&format!("{ACCEPTED}=False/NoPorts")), "{found:?}");
    ensure!(seen["status"]["clusters"] == json!([{ "cluster": "c9" }]), "{seen}");
    import["spec"]["ports"] = json!([{ "name": "tcp", "port": 42, "protocol": "TCP" }]);
    // Agents are told no ranges.
    import["spec"]["ips"] = json!(["10.9.8.7"]);
    second.api().apply(&import)?;
    says("True/Accepted", "knows of nothing")?;
    let found = conditions(&second.api().get(&path)?);
    ensure!(found.iter().any(|one| one == "Ready=True/Theirs"), "{found:?}");
    second.api().delete(&import)
}
