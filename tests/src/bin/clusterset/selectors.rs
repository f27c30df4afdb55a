//! Cluster selectors (KEP-5939), from the ServiceExport to the connections of clients.

use anyhow::ensure;
use mcs_tests::{cluster::cluster_property, suite::Suite, wait};
use serde_json::{Value, from_str, json};

use crate::{
    cluster::{Cluster, conditions},
    connectivity::TARGET,
    objects::{NAME, export, service},
    traffic::told,
    world::{World, slice_of},
};

const REGION: &str = "region.example";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("clients reach the clusters that the owner of a service prefers", preferred);
    suite.case("clients reach their own cluster first where the operator says so", local_first);
}

fn preferred(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    let [first, second] = [world.first(), world.second()];
    let region = |value: &str| cluster_property(REGION, value);
    first.api().apply(&region("eu"))?;
    second.api().apply(&region("us"))?;
    let select = |selectors: &Value| {
        [first, second].iter().try_for_each(|cluster| prefer(cluster, &namespace, selectors))
    };
    let by = |key: &str, value: &str| json!([{ "propertySelector": { "matchProperties": { key: value } } }]);
    publish(world, &namespace)?;

    select(&by("cluster.clusterset.k8s.io", "@SameAsImporter@"))?;
    results(first, &namespace, &["c1"])?;
    results(second, &namespace, &["c2"])?;
    dataplane.reach_each(world, &namespace, 42, [&[0], &[1]])?;

    // What is wrong changes nothing, and says so.
    select(&json!([{ "propertySelector": {} }]))?;
    first.wait_for_conditions(
        &namespace,
        &["Valid=False/InvalidClusterSelector", "Ready=True/Exported"],
    )?;
    second.wait_for_import(&namespace, |import| {
        let found = conditions(import);
        let unresolved = "clusterset.mcs-agent.io/SelectorsResolved=False/InvalidClusterSelector";
        ensure!(found.iter().any(|one| one == unresolved), "{found:?}");
        Ok(())
    })?;
    results(second, &namespace, &["c2"])?;
    dataplane.reach_each(world, &namespace, 42, [&[0], &[1]])?;

    // All clients go to one region, until it has no pod.
    select(&by(REGION, "eu"))?;
    for cluster in [first, second] {
        results(cluster, &namespace, &["c1"])?;
    }
    dataplane.reach(world, &namespace, 42, &[0])?;
    let import = format!("{namespace}/{NAME}");
    // A report comes a little later than what it is about.
    wait::until("the tiers of the import", || {
        let told = dataplane.prints(1, &["backends", &import])?;
        ensure!(told.contains(" TIER") && told.contains("Tiers: 1 c1\n"), "{told}");
        Ok(())
    })?;
    first.api().apply(&tcp_slice(&namespace, 0, 0))?;
    dataplane.reach(world, &namespace, 42, &[1])?;
    first.api().apply(&tcp_slice(&namespace, 0, 1))?;
    dataplane.reach(world, &namespace, 42, &[0])?;

    // The mailbox tells that a cluster has moved.
    second.api().apply(&region("eu"))?;
    for cluster in [first, second] {
        results(cluster, &namespace, &["c1", "c2"])?;
    }
    dataplane.reach(world, &namespace, 42, &[0, 1])?;
    for cluster in [first, second] {
        cluster.api().delete(&region("eu"))?;
        cluster.unexport(&namespace)?;
    }
    Ok(())
}

fn local_first(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    let second = world.second();
    publish(world, &namespace)?;
    dataplane.reach(world, &namespace, 42, &[0, 1])?;
    let wish = cluster_property("preference.clusterset.mcs-agent.io", "local-first");
    second.api().apply(&wish)?;
    told(second, &json!({"c2": {"preferred": true}}))?;
    dataplane.reach_each(world, &namespace, 42, [&[0, 1], &[1]])?;
    second.api().delete(&wish)?;
    told(second, &json!({}))?;
    dataplane.reach(world, &namespace, 42, &[0, 1])?;
    world.first().unexport(&namespace)?;
    second.unexport(&namespace)
}

/// Both clusters export a service with a pod in each. Of two exports of one second, that of `c1` counts as the older one.
fn publish(world: &World, namespace: &str) -> anyhow::Result<()> {
    for (cluster, number) in world.clusters.iter().take(2).zip(0..) {
        let mut service = service(namespace);
        service["spec"]["ports"] = json!([{ "name": "tcp", "port": 42, "protocol": "TCP" }]);
        // Each connection goes to any of the pods.
        service["spec"]["sessionAffinity"] = json!("None");
        service["spec"].as_object_mut().map(|spec| spec.remove("sessionAffinityConfig"));
        cluster.export(&service, Some(&tcp_slice(namespace, number, 1)))?;
        cluster.wait_for_import(namespace, |_| Ok(()))?;
    }
    Ok(())
}

fn tcp_slice(namespace: &str, cluster: u8, pods: u8) -> Value {
    let mut slice = slice_of(namespace, cluster, pods);
    slice["ports"] = json!([{ "name": "tcp", "port": TARGET, "protocol": "TCP" }]);
    slice
}

/// The owner writes selectors on the ServiceExport.
fn prefer(cluster: &Cluster, namespace: &str, selectors: &Value) -> anyhow::Result<()> {
    let mut export = export(namespace);
    let annotation = "traffic.clusterset.mcs-agent.io/cluster-selectors";
    export["spec"] = json!({ "exportedAnnotations": { annotation: selectors.to_string() } });
    cluster.api().apply(&export)
}

/// Waits until the import has one tier with these clusters.
fn results(cluster: &Cluster, namespace: &str, clusters: &[&str]) -> anyhow::Result<()> {
    let expected = json!([{ "clusters": clusters }]);
    cluster.wait_for_import(namespace, |import| {
        let annotations = &import["metadata"]["annotations"];
        let found = annotations["clusterset.mcs-agent.io/cluster-selector-results"].as_str();
        ensure!(
            found.is_some_and(|text| from_str(text).is_ok_and(|it: Value| it == expected)),
            "{found:?}"
        );
        Ok(())
    })?;
    Ok(())
}
