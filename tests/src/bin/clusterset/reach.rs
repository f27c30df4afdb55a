//! Whether packets get to the pods of a peer, as the controller measures it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use mcs_tests::{suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    cluster::conditions,
    objects::service,
    peering,
    silence::{follows_again, imported},
    world::{POD_RANGES, World, slice_of},
};

/// Three rounds of 3 s, or two that are answered.
const TURN: Duration = Duration::from_secs(40);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("pods of a peer behind a route that goes nowhere", unroutable);
}

fn unroutable(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.dataplane()?;
    // Services of other cases have pods that nobody plays.
    let allowed = peering::peer(world.first(), POD_RANGES[0]);
    let mut peer = allowed.clone();
    peer["spec"]["namespaces"] = json!({ "allow": [namespace] });
    world.second().api().apply(&peer)?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    world.clusters[1].controller.restart_with(&["--probe-peers=on", "--probe-period=1"])?;
    wait_for(world, "PodsReachable=True/Reached")?;
    let route = format!("blackhole {}", POD_RANGES[0]);
    world.node.netns.ip(&format!("route add {route}\n"))?;
    let message = wait_for(world, "PodsReachable=False/NotReached")?;
    for part in ["IPv4: 1 of 1 pods", "10.77.9.17:", "does not answer", POD_RANGES[0]] {
        ensure!(message.contains(part), "{part} is not in {message}");
    }
    wait::until("an event of the ClusterPeer", || {
        let events =
            world.second().api().get("/api/v1/events?fieldSelector=reason%3DNotReached")?;
        let event = &events["items"][0];
        ensure!(event["involvedObject"]["name"] == "c1" && event["type"] == "Warning", "{events}");
        Ok(())
    })?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    world.node.netns.ip(&format!("route delete {route}\n"))?;
    wait_for(world, "PodsReachable=True/Reached")?;
    world.clusters[1].controller.restart_with(&[])?;
    wait_for(world, "PodsReachable=Unknown/Off")?;
    world.second().api().apply(&allowed)?;
    follows_again(world, &namespace, &imported(world, &namespace)?)
}

/// Waits until the ClusterPeer of the first cluster has this condition. Returns its message.
fn wait_for(world: &World, expected: &str) -> anyhow::Result<String> {
    let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1";
    wait::within(TURN, expected, || {
        let peer = world.second().api().get(path)?;
        let found = conditions(&peer);
        ensure!(found.iter().any(|one| one == expected), "{found:?}");
        let all = peer["status"]["conditions"].as_array().context("no conditions")?;
        let one = all.iter().find(|one: &&Value| one["type"] == "PodsReachable");
        Ok(one.and_then(|one| one["message"].as_str()).unwrap_or_default().to_owned())
    })
}
