//! Shows the packet path: a pod that no socket hook serves.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::{
    Stage,
    spread::{self, REQUESTS},
};
use crate::demo::{
    example::{Family, SERVICE},
    traffic::Way,
    world::Place,
};

/// Flows to show.
const EXCERPT: usize = 5;
/// What counts where a socket is translated.
const BY_HOOKS: [&str; 2] = ["connect_translated", "send_translated"];

/// By curl and by many sockets, and what the programs have counted meanwhile.
pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    let before = stage.world.agent.counters()?;
    let mut shown = String::new();
    for family in Family::ALL {
        shown.push_str(&spread::curl(stage, Place::Guest, family)?);
    }
    stage.screen.block(&shown);
    stage.screen.progress(format!(
        "{REQUESTS} requests each, by processes outside of the cgroup that the hooks are attached to"
    ));
    spread::burst(stage, Way::from(Place::Guest))?;

    let added = added(&before, &stage.world.agent.counters()?);
    let lines = added.iter().map(|(name, count)| format!("{count:>6}  {name}\n"));
    stage.screen.block(&format!("Counted meanwhile:\n{}", lines.collect::<String>()));
    flows(stage)?;

    let count = |name: &str| added.get(name).copied().unwrap_or_default();
    for name in BY_HOOKS {
        ensure!(count(name) == 0, "{name} has counted, so that a hook has seen the sockets");
    }
    // Two protocols and two families, and what curl has asked.
    let requests = 4 * REQUESTS as u64 + 2;
    // A UDP socket that gets the port of an earlier one continues its flow.
    let (flows, connections) = (count("flow_created"), requests / 2);
    ensure!(flows > connections, "{connections} connections and as many sockets, {flows} flows");
    for name in ["packet_translated", "packet_reversed"] {
        ensure!(count(name) >= requests, "{requests} requests, and {name} is {}", count(name));
    }
    Ok(())
}

fn added(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let growth = |(name, count): (&String, &u64)| {
        let growth = count - before.get(name).copied().unwrap_or_default();
        (growth > 0).then(|| (name.clone(), growth))
    };
    after.iter().filter_map(growth).collect()
}

/// `flows`, of which there are many.
fn flows(stage: &Stage<'_>) -> Result<()> {
    let output = stage.world.agent.command(&["flows", SERVICE])?;
    ensure!(output.status.success(), "mcs-agent flows: {}", output.status);
    let table = String::from_utf8_lossy(&output.stdout);
    let excerpt: Vec<_> = table.lines().take(EXCERPT).collect();
    let bpffs = stage.world.bpffs.path().display();
    let command = format!("$ mcs-agent flows {SERVICE} --bpffs {bpffs}");
    stage.screen.block(&format!("{command}\n{}\n...", excerpt.join("\n")));
    for vip in Family::ALL.map(|family| family.vip().to_string()) {
        ensure!(table.contains(&vip), "no flow to {vip} is listed");
    }
    Ok(())
}
