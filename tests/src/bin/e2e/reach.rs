//! Clients of one cluster reach the pods of the other.

use mcs_tests::deployed::Answer;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the chart is rolled out on every node", rolled_out);
    suite.case("every client reaches the other cluster's pods by ClusterSetIP", by_address);
    suite.case("pods reach the other cluster's pods by name", by_name);
    suite.case("a service of both clusters", of_both);
    suite.case("pods scaled to zero, and back", scaled);
}

fn rolled_out(world: &mut World) -> Result {
    for member in &world.members {
        world.release.ensure(member)?;
        for node in member.kubectl.get(&["nodes"])?["items"].as_array().into_iter().flatten() {
            let (name, info) = (&node["metadata"]["name"], &node["status"]["nodeInfo"]);
            tell(format!("{}: {name} {}", member.name, info["kubeletVersion"]));
        }
        for status in agents::ask(member, &["status"])? {
            let first = status.lines().next().unwrap_or_default();
            tell(format!("{}: {first}", member.name));
        }
    }
    Ok(())
}

/// A service of the exporter's servers, with the agent on every node.
pub(crate) fn imported(
    world: &World,
    name: &str,
    importer: &Member,
    exporter: &Member,
) -> Result<Target> {
    world.release.ensure(importer)?;
    let target = world.fresh(name, importer)?;
    target.publish(importer, &[exporter])?;
    Ok(target)
}

fn by_address(world: &mut World) -> Result {
    for (importer, exporter) in world.directions() {
        let target = imported(world, "reach", importer, exporter)?;
        for client in Client::all(importer) {
            client.reach(&target, exporter)?;
        }
        target.withdraw(importer)?;
    }
    Ok(())
}

fn by_name(world: &mut World) -> Result {
    for (importer, exporter) in world.directions() {
        let corefile = importer.kubectl.get(&["configmap", "coredns", "-n", "kube-system"]);
        if !corefile.is_ok_and(|map| map.to_string().contains("multicluster")) {
            let name = &importer.name;
            return Err(skip(format!("DNS of {name} does not serve clusterset.local")));
        }
        let target = imported(world, "named", importer, exporter)?;
        let backends = exporter.backends()?;
        for place in Place::PODS {
            let client = Client::new(importer, place);
            for (protocol, port) in [("tcp", TCP), ("udp", UDP)] {
                let to = format!("{}:{port}", target.domain());
                wait::within(PATIENCE, &format!("{to} for {client}"), || {
                    let answers = client.ask(protocol, &to)?;
                    ensure!(answers.len() == target.vips.len(), "{answers:?} answered");
                    for Answer { asked, by, shown } in answers {
                        ensure!(target.vips.contains(&asked.ip()), "{to} is {asked}");
                        ensure!(backends.contains(&by) && shown == asked, "{by} answered");
                    }
                    Ok(())
                })?;
            }
        }
        target.withdraw(importer)?;
    }
    Ok(())
}

fn of_both(world: &mut World) -> Result {
    let (importer, exporter) = world.directions()[0];
    let target = imported(world, "both", importer, exporter)?;
    target.publish(importer, &[importer, exporter])?;
    let client = Client::new(importer, Place::Pod);
    let mut missing = importer.backends()?;
    missing.extend(exporter.backends()?);
    wait::within(PATIENCE, "every server of both clusters to answer", || {
        for (protocol, to) in target.frontends() {
            let answers = client.ask_often(protocol, &to.to_string(), 30)?;
            missing.retain(|backend| answers.iter().all(|answer| answer.by != *backend));
        }
        ensure!(missing.is_empty(), "{missing:?} did not");
        Ok(())
    })?;
    target.withdraw(importer)
}

fn scaled(world: &mut World) -> Result {
    let (importer, exporter) = world.directions()[0];
    let target = imported(world, "scaled", importer, exporter)?;
    let clients = Client::all(importer);
    for client in &clients {
        client.reach(&target, exporter)?;
    }
    let replicas = u8::try_from(exporter.servers()?.len() / target.vips.len())?;
    exporter.scale(0)?;
    target.publish(importer, &[exporter])?;
    for client in &clients {
        client.is_refused(&target)?;
    }
    exporter.scale(replicas)?;
    target.publish(importer, &[exporter])?;
    for client in &clients {
        client.reach(&target, exporter)?;
    }
    target.withdraw(importer)
}
