//! Events about what turns in a clusterset.

use anyhow::{Context as _, ensure};
use mcs_tests::{suite::Suite, wait};
use serde_json::json;

use crate::{
    cluster::Cluster,
    objects::{self, service},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("events tell of conflicts and of imports that are left alone", events_tell);
}

fn events_tell(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut import = objects::import(&namespace);
    import["spec"] = json!({ "type": "ClusterSetIP", "ips": ["241.0.0.3"], "ports": [] });
    world.second().api().apply(&import)?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    wait_for_event(world.second(), &namespace, "ServiceImport", "LeftAlone")?;
    let mut other = service(&namespace);
    other["spec"]["ports"][0]["port"] = json!(43);
    world.second().export(&other, None)?;
    for cluster in [world.first(), world.second()] {
        wait_for_event(cluster, &namespace, "ServiceExport", "PortConflict")?;
    }
    world.second().unexport(&namespace)?;
    wait_for_event(world.first(), &namespace, "ServiceExport", "NoConflicts")?;
    world.first().unexport(&namespace)?;
    world.second().api().delete(&import)
}

pub(crate) fn wait_for_event(
    cluster: &Cluster,
    namespace: &str,
    kind: &str,
    reason: &str,
) -> anyhow::Result<()> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    wait::until(&format!("an event {reason} of {} in {namespace}", cluster.id), || {
        let events = cluster.api().get(&path)?;
        let events = events["items"].as_array().context("a list")?.clone();
        let is_meant = |event: &&serde_json::Value| {
            event["regarding"]["kind"] == kind && event["reason"] == reason
        };
        let found = events.iter().filter(is_meant).count();
        ensure!(found == 1, "there are {found}, of {events:?}");
        Ok(())
    })
}
