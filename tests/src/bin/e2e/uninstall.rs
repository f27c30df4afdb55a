//! The agent is removed, as its documentation says.

use std::process::Command;

use anyhow::{Context as _, ensure};
use mcs_tests::{
    cluster::{self, Node},
    process,
    suite::{Suite, tell},
};

use serde_json::Value;

use crate::{agents, reach::imported, world::World};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the documented uninstall leaves nothing", leaves_nothing);
}

/// What the kernel itself pins.
const KERNEL_PINS: [&str; 2] = ["maps.debug", "progs.debug"];

fn leaves_nothing(world: &mut World) -> anyhow::Result<()> {
    for (importer, exporter) in world.directions() {
        let target = imported(world, "uninstalled", importer, exporter)?;
        let clients = world.clients(importer);
        for client in &clients {
            client.reach(&target, exporter)?;
        }
        let nodes: Vec<_> =
            importer.node.into_iter().flat_map(|node| cluster::nodes(node.cluster)).collect();
        for node in &nodes {
            let found = traces(*node)?;
            ensure!(found.len() >= 3, "{node} has {found:?} while the agent runs");
        }
        world.release.remove(importer)?;
        for node in &nodes {
            let found = traces(*node)?;
            ensure!(found.is_empty(), "{node} still has {found:?}");
        }
        if nodes.is_empty() {
            tell(format!("the nodes of {} are elsewhere: not looked at", importer.name));
        }
        for client in &clients {
            for address in target.tcp() {
                let answers = client.ask("tcp", &address.to_string());
                ensure!(answers.is_err(), "{address} still answers {client}: {answers:?}");
            }
        }
        for kind in ["daemonset", "serviceaccount", "clusterrole", "clusterrolebinding"] {
            let words = ["get", kind, "--all-namespaces", "--output", "name"];
            let selector = ["--selector", agents::SELECTOR];
            let left = importer.kubectl.run(&[words.as_slice(), &selector].concat())?;
            ensure!(left.trim().is_empty(), "{} still has {left}", importer.name);
        }
        target.withdraw(importer)?;
    }
    Ok(())
}

/// What of the agent is on a node: pins, programs on its cgroup, programs on its devices.
fn traces(node: Node) -> anyhow::Result<Vec<String>> {
    let pins = process::run(node.command("ls").arg("/sys/fs/bpf"), "")?;
    let pins = pins.lines().filter(|name| !KERNEL_PINS.contains(name));
    let mut found: Vec<_> = pins.map(|name| format!("pin {name}")).collect();

    let mut bpftool = Command::new("bpftool");
    let programs = json(bpftool.args(["--json", "cgroup", "show"]).arg(node.cgroup()?))?;
    let programs = programs.as_array().into_iter().flatten();
    found.extend(programs.map(|program| format!("on the cgroup {program}")));

    let devices = json(node.command("bpftool").args(["--json", "net"]))?;
    let programs = devices[0]["tc"].as_array().into_iter().flatten();
    found.extend(programs.map(|program| format!("on a device {program}")));
    Ok(found)
}

/// What a command prints, which may be nothing.
fn json(command: &mut Command) -> anyhow::Result<Value> {
    let printed = process::run(command, "")?;
    if printed.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&printed).with_context(|| printed)
}
