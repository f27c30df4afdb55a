//! Addresses that an import cannot keep, and those that a node or a newcomer cannot take from it.

use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use mcs_tests::{
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, conditions},
    events::wait_for_event,
    objects::{self, namespaced, service},
    silence::{follows_again, imported_service, stays},
    world::{World, pod, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("an adopted address whose Service is gone is given up", given_up);
    suite.case("a node that has the addresses of a peer's pods", greedy_node);
    suite.case("an export with one IP family takes none from an import", newcomer);
}

/// In the range of Services.
const ADOPTED: &str = "10.96.77.7";

fn service_with_address(namespace: &str, name: &str) -> Value {
    let mut service = namespaced("v1", "Service", namespace, name);
    service["spec"] = json!({ "clusterIP": ADOPTED, "ports": [{ "port": 80 }] });
    service
}

/// Waits until the import in the second cluster has this first address and this condition.
fn wait_for_address(
    cluster: &Cluster,
    namespace: &str,
    is_meant: impl Fn(&str) -> bool,
    condition: &str,
) -> anyhow::Result<()> {
    let import = cluster.wait_for_import(namespace, |import| {
        let ip = import["spec"]["ips"][0].as_str().context("no address")?;
        ensure!(is_meant(ip), "its address is {ip}");
        let found = conditions(import);
        ensure!(found.iter().any(|one| one == condition), "{found:?}");
        Ok(())
    })?;
    tell(format!("{} {condition}", import["spec"]["ips"]));
    Ok(())
}

fn given_up(world: &mut World) -> anyhow::Result<()> {
    let (namespace, other) = (world.fresh()?, world.fresh()?);
    let mut derived = service_with_address(&namespace, "derived-of-another");
    derived["metadata"]["labels"] =
        json!({ "multicluster.kubernetes.io/service-name": objects::NAME });
    let mut import = objects::import(&namespace);
    import["spec"] = json!({ "type": "ClusterSetIP", "ips": [ADOPTED], "ports": [] });
    world.second().api().apply_all([&derived, &import])?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    world.clusters[1].controller.restart_with(&["--adopt"])?;
    let second = world.second();
    let is_adopted = |ip: &str| ip == ADOPTED;
    wait_for_address(second, &namespace, is_adopted, "Ready=True/Ready")?;

    second.api().delete(&derived)?;
    wait_for_address(second, &namespace, is_adopted, "Ready=False/AddressInServiceRange")?;
    wait_for_event(second, &namespace, "ServiceImport", "AddressInServiceRange")?;
    second.api().apply(&derived)?;
    wait_for_address(second, &namespace, is_adopted, "Ready=True/Ready")?;

    second.api().delete(&derived)?;
    wait_for_address(second, &namespace, is_adopted, "Ready=False/AddressInServiceRange")?;
    // The API server gives it to a Service that has nothing to do with the import.
    let stranger = service_with_address(&other, "stranger");
    second.api().apply(&stranger)?;
    wait_for_address(second, &namespace, |ip| ip.starts_with("241."), "Ready=True/Ready")?;
    wait_for_event(second, &namespace, "ServiceImport", "AddressChanged")?;
    second.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    second.api().delete(&stranger)?;
    world.clusters[1].controller.restart_with(&[])?;
    follows_again(world, &namespace)
}

/// How many addresses the node says that it has.
const GREED: u32 = 5_000;

fn greedy_node(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let second = world.second();
    let metadata = json!({ "name": "greedy" });
    let ranges = ["0.0.0.0/0", "::/0"];
    let mut node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {
        "podCIDR": ranges[0], "podCIDRs": ranges,
    }});
    second.api().apply(&node)?;
    let others = u32::from(Ipv4Addr::new(10, 78, 0, 1));
    let others = (others..others + GREED).map(Ipv4Addr::from);
    let addresses = [pod(0, 0), pod(0, 1)].into_iter().chain(others);
    node["status"]["addresses"] =
        addresses.map(|ip| json!({ "type": "InternalIP", "address": ip })).collect();
    second.api().replace_status(&node)?;
    let disjoint = |expected: &str| {
        let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1";
        wait::until(&format!("CIDRsDisjoint={expected}"), || {
            let found = conditions(&second.api().get(path)?);
            let expected = format!("CIDRsDisjoint={expected}");
            ensure!(found.contains(&expected), "{found:?}");
            Ok(())
        })
    };
    disjoint("False/OverlapsOwn")?;
    stays(world, &namespace, &before)?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    // It takes no address from new imports either.
    let later = world.fresh()?;
    world.first().export(&service(&later), Some(&slice_of(&later, 0, 2)))?;
    second.wait_for_addresses(&later, &["10.77.9.17", "10.77.9.18"])?;
    second.wait_for_import(&later, |import| {
        let ips = import["spec"]["ips"].as_array().map_or(0, Vec::len);
        ensure!(ips == 2, "it has {ips} addresses");
        Ok(())
    })?;
    second.api().delete(&node)?;
    disjoint("Unknown/OwnRangesUnknown")?;
    follows_again(world, &later)?;
    follows_again(world, &namespace)
}

fn newcomer(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let ips = |cluster: &Cluster| -> anyhow::Result<Value> {
        Ok(cluster.import(&namespace)?.context("an import")?["spec"]["ips"].clone())
    };
    let before = [ips(world.first())?, ips(world.second())?];
    ensure!(before[0].as_array().is_some_and(|ips| ips.len() == 2), "{before:?}");
    let mut single = service(&namespace);
    single["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    world.second().export(&single, Some(&slice_of(&namespace, 1, 1)))?;
    world.second().wait_for_conditions(&namespace, &["Conflict=True/IPFamilyConflict"])?;
    let all = ["10.77.9.17", "10.77.9.18", "10.77.9.33"];
    for (cluster, before) in world.clusters[..2].iter().zip(&before) {
        cluster.wait_for_addresses(&namespace, &all)?;
        let after = ips(cluster)?;
        ensure!(after == *before, "{} had {before}, and has {after}", cluster.id);
    }
    world.second().unexport(&namespace)?;
    world.second().wait_for_addresses(&namespace, &all[..2])?;
    follows_again(world, &namespace)
}
