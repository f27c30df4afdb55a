//! The agent is removed, as its documentation says.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    cluster::{self, Node},
    process,
    suite::{Suite, tell},
};

use crate::{reach::imported, world::World};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the documented uninstall leaves nothing", leaves_nothing);
}

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
            for (protocol, address) in target.frontends() {
                let answers = client.ask(protocol, &address.to_string());
                ensure!(answers.is_err(), "{address} still answers {client}: {answers:?}");
            }
        }
        for kind in ["daemonset", "serviceaccount", "clusterrole", "clusterrolebinding"] {
            let words = ["get", kind, "--all-namespaces", "--output", "name"];
            let selector = ["--selector", "app.kubernetes.io/name=mcs-agent"];
            let left = importer.kubectl.run(&[words.as_slice(), &selector].concat())?;
            ensure!(left.trim().is_empty(), "{} still has {left}", importer.name);
        }
        target.withdraw(importer)?;
    }
    Ok(())
}

/// What of the agent is on a node: pins, programs on its cgroup, programs on its devices.
fn traces(node: Node) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let run = |words: &[&str]| {
        let mut command = node.command(words[0]);
        process::run(command.args(&words[1..]), "")
    };
    let pins = run(&["ls", "/sys/fs/bpf"])?;
    found.extend(pins.lines().filter(|name| !name.ends_with(".debug")).map(str::to_owned));
    let cgroup = node.cgroup()?;
    let programs = run(&["bpftool", "--json", "cgroup", "show", &mount_of(node)?])?;
    let programs: serde_json::Value = serde_json::from_str(&programs).context("bpftool")?;
    let attached = programs.as_array().into_iter().flatten();
    found.extend(attached.map(|program| format!("{}: {program}", cgroup.display())));
    let devices = run(&["bpftool", "--json", "net"])?;
    let devices: serde_json::Value = serde_json::from_str(&devices).context("bpftool")?;
    let devices = devices[0]["tc"].as_array().into_iter().flatten();
    found.extend(devices.map(|device| format!("tc: {device}")));
    Ok(found)
}
