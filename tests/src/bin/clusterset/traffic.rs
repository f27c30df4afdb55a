//! Weights and drains of source clusters: what operators write in one cluster, agents are told in others.

use anyhow::{Context as _, ensure};
use mcs_tests::{suite::Suite, wait};
use serde_json::{Value, from_str, json};

use crate::{
    cluster::Cluster,
    peering,
    world::{POD_RANGES, World},
};

const PROPERTIES: &str = "/apis/about.k8s.io/v1beta1/clusterproperties";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("weights and drains arrive in a ClusterProperty", arrive);
}

fn arrive(world: &mut World) -> anyhow::Result<()> {
    let [first, second] = [world.first(), world.second()];
    let peer = peering::peer(first, POD_RANGES[0]);
    let mut weighted = peer.clone();
    weighted["spec"]["weight"] = json!(10);
    second.api().apply(&weighted)?;
    told(second, &json!({"c1": {"weight": 10}}))?;

    let mut too_much = peer.clone();
    too_much["spec"]["weight"] = json!(1001);
    ensure!(second.api().apply(&too_much).is_err(), "a weight of 1001 is taken");

    let weight = |value: &str| property("weight.clusterset.mcs-agent.io", value);
    second.api().apply(&weight("90"))?;
    told(second, &json!({"c1": {"weight": 10}, "c2": {"weight": 90}}))?;

    // A value that cannot be used changes nothing, and what is written meanwhile arrives.
    second.api().apply(&weight("much"))?;
    let drain = property("drain.clusterset.mcs-agent.io", "true");
    first.api().apply(&drain)?;
    told(first, &json!({"c1": {"drain": true}}))?;
    told(second, &json!({"c1": {"weight": 10, "drain": true}, "c2": {"weight": 90}}))?;

    // So do those of a controller that begins anew, whatever others have written.
    second.api().apply(&property("traffic.clusterset.mcs-agent.io", "{}"))?;
    told(second, &json!({"c1": {"weight": 10, "drain": true}}))?;

    first.api().delete(&drain)?;
    second.api().delete(&weight("90"))?;
    let mut drained = peer.clone();
    drained["spec"]["drain"] = json!(true);
    second.api().apply(&drained)?;
    told(second, &json!({"c1": {"drain": true}}))?;
    second.api().apply(&peer)?;
    told(second, &json!({}))?;
    told(first, &json!({}))
}

fn property(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "about.k8s.io/v1beta1",
        "kind": "ClusterProperty",
        "metadata": { "name": name },
        "spec": { "value": value },
    })
}

/// Waits until the agents of a cluster are told this.
fn told(cluster: &Cluster, expected: &Value) -> anyhow::Result<()> {
    wait::until(&format!("{expected} in {}", cluster.id), || {
        let property =
            cluster.api().get(&format!("{PROPERTIES}/traffic.clusterset.mcs-agent.io"))?;
        let value = property["spec"]["value"].as_str().context("no value")?;
        ensure!(from_str::<Value>(value)? == *expected, "it is {value}");
        Ok(())
    })
}
