//! ServiceImports that other controllers have written, and VIPs that several services want.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use mcs_tests::suite::{Suite, tell};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    objects::{self, service},
    silence::{follows_again, imported_service},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("an import of another controller, and --adopt", adopted);
    suite.case("services that want the same address", same_address);
    suite.case("services of two clusters that want the same address at once", at_once);
    suite.case("a slice that another one took the name of", taken_name);
    suite.case("hints for zones, and none for nodes of other clusters", hints);
}

/// The range of addresses for six services.
const SMALL: &str = "--vip-cidr=241.99.0.0/29";

fn adopted(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut import = objects::import(&namespace);
    import["spec"] = json!({
        "type": "ClusterSetIP", "ips": ["241.9.9.9"],
        "ports": [{ "name": "other", "port": 80, "protocol": "TCP" }],
    });
    world.second().api().apply(&import)?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let (other, _) = imported_service(world)?;
    let second = world.second();
    second.wait_for_import(&namespace, |import| {
        ensure!(import["spec"]["ports"][0]["name"] == "other", "it was changed");
        Ok(())
    })?;
    ensure!(second.imported_slices(&namespace)?.is_empty(), "it has slices of this controller");
    world.clusters[1].controller.restart_with(&["--adopt"])?;
    let second = world.second();
    second.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    second.wait_for_import(&namespace, |import| {
        let spec = &import["spec"];
        ensure!(spec["ips"][0] == "241.9.9.9", "it has another address");
        ensure!(spec["ports"][0]["port"] == 42, "it has the former ports");
        Ok(())
    })?;
    world.clusters[1].controller.restart_with(&[])?;
    follows_again(world, &other)?;
    follows_again(world, &namespace)
}

/// The controller does not see a slice without its labels. It replaces all of it.
fn taken_name(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let slices = world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    world.clusters[1].controller.kill()?;
    let mut other = objects::namespaced("discovery.k8s.io/v1", "EndpointSlice", &namespace, "");
    other["metadata"]["name"] = slices[0]["metadata"]["name"].clone();
    other["metadata"]["labels"] = json!({ "other": "label" });
    other["addressType"] = json!("IPv4");
    other["endpoints"] = json!([]);
    world.second().api().replace(&other)?;
    world.clusters[1].controller.start_again()?;
    let second = world.second();
    let slices = second.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    ensure!(slices[0]["metadata"]["labels"].get("other").is_none(), "{}", slices[0]);
    world.first().unexport(&namespace)?;
    second.wait_for_nothing(&namespace)
}

/// The IPv4 VIP of an import, once it has one.
fn vip(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let first = |import: &Value| import["spec"]["ips"][0].as_str().map(str::to_owned);
    let import = cluster.wait_for_import(namespace, |import| {
        first(import).filter(|ip| ip.starts_with("241.99.0.")).context("no address").map(drop)
    })?;
    first(&import).context("no address")
}

/// Gives the first two clusters other flags.
fn restart(world: &mut World, flags: &[&str]) -> anyhow::Result<()> {
    world.clusters[..2].iter_mut().try_for_each(|one| one.controller.restart_with(flags))
}

/// The addresses of the services in these namespaces, in their order. No two have the same one.
fn addresses(cluster: &Cluster, namespaces: &[String]) -> anyhow::Result<Vec<String>> {
    let found = namespaces.iter().map(|namespace| vip(cluster, namespace));
    let found: Vec<_> = found.collect::<anyhow::Result<_>>()?;
    let different: BTreeSet<_> = found.iter().collect();
    ensure!(different.len() == found.len(), "services of a cluster share addresses: {found:?}");
    Ok(found)
}

fn same_address(world: &mut World) -> anyhow::Result<()> {
    restart(world, &[SMALL])?;
    let mut namespaces = Vec::new();
    for number in 0..6 {
        let namespace = world.fresh()?;
        let exporter = usize::from(number % 2 == 1);
        let slice = slice_of(&namespace, number % 2, 1);
        world.clusters[exporter].export(&service(&namespace), Some(&slice))?;
        vip(world.second(), &namespace)?;
        namespaces.push(namespace);
    }
    let found = addresses(world.first(), &namespaces)?;
    ensure!(addresses(world.second(), &namespaces)? == found, "c1 has {found:?}");
    tell(format!("{found:?}"));
    let late = world.fresh()?;
    world.first().export(&service(&late), Some(&slice_of(&late, 0, 1)))?;
    let second = world.second();
    second.wait_for_import(&late, |import| {
        let found = crate::cluster::conditions(import);
        ensure!(found.iter().any(|one| one == "Ready=False/Pending"), "{found:?}");
        Ok(())
    })?;
    // An address that becomes free is used.
    world.first().unexport(&namespaces[0])?;
    second.wait_for_nothing(&namespaces[0])?;
    vip(second, &late)?;
    for namespace in &namespaces[1..] {
        for cluster in &world.clusters[..2] {
            // One of them has exported it.
            let _ = cluster.unexport(namespace);
        }
    }
    world.first().unexport(&late)?;
    second.wait_for_nothing(&late)?;
    restart(world, &[])
}

/// Each cluster keeps the address that it gave first. It may be another one than in the other cluster.
fn at_once(world: &mut World) -> anyhow::Result<()> {
    restart(world, &[SMALL])?;
    let namespaces = (0..5).map(|_| world.fresh()).collect::<anyhow::Result<Vec<_>>>()?;
    for (namespace, number) in namespaces.iter().zip(0..) {
        let cluster = &world.clusters[usize::from(number % 2 == 1)];
        cluster.api().apply(&service(namespace))?;
    }
    for number in [0, 1] {
        let of_cluster = namespaces.iter().skip(number).step_by(2);
        let exports: Vec<_> = of_cluster.map(|namespace| objects::export(namespace)).collect();
        world.clusters[number].api().apply_many(&exports)?;
    }
    let [first, second] = [world.first(), world.second()];
    let [one, other] = [addresses(first, &namespaces)?, addresses(second, &namespaces)?];
    tell(format!("c1 {one:?}, c2 {other:?}"));
    for (namespace, number) in namespaces.iter().zip(0..) {
        world.clusters[usize::from(number % 2 == 1)].unexport(namespace)?;
    }
    for namespace in &namespaces {
        world.second().wait_for_nothing(namespace)?;
    }
    restart(world, &[])
}

fn hints(world: &mut World) -> anyhow::Result<()> {
    for (distribution, hint) in
        [("PreferSameZone", json!("zone-1")), ("PreferSameNode", json!(null))]
    {
        let namespace = world.fresh()?;
        for (cluster, number) in world.clusters[..2].iter().zip(0..) {
            let mut service = service(&namespace);
            service["spec"]["trafficDistribution"] = json!(distribution);
            cluster.export(&service, Some(&slice_of(&namespace, number, 1)))?;
        }
        let second = world.second();
        let slices = second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.33"])?;
        for slice in slices {
            let endpoint = &slice["endpoints"][0];
            let is_own = endpoint["addresses"][0] == "10.77.9.33";
            let node = if is_own { json!("node-1") } else { json!(null) };
            ensure!(endpoint["nodeName"] == node, "{distribution}: {endpoint}");
            ensure!(endpoint["zone"] == "zone-1", "{distribution}: {endpoint}");
            ensure!(endpoint["hints"]["forZones"][0]["name"] == hint, "{distribution}: {endpoint}");
            ensure!(endpoint["hints"]["forNodes"].is_null(), "{distribution}: {endpoint}");
        }
    }
    Ok(())
}
