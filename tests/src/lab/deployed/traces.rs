//! What of the agent is left in a cluster and on its nodes.

use super::{Member, agents};
use crate::{cluster::Node, prelude::*};

/// What the kernel itself pins.
const KERNEL_PINS: [&str; 2] = ["maps.debug", "progs.debug"];

/// Fails if anything of the agent is left in the cluster, or on a node that is on this machine.
pub fn is_clean(member: &Member) -> Result {
    is_clean_of(member, agents::NAME)
}

/// The same of a release of that name.
pub fn is_clean_of(member: &Member, release: &str) -> Result {
    if member.node.is_none() {
        tell(format!("the nodes of {} are elsewhere: not looked at", member.name));
    }
    for node in member.nodes() {
        let found = traces(node)?;
        ensure!(found.is_empty(), "{node} still has {found:?}");
    }
    let kinds = ["daemonset", "job", "serviceaccount", "role", "rolebinding"];
    for kind in kinds.into_iter().chain(["clusterrole", "clusterrolebinding"]) {
        let words = ["get", kind, "--all-namespaces", "--output", "name"];
        let selector = ["--selector", &format!("app.kubernetes.io/instance={release}")];
        let left = member.kubectl.run(&[words.as_slice(), &selector].concat())?;
        ensure!(left.trim().is_empty(), "{} still has {left}", member.name);
    }
    Ok(())
}

/// What of the agent is on a node: pins, programs on its cgroup, programs on its devices.
pub fn traces(node: Node) -> Result<Vec<String>> {
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
fn json(command: &mut Command) -> Result<Value> {
    let printed = process::run(command, "")?;
    if printed.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&printed).with_context(|| printed)
}
