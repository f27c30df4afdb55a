//! Derived Services: for Gateway implementations that lead to Services alone.

use anyhow::{Context as _, ensure};
use mcs_tests::{api_server::rights, suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    cluster::{ARRIVAL, Cluster},
    controller::NAMESPACE,
    objects::{namespaced, service},
    silence::follows_again,
    world::{World, slice_of},
};

const ANNOTATION: &str = "multicluster.kubernetes.io/derived-service";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a derived Service for each import, and kube-proxy leaves it alone", derived);
}

fn derived(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    dataplane.reach(world, &namespace, 42, &[0])?;
    grant(world.second())?;
    world.clusters[1].controller.restart_with(&["--derived-service"])?;
    let named = world.second().wait_for_import(&namespace, |import| {
        let name = &import["metadata"]["annotations"][ANNOTATION];
        ensure!(name.is_string(), "it names no derived Service");
        Ok(())
    })?;
    let name = named["metadata"]["annotations"][ANNOTATION].as_str().context("no name")?;
    let derived = wait::within(ARRIVAL, "the derived Service", || {
        world.second().api().read(&namespaced("v1", "Service", &namespace, name))
    })?;
    ensure!(derived["spec"]["clusterIP"] == "None", "{derived}");
    ensure!(derived["spec"]["ports"][0]["port"] == 42, "{derived}");
    ensure!(derived["spec"]["selector"].is_null(), "{derived}");
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let of_service = format!("kubernetes.io%2Fservice-name%3D{name}");
    // The selectors of kube-proxy 1.36 (cmd/kube-proxy/app/server.go).
    let of_proxy = "!service.kubernetes.io%2Fheadless";
    ensure!(count(world.second(), &slices, &of_service)? == 1, "no slice of the Service");
    ensure!(count(world.second(), &slices, of_proxy)? == 0, "kube-proxy holds the slice");
    let of_proxy = format!("{of_proxy},!service.kubernetes.io%2Fservice-proxy-name");
    ensure!(count(world.second(), &services, &of_proxy)? == 0, "kube-proxy serves the Service");
    world.dataplane()?.reach(world, &namespace, 42, &[0])?;

    world.clusters[1].controller.restart_with(&[])?;
    is_plain(world.second(), &namespace)?;
    wait::within(ARRIVAL, "no derived Service", || {
        ensure!(count(world.second(), &services, "")? == 0, "it is there");
        Ok(())
    })?;
    let mut other = namespaced("v1", "Service", &namespace, name);
    other["spec"] = json!({ "ports": [{ "name": "other", "port": 80 }] });
    world.second().api().apply(&other)?;
    world.clusters[1].controller.restart_with(&["--derived-service"])?;
    // Whatever it would do has been done then.
    world.first().api().apply(&slice_of(&namespace, 0, 2))?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    let second = world.second();
    let left = second.api().read(&other)?;
    ensure!(left["spec"]["ports"][0]["port"] == 80, "it was changed: {left}");
    is_plain(second, &namespace)?;
    second.api().delete(&other)?;
    world.clusters[1].controller.restart_with(&[])?;
    follows_again(world, &namespace)
}

/// The rights that the chart grants with `derivedServices: write`. Waits until the API server uses them: a controller that is
/// refused tries again after half a second, and then after twice as long each time.
fn grant(cluster: &Cluster) -> anyhow::Result<()> {
    let rules = json!([{
        "apiGroups": [""], "resources": ["services"], "verbs": ["get", "create", "patch", "delete"],
    }]);
    let account = (NAMESPACE, "mcs-controller");
    cluster.api().apply_all(&rights::everywhere("derives-services", &rules, account))?;
    let controller =
        cluster.server.as_user(&format!("system:serviceaccount:{NAMESPACE}:mcs-controller"))?;
    let mut service = namespaced("v1", "Service", "default", "attempt");
    service["spec"] = json!({ "ports": [{ "port": 80 }] });
    wait::within(ARRIVAL, "the rights", || controller.would_apply(&service))
}

/// The number of objects that a selector finds.
fn count(cluster: &Cluster, path: &str, selector: &str) -> anyhow::Result<usize> {
    let list = cluster.api().get(&format!("{path}?labelSelector={selector}"))?;
    Ok(list["items"].as_array().map_or(0, Vec::len))
}

/// Waits until the import of a case names no derived Service.
fn is_plain(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let has_none = |import: &Value| {
        ensure!(import["metadata"]["annotations"][ANNOTATION].is_null(), "it names one");
        Ok(())
    };
    cluster.wait_for_import(namespace, has_none).map(drop)
}
