//! Controllers of two versions, and types of two versions, in one clusterset: nothing is lost, and nothing freezes.

use std::env;

use anyhow::ensure;
use mcs_tests::{
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::Cluster,
    controller::{Controller, MAILBOX, Version},
    objects::{NAME, service},
    silence::{follows_again, imported, imported_service, stays},
    world::{World, slice_of},
};

/// What controllers of all versions log.
const HAS_READ: &str = "everything of this cluster was read";

/// Which of them are of the next version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Next {
    publisher: bool,
    reader: bool,
    types: bool,
}

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("two versions of publisher, reader and types", meanwhile(mixed));
    if env::var_os(Version::Earlier.variable()).is_some() {
        suite.case("a controller of an earlier version publishes, and reads", meanwhile(earlier));
    }
}

/// The order changes one thing at a time, as upgrades and downgrades do.
fn mixed(world: &mut World) -> anyhow::Result<()> {
    let (stays_there, before) = imported_service(world)?;
    let mut now = Next { publisher: false, reader: false, types: false };
    let path = [
        Next { publisher: true, ..now },
        Next { publisher: true, reader: true, types: false },
        Next { publisher: false, reader: true, types: false },
        Next { publisher: false, reader: true, types: true },
        Next { publisher: true, reader: true, types: true },
        Next { publisher: true, reader: false, types: true },
        Next { publisher: false, reader: false, types: true },
        now,
    ];
    for next in path {
        change(world, now, next)?;
        now = next;
        stays(world, &stays_there, &before)?;
        let (namespace, imported) = imported_service(world)?;
        let field = published_field(world.first(), &namespace)?;
        let is_kept = next.publisher && next.types;
        ensure!(field.is_some() == is_kept, "{next:?}: {field:?}");
        follows_again(world, &namespace, &imported)?;
        tell(format!("{next:?}"));
    }
    let path = format!("/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/{}", world.first().id);
    wait::until("the status of a peer", || {
        let peer = world.second().api().get(&path)?;
        ensure!(peer["status"]["services"].as_u64() > Some(0), "{peer}");
        Ok(())
    })?;
    follows_again(world, &stays_there, &before)
}

fn change(world: &mut World, now: Next, next: Next) -> anyhow::Result<()> {
    if now.types != next.types {
        for cluster in &world.clusters {
            declare(cluster, "exportedservices", "spec", next.types)?;
            declare(cluster, "clusterpeers", "status", next.types)?;
        }
    }
    let versions = [(now.publisher, next.publisher), (now.reader, next.reader)];
    for (cluster, (_, next)) in world.clusters.iter_mut().zip(versions).filter(|(_, (a, b))| a != b)
    {
        cluster.controller.restart_as(if next { Version::Next } else { Version::This })?;
    }
    Ok(())
}

/// Declares the field of the next version in a type, or takes it out.
fn declare(cluster: &Cluster, plural: &str, part: &str, is_next: bool) -> anyhow::Result<()> {
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.clusterset.mcs-agent.io"
    );
    let mut definition = cluster.api().get(&path)?;
    let properties = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        [part]["properties"];
    if is_next {
        properties["moon"] = json!({"type": "string"});
    } else if let Some(properties) = properties.as_object_mut() {
        properties.remove("moon");
    }
    cluster.api().replace(&definition)
}

fn published_field(cluster: &Cluster, namespace: &str) -> anyhow::Result<Option<String>> {
    Ok(exported(cluster, namespace)?["spec"]["moon"].as_str().map(str::to_owned))
}

fn exported(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    cluster.api().get(&format!(
        "/apis/clusterset.mcs-agent.io/v1alpha1/namespaces/{MAILBOX}/exportedservices/{namespace}.{NAME}"
    ))
}

/// Nothing is deleted. What the two do not import from each other comes with the upgrade.
fn earlier(world: &mut World) -> anyhow::Result<()> {
    let (stays_there, before) = imported_service(world)?;
    for (number, role) in ["publisher", "reader"].into_iter().enumerate() {
        restart(world, number, Version::Earlier)?;
        stays(world, &stays_there, &before)?;
        let namespace = world.fresh()?;
        world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 2)))?;
        stays(world, &stays_there, &before)?;
        let is_imported = world.second().import(&namespace)?.is_some();
        tell(format!(
            "as {role}: a new service {} imported",
            if is_imported { "is" } else { "is not" }
        ));
        ensure!(world.clusters[number].controller.lives()?, "it has ended");
        restart(world, number, Version::This)?;
        world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
        follows_again(world, &namespace, &imported(world, &namespace)?)?;
    }
    follows_again(world, &stays_there, &before)
}

/// Starts a controller again as this version, and waits until it has read its cluster.
fn restart(world: &mut World, number: usize, version: Version) -> anyhow::Result<()> {
    let controller = &mut world.clusters[number].controller;
    let reads = |controller: &Controller| {
        Ok::<_, anyhow::Error>(controller.logged()?.matches(HAS_READ).count())
    };
    let before = reads(controller)?;
    controller.restart_as(version)?;
    wait::until("the controller to read its cluster", || {
        ensure!(reads(controller)? > before, "it has not");
        Ok(())
    })
}
