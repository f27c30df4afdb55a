//! Shows the agent's commands, and a map as bpftool prints it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Stage, all_but};
use crate::demo::example::{self, SERVICE};

/// Lines of bpftool's output to show: an element.
const EXCERPT: usize = 11;

/// `services` and `backends`.
pub(super) fn frontends(stage: &Stage<'_>) -> Result<()> {
    let services = stage.agent(&["services"])?;
    let ready = services.lines().filter(|line| line.contains("east:2 west:2")).count();
    ensure!(ready == 4, "{ready} of 4 frontends have two backends in each cluster");

    let backends = stage.agent(&["backends", SERVICE])?;
    for (frontend, expected) in example::frontends(&all_but(&[])) {
        for backend in expected {
            let listed = backends.contains(&backend.to_string());
            ensure!(listed, "{backend} of {frontend:?} is not listed");
        }
    }
    Ok(())
}

/// `status`, and a map as bpftool prints it.
pub(super) fn status(stage: &Stage<'_>) -> Result<()> {
    // Exit status 0 means that all is well.
    stage.agent(&["status"])?;

    let map = stage.world.bpffs.path().join("mcs/config/frontends");
    let mut bpftool = Command::new("bpftool");
    bpftool.args(["map", "dump", "pinned"]).arg(&map);
    let output = bpftool.output().context("cannot run bpftool")?;
    let dump = String::from_utf8_lossy(&output.stdout);
    let excerpt: Vec<_> = dump.lines().take(EXCERPT).collect();
    let command = format!("$ bpftool map dump pinned {}", map.display());
    stage.screen.block(&format!("{command}\n{}\n    ...", excerpt.join("\n")));
    let entries: Vec<Value> = serde_json::from_str(&dump)
        .with_context(|| format!("bpftool: {}", String::from_utf8_lossy(&output.stderr)))?;
    let found = entries.iter().map(frontend).collect::<Result<BTreeSet<_>>>()?;
    let expected: BTreeSet<_> = example::frontends(&all_but(&[]))
        .into_keys()
        .map(|(vip, port, protocol)| (vip, u64::from(port), protocol.name()))
        .collect();
    ensure!(found == expected, "the map has {found:?} instead of {expected:?}");
    Ok(())
}

/// The key of an element of the map.
fn frontend(element: &Value) -> Result<(IpAddr, u64, &'static str)> {
    let key = &element["key"];
    let bytes: [u8; 16] = serde_json::from_value(key["vip"]["addr"].clone())?;
    let port = key["port"].as_u64().context("a key without a port")?;
    let protocol = if key["protocol"] == 6 { "TCP" } else { "UDP" };
    Ok((Ipv6Addr::from(bytes).to_canonical(), port, protocol))
}
