//! Silence is not emptiness: what a cluster keeps while another one cannot be read.

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::{Cluster, conditions},
    controller::MAILBOX,
    objects::{NAME, export, import, namespaced, service},
    peering,
    world::{POD_RANGES, World, slice_of},
};

/// How long a case looks whether something is deleted: a few rounds of everything that is repeated.
const A_WHILE: Duration = Duration::from_secs(2);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a controller that ends leaves everything", meanwhile(ends));
    suite.case("an API server that is gone", meanwhile(api_server_gone));
    suite.case("an API server that hangs", meanwhile(api_server_hangs));
    suite.case("an API server that knows no old versions (410)", meanwhile(too_old));
    suite.case("the importer's own API server is gone", meanwhile(own_api_server_gone));
    suite.case("an importer that starts while a peer is gone", meanwhile(starts_alone));
    suite.case("rights that are missing (403)", meanwhile(forbidden));
    suite.case("a mailbox without its type", meanwhile(type_gone));
    suite.case("a mailbox that loses its type while its publisher runs", meanwhile(type_gone_live));
    suite.case("peers whose type is gone", meanwhile(peers_gone));
    suite.case("a peer that cannot be used", meanwhile(unusable));
    suite.case("a publisher that has published nothing yet", meanwhile(half_way));
    suite.case("a publisher that is killed half way through", meanwhile(killed_half_way));
    suite.case("a peer that says another id", meanwhile(another_id));
    suite.case("clusters that are rebuilt have the same addresses", rebuilt);
    suite.case("a peer that is removed takes its endpoints along", removed);
    suite.case("a third cluster", third);
}

/// A duration that no number of seconds is.
pub(crate) const TOO_LONG: &str = "99999999999999999999h";

/// The uids of what the second cluster has imported.
pub(crate) type Imported = BTreeMap<String, String>;

fn imported(world: &World, namespace: &str) -> anyhow::Result<Imported> {
    let import = world.second().import(namespace)?;
    let slices = world.second().imported_slices(namespace)?;
    let is_of_import = |slice: &&Value| {
        slice["metadata"]["labels"]["multicluster.kubernetes.io/service-name"] == NAME
    };
    let slices = slices.iter().filter(is_of_import);
    let uid = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        (name, text(&object["metadata"]["uid"]))
    };
    Ok(import.iter().chain(slices).map(uid).collect())
}

/// A service of the first cluster that the second one has imported.
pub(crate) fn imported_service(world: &World) -> anyhow::Result<(String, Imported)> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 2)))?;
    let second = world.second();
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    second.wait_for_import(&namespace, |import| {
        ensure!(import["status"]["endpointSliceObjects"] == "Present", "no slices yet");
        Ok(())
    })?;
    let before = imported(world, &namespace)?;
    ensure!(before.len() == 2, "{before:?}");
    Ok((namespace, before))
}

/// Nothing that was there is deleted, or made anew, for a while.
pub(crate) fn stays(world: &World, namespace: &str, before: &Imported) -> anyhow::Result<()> {
    sleep(A_WHILE);
    let after = imported(world, namespace)?;
    ensure!(after == *before, "there was {before:?}, now {after:?}");
    Ok(())
}

/// The second cluster follows the first one again.
pub(crate) fn follows_again(world: &World, namespace: &str) -> anyhow::Result<()> {
    world.first().api().apply(&slice_of(namespace, 0, 1))?;
    world.second().wait_for_addresses(namespace, &["10.77.9.17"])?;
    world.first().unexport(namespace)?;
    world.second().wait_for_nothing(namespace)
}

