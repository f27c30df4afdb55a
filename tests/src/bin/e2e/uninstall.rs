//! The agent is removed, as its documentation says.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the documented uninstall leaves nothing", leaves_nothing);
    suite.case("clients of a derived Service do not notice an uninstall", goes_unnoticed);
}

/// What the kernel itself pins.
const KERNEL_PINS: [&str; 2] = ["maps.debug", "progs.debug"];

fn leaves_nothing(world: &mut World) -> Result {
    for (importer, exporter) in world.directions() {
        let target = imported(world, "uninstalled", importer, exporter)?;
        let clients = world.clients(importer);
        for client in &clients {
            client.reach(&target, exporter)?;
        }
        for node in importer.nodes() {
            let found = traces(node)?;
            ensure!(found.len() >= 3, "{node} has {found:?} while the agent runs");
        }
        world.release.remove(importer)?;
        is_clean(importer)?;
        for client in &clients {
            for address in target.tcp() {
                let answers = client.ask("tcp", &address.to_string());
                ensure!(answers.is_err(), "{address} still answers {client}: {answers:?}");
            }
        }
        target.withdraw(importer)?;
    }
    Ok(())
}

/// helm gives up before the nodes are clean. The hook goes on, and a second uninstall completes the first.
fn goes_unnoticed(world: &mut World) -> Result {
    let (importer, exporter) = world.directions()[0];
    let name = "unnoticed".to_owned();
    let target = Target { vips: importer.service(&name)?, name };
    world.release.ensure(importer)?;
    target.publish(importer, &[exporter])?;
    let mut loads = Vec::new();
    for client in world.clients(importer) {
        client.reach(&target, exporter)?;
        loads.push(client.load(&target, &[importer, exporter])?);
    }
    world.release.begin_to_uninstall(importer)?;
    let hook = ["wait", "--for=condition=Complete", "job/mcs-agent-cleanup", "--timeout=90s"];
    importer.kubectl.run(&[&["--namespace", agents::NAMESPACE], &hook[..]].concat())?;
    world.release.remove(importer)?;
    is_clean(importer)?;
    for client in world.clients(importer) {
        client.reach(&target, importer)?;
    }
    let answers = loads.into_iter().map(Load::end).sum::<Result<u64>>()?;
    tell(format!("{answers} answers"));
    target.withdraw(importer)?;
    importer.run(&["delete", "service", &target.name]).map(drop)
}

/// Fails if anything of the agent is left in the cluster, or on a node that is on this machine.
pub(crate) fn is_clean(member: &Member) -> Result {
    is_clean_of(member, agents::NAME)
}

/// The same of a release of that name.
pub(crate) fn is_clean_of(member: &Member, release: &str) -> Result {
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
pub(crate) fn traces(node: Node) -> Result<Vec<String>> {
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
