//! A second release of the chart takes a node over, and gives it back.

use anyhow::ensure;
use mcs_tests::{
    suite::{Suite, skip, tell},
    wait,
};

use crate::{
    agents::{self, NAME, NAMESPACE},
    clients::Load,
    member::{Member, PATIENCE},
    reach::imported,
    world::World,
};

/// The second release, and its DaemonSet.
const RELEASE: &str = "canary";
const DAEMON_SET: &str = "canary-mcs-agent";
/// The label of its nodes.
const POOL: &str = "mcs-agent/pool";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a canary release takes a node over under load, and gives it back", takes_over);
}

fn takes_over(world: &mut World) -> anyhow::Result<()> {
    let (importer, exporter) = world.directions()[0];
    let Some(node) = importer.node else {
        return Err(skip(format!("the nodes of {} are elsewhere", importer.name)));
    };
    let node = node.to_string();
    let target = imported(world, "canary", importer, exporter)?;
    let mut loads = Vec::new();
    for client in world.clients(importer) {
        client.reach(&target, exporter)?;
        loads.push(client.load(&target, &[exporter])?);
    }
    let release = &world.release;
    // `PATH[0]=...` of a value that is a list.
    let term = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.\
                nodeSelectorTerms[0].matchExpressions[0]";
    let outside = [
        format!("{term}.key={POOL}"),
        format!("{term}.operator=NotIn"),
        format!("{term}.values={{canary}}"),
    ];
    release.install(importer, &outside.each_ref().map(String::as_str))?;
    let inside = [&format!("nodeSelector.{POOL}=canary"), "uninstall.cleanup=false"];
    release.install_beside(importer, RELEASE, &inside)?;
    has_nodes(importer, DAEMON_SET, 0)?;

    importer.kubectl.run(&["label", "node", &node, &format!("{POOL}=canary")])?;
    has_nodes(importer, NAME, 0)?;
    has_nodes(importer, DAEMON_SET, 1)?;
    let words = ["exec", &format!("daemonset/{DAEMON_SET}"), "--namespace", NAMESPACE];
    let status = importer.kubectl.run(&[&words[..], &["--", "mcs-agent", "status"]].concat())?;
    tell(format!("{RELEASE}: {}", status.lines().next().unwrap_or_default()));

    importer.kubectl.run(&["label", "node", &node, &format!("{POOL}-")])?;
    has_nodes(importer, DAEMON_SET, 0)?;
    has_nodes(importer, NAME, 1)?;
    release.uninstall(importer, RELEASE)?;
    ensure!(agents::pods(importer)?.len() == 1, "pods of {RELEASE} are left");
    release.install(importer, &[])?;
    let answers = loads.into_iter().map(Load::end).sum::<anyhow::Result<u64>>()?;
    tell(format!("{answers} answers"));
    target.withdraw(importer)
}

/// Waits until that many nodes have a pod of the DaemonSet, and no other one has.
fn has_nodes(member: &Member, daemon_set: &str, nodes: u64) -> anyhow::Result<()> {
    wait::within(PATIENCE, &format!("{daemon_set} on {nodes} nodes"), || {
        let words = ["daemonset", daemon_set, "--namespace", NAMESPACE];
        let status = member.kubectl.get(&words)?["status"].take();
        for field in ["desiredNumberScheduled", "currentNumberScheduled", "numberReady"] {
            ensure!(status[field] == nodes, "{status}");
        }
        ensure!(status["numberMisscheduled"] == 0, "{status}");
        Ok(())
    })
}
