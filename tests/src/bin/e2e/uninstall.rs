//! The agent is removed, as its documentation says.

use mcs_tests::deployed::{is_clean, traces};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the documented uninstall leaves nothing", leaves_nothing);
    suite.case("clients of a derived Service do not notice an uninstall", goes_unnoticed);
}

fn leaves_nothing(world: &mut World) -> Result {
    for (importer, exporter) in world.directions() {
        let target = imported(world, "uninstalled", importer, exporter)?;
        let clients = Client::all(importer);
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
    for client in Client::all(importer) {
        client.reach(&target, exporter)?;
        loads.push(client.load(&target, &[importer, exporter])?);
    }
    world.release.begin_to_uninstall(importer)?;
    let hook = ["wait", "--for=condition=Complete", "job/mcs-agent-cleanup", "--timeout=90s"];
    importer.kubectl.run(&[&["--namespace", agents::NAMESPACE], &hook[..]].concat())?;
    world.release.remove(importer)?;
    is_clean(importer)?;
    for client in Client::all(importer) {
        client.reach(&target, importer)?;
    }
    let answers = loads.into_iter().map(Load::end).sum::<Result<u64>>()?;
    tell(format!("{answers} answers"));
    target.withdraw(importer)?;
    importer.run(&["delete", "service", &target.name]).map(drop)
}