fn ends(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    for number in [0, 1] {
        world.clusters[number].controller.kill()?;
        stays(world, &namespace, &before)?;
        world.clusters[number].controller.start_again()?;
    }
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn api_server_gone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[0].server.kill()?;
    stays(world, &namespace, &before)?;
    world.clusters[0].server.start_again()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn api_server_hangs(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[0].server.freeze()?;
    stays(world, &namespace, &before)?;
    world.clusters[0].server.thaw()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

/// An API server that starts knows no versions from before. Those of all clusters are numbers of one etcd, so changes in
/// the second cluster make the watches of the first one too old.
fn too_old(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let lists_again = |world: &World| -> anyhow::Result<usize> {
        let log = world.second().controller.logged()?;
        Ok(log.matches("the resource version is not available: listing again").count())
    };
    let lists = lists_again(world)?;
    world.clusters[0].server.kill()?;
    for number in 0..3 {
        world.second().add_namespace(&format!("{namespace}-{number}"))?;
    }
    world.clusters[0].server.start_again()?;
    wait::until("an answer that a version is too old", || {
        ensure!(lists_again(world)? > lists, "there is none");
        Ok(())
    })?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn own_api_server_gone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[1].server.kill()?;
    sleep(A_WHILE);
    world.clusters[1].server.start_again()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn starts_alone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[1].controller.kill()?;
    world.clusters[0].server.kill()?;
    world.clusters[1].controller.start_again()?;
    stays(world, &namespace, &before)?;
    world.clusters[0].server.start_again()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn forbidden(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let binding =
        namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", MAILBOX, world.second().id);
    world.first().api().delete(&binding)?;
    world.clusters[1].controller.restart()?;
    stays(world, &namespace, &before)?;
    world.first().credentials_for(world.second().id)?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

const OWN: &str = "clusterset.mcs-agent.io/v1alpha1";
const SERVICES: &str = "exportedservices.clusterset.mcs-agent.io";
const PEERS: &str = "clusterpeers.clusterset.mcs-agent.io";

/// Deletes a type with all its objects, and returns it.
fn delete_type(cluster: &Cluster, name: &str) -> anyhow::Result<Value> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let mut definition = cluster.api().get(&path)?;
    cluster.api().delete(&definition)?;
    wait::until(&format!("an end of {name}"), || {
        ensure!(cluster.api().get(&path).is_err(), "it is there");
        Ok(())
    })?;
    definition["metadata"] = json!({ "name": name });
    definition.as_object_mut().map(|fields| fields.remove("status"));
    Ok(definition)
}

fn type_gone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[0].controller.kill()?;
    let definition = delete_type(world.first(), SERVICES)?;
    stays(world, &namespace, &before)?;
    world.clusters[1].controller.restart()?;
    stays(world, &namespace, &before)?;
    world.first().api().apply(&definition)?;
    world.clusters[0].controller.start_again()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn type_gone_live(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let definition = delete_type(world.first(), SERVICES)?;
    stays(world, &namespace, &before)?;
    // The publisher that begins now finds nothing of what it has published.
    world.clusters[0].controller.restart()?;
    stays(world, &namespace, &before)?;
    world.first().api().apply(&definition)?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn peers_gone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let peer = peering::peer(world.first(), POD_RANGES[0]);
    let definition = delete_type(world.second(), PEERS)?;
    stays(world, &namespace, &before)?;
    world.second().api().apply(&definition)?;
    wait::until("the type of peers", || world.second().api().apply(&peer))?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn unusable(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let peer = peering::peer(world.first(), POD_RANGES[0]);
    world.clusters[1].controller.kill()?;
    // The schema does not know how long a duration can be.
    let mut unusable = peer.clone();
    unusable["spec"]["staleAfter"] = json!(TOO_LONG);
    world.second().api().apply(&unusable)?;
    world.clusters[1].controller.start_again()?;
    stays(world, &namespace, &before)?;
    let path = format!("/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/{}", world.first().id);
    wait::until("a condition of the peer", || {
        let found = conditions(&world.second().api().get(&path)?);
        let expected = ["Accepted=False/InvalidSpec", "Connected=False/Invalid"];
        ensure!(found == expected, "there are {found:?}");
        Ok(())
    })?;
    world.second().api().apply(&peer)?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

/// The Lease of the first cluster's mailbox.
fn lease(world: &World) -> anyhow::Result<Value> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{MAILBOX}/leases");
    let leases = world.first().api().get(&path)?;
    let mut lease = leases["items"].get(0).cloned().context("the mailbox has no Lease")?;
    lease["apiVersion"] = json!("coordination.k8s.io/v1");
    lease["kind"] = json!("Lease");
    let metadata = &lease["metadata"];
    lease["metadata"] = json!({
        "namespace": MAILBOX, "name": metadata["name"], "annotations": metadata["annotations"],
    });
    Ok(lease)
}

fn half_way(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[0].controller.kill()?;
    // What a publisher leaves that has begun anew and has published nothing yet.
    let mut lease = lease(world)?;
    let annotations = lease["metadata"]["annotations"].as_object_mut().context("annotations")?;
    for (name, value) in annotations.iter_mut() {
        let last = name.rsplit('/').next().unwrap_or_default().to_owned();
        match last.as_str() {
            "epoch" => *value = json!("another"),
            "complete" => *value = json!("false"),
            _ => *value = json!("0"),
        }
    }
    world.first().api().apply(&lease)?;
    let exported = namespaced(OWN, "ExportedService", MAILBOX, &format!("{namespace}.hello"));
    world.first().api().delete(&exported)?;
    stays(world, &namespace, &before)?;
    world.clusters[1].controller.restart()?;
    stays(world, &namespace, &before)?;
    world.clusters[0].controller.start_again()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn another_id(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[0].controller.kill()?;
    let right = lease(world)?;
    let mut wrong = right.clone();
    wrong["spec"]["holderIdentity"] = json!("somebody-else");
    world.first().api().apply(&wrong)?;
    world.clusters[1].controller.restart()?;
    stays(world, &namespace, &before)?;
    world.first().api().apply(&right)?;
    world.clusters[0].controller.start_again()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

/// How many services a publisher is to be killed amidst.
const MANY: usize = 150;

fn killed_half_way(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    world.clusters[0].controller.kill()?;
    let numbered = |mut object: Value, number: usize| {
        object["metadata"]["name"] = json!(format!("hello-{number}"));
        object
    };
    let of = |number| [numbered(service(&namespace), number), numbered(export(&namespace), number)];
    let many: Vec<_> = (0..MANY).flat_map(of).collect();
    world.first().api().apply_many(&many)?;
    let path = format!(
        "/apis/clusterset.mcs-agent.io/v1alpha1/namespaces/{MAILBOX}/exportedservices?limit=500"
    );
    let published = |world: &World| -> anyhow::Result<usize> {
        let all = world.first().api().get(&path)?;
        let names = all["items"].as_array().into_iter().flatten();
        let names = names.filter_map(|one| one["metadata"]["name"].as_str());
        Ok(names.filter(|name| name.starts_with(&format!("{namespace}.hello-"))).count())
    };
    world.clusters[0].controller.start_again()?;
    wait::until("the first of many services", || {
        ensure!(published(world)? > 0, "there is none");
        Ok(())
    })?;
    world.clusters[0].controller.kill()?;
    let found = published(world)?;
    tell(format!("{found} of {MANY} services were published"));
    stays(world, &namespace, &before)?;
    world.clusters[1].controller.restart()?;
    stays(world, &namespace, &before)?;
    world.clusters[0].controller.start_again()?;
    wait::within(Duration::from_secs(30), "all services", || {
        let found = published(world)?;
        ensure!(found == MANY, "there are {found}");
        Ok(())
    })?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

fn rebuilt(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let vips = |cluster: &Cluster| -> anyhow::Result<Value> {
        let import = cluster.wait_for_import(&namespace, |import| {
            ensure!(import["spec"]["ips"][0].is_string(), "no addresses");
            Ok(())
        })?;
        Ok(import["spec"]["ips"].clone())
    };
    let before = vips(world.second())?;
    // First one of them, then all: nobody knows the addresses then.
    for rebuilt in [1..2, 0..2] {
        for cluster in &mut world.clusters[rebuilt.clone()] {
            cluster.controller.kill()?;
        }
        for cluster in &mut world.clusters[rebuilt.clone()] {
            forget(cluster, &namespace)?;
        }
        if rebuilt.len() > 1 {
            let exported = format!("{namespace}.hello");
            let exported = namespaced(OWN, "ExportedService", MAILBOX, &exported);
            world.first().api().delete(&exported)?;
        }
        for cluster in &mut world.clusters[rebuilt] {
            cluster.controller.start_again()?;
        }
        for cluster in &world.clusters[..2] {
            let after = vips(cluster)?;
            ensure!(before == after, "{before} before and {after} after in {}", cluster.id);
        }
    }
    follows_again(world, &namespace)
}

/// Deletes everything that a cluster has imported of a case.
fn forget(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    cluster.api().delete(&import(namespace))?;
    for mut slice in cluster.imported_slices(namespace)? {
        slice["apiVersion"] = json!("discovery.k8s.io/v1");
        slice["kind"] = json!("EndpointSlice");
        cluster.api().delete(&slice)?;
    }
    Ok(())
}

fn removed(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    let peer = peering::peer(world.first(), POD_RANGES[0]);
    world.second().api().delete(&peer)?;
    // The API server deletes every peer before it deletes their type.
    wait::within(Duration::from_secs(30), "an end of the import", || {
        ensure!(imported(world, &namespace)?.is_empty(), "it is there");
        Ok(())
    })?;
    world.second().api().apply(&peer)?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    follows_again(world, &namespace)
}

fn third(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    let namespace = world.fresh()?;
    for (cluster, number) in world.clusters.iter().zip(0..) {
        cluster.export(&service(&namespace), Some(&slice_of(&namespace, number, 1)))?;
    }
    let mut vips = Vec::new();
    for cluster in &world.clusters {
        cluster.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.33", "10.77.9.49"])?;
        let import = cluster.wait_for_import(&namespace, |import| {
            let clusters = import["status"]["clusters"].as_array().map_or(0, Vec::len);
            ensure!(clusters == 3, "{clusters} clusters");
            Ok(())
        })?;
        vips.push(import["spec"]["ips"].clone());
    }
    ensure!(vips.iter().all(|ips| *ips == vips[0]), "{vips:?}");
    let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers";
    let peers = world.second().api().get(path)?;
    let peers = peers["items"].as_array().into_iter().flatten();
    for peer in peers {
        tell(format!("{}: {:?}", peer["metadata"]["name"], crate::cluster::conditions(peer)));
    }
    Ok(())
}
