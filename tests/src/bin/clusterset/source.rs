//! Which source address another cluster sees: `mcs check` says whether addresses are masqueraded on the way.

use std::{net::SocketAddr, process::Stdio};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    netns::Namespace,
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    check::{DEPLOYMENT, end, play_kubelet, probes},
    controller::{self, NAMESPACE},
    objects::namespaced,
    world::World,
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("check says which source address pods of another cluster see", sees);
}

/// The port of health in the Deployment.
const PORT: u16 = 16460;
const TABLE: &str = "mcs-source";

/// Rules that masquerade what goes to a controller. They go when this is dropped.
struct Masquerade<'a>(&'a Namespace);

impl<'a> Masquerade<'a> {
    /// The address on the link to the controllers stays that of this end, so another one stands in for the node's.
    fn begin(netns: &'a Namespace, to: SocketAddr, as_address: &str) -> anyhow::Result<Self> {
        let rules = format!(
            "table ip {TABLE} {{ chain out {{ type nat hook postrouting priority srcnat; \
             ip daddr {} tcp dport {} snat to {as_address}; }}; }};",
            to.ip(),
            to.port(),
        );
        netns.output("nft", &[&rules])?;
        Ok(Self(netns))
    }
}

impl Drop for Masquerade<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.output("nft", &["delete", "table", "ip", TABLE]) {
            eprintln!("cannot delete the table {TABLE}: {error:#}");
        }
    }
}

fn sees(world: &mut World) -> anyhow::Result<()> {
    let address = SocketAddr::new(world.first().server.address().ip(), PORT);
    let flag = format!("--health-address={address}");
    world.clusters[0].controller.restart_with(&[&flag])?;
    let result = says(world, address);
    world.clusters[0].controller.restart_with(&[])?;
    result
}

fn says(world: &World, address: SocketAddr) -> anyhow::Result<()> {
    let first = world.first().api();
    first.apply_yaml(DEPLOYMENT)?;
    let deployment = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/mcs-controller");
    let template = first.get(&deployment)?["spec"]["template"].take();
    let mut pod = namespaced("v1", "Pod", NAMESPACE, "mcs-controller-0");
    pod["metadata"]["labels"] = template["metadata"]["labels"].clone();
    pod["spec"] = json!({ "containers": [{ "name": "controller", "image": "mcs-agent" }] });
    let own = namespaced("v1", "ServiceAccount", NAMESPACE, "default");
    first.apply(&own)?;
    first.apply(&pod)?;
    let mut status = namespaced("v1", "Pod", NAMESPACE, "mcs-controller-0");
    status["status"] = json!({
        "podIPs": [{ "ip": address.ip() }], "podIP": address.ip(),
        "conditions": [{ "type": "Ready", "status": "True" }],
    });
    first.apply_status(&status)?;
    world.second().api().apply_yaml(DEPLOYMENT)?;
    world.second().api().apply(&own)?;

    let seen = probed(world, address)?;
    ensure!(seen["own"] == seen["seen"], "{seen}");
    let found = check(world)?;
    ensure!(found["ok"] == true && found["skipped"].is_null(), "{found}");
    let expected = "pods of c1 see the addresses of this cluster's pods";
    ensure!(found["message"] == expected, "{found}");

    // An address of this end that the other one has a route to.
    let another = "10.77.5.77";
    world.node.netns.ip(&format!("address add {another}/32 dev lo\n"))?;
    let masquerade = Masquerade::begin(&world.node.netns, address, another)?;
    let seen = probed(world, address)?;
    ensure!(seen["seen"] == another && seen["own"] != another, "{seen}");
    let found = check(world)?;
    ensure!(found["ok"] == true && found["peer"] == "c1", "{found}");
    let message = found["message"].as_str().unwrap_or_default();
    let own = seen["own"].as_str().context("an address")?;
    let expected = format!("pods of c1 see {another} instead of {own}");
    ensure!(message.contains(&expected), "{found}");
    tell(message);
    drop(masquerade);
    world.node.netns.ip(&format!("address delete {another}/32 dev lo\n"))?;
    first.delete(&pod)
}

/// What a controller sees of `mcs-controller probe`.
fn probed(world: &World, address: SocketAddr) -> anyhow::Result<Value> {
    let mut seen = Value::Null;
    wait::until("a controller to say what it sees", || {
        let mut command = controller::command(&world.node.netns)?;
        command.args(["probe", "-o", "json", "--ask", &address.to_string()]);
        let output = command.stderr(Stdio::inherit()).output()?;
        seen = serde_json::from_slice::<Value>(&output.stdout)?[0]["source"].take();
        ensure!(!seen.is_null(), "nothing");
        Ok(())
    })?;
    Ok(seen)
}

/// What `check` of both clusters says about the source addresses of the second one's pods.
fn check(world: &World) -> anyhow::Result<Value> {
    let mut command = controller::command_line(&world.node.netns)?;
    command.arg("check").args([world.first().administrator()?, world.second().administrator()?]);
    command.args(["-o", "json", "--probe=pod"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut played = Vec::new();
    wait::until("the end of check", || {
        for cluster in [world.first(), world.second()] {
            for pod in probes(cluster)? {
                if !played.contains(&pod["metadata"]["name"]) {
                    play_kubelet(world, cluster, &pod)?;
                    played.push(pod["metadata"]["name"].clone());
                }
            }
        }
        child.try_wait()?.context("it runs")
    })?;
    let mut findings = end(child)?.into_iter();
    findings.find(|one| one["check"] == "source address").context("nothing of source addresses")
}
