//! kube-proxy beside the agent.

use mcs_tests::suite::Suite;

use crate::{target::Target, world::World};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("Services of the cluster are kube-proxy's, in both of its modes", own_services);
    suite.case("a derived Service has the address when its import goes", derived);
}

fn own_services(world: &mut World) -> anyhow::Result<()> {
    for member in &world.members {
        world.release.ensure(member)?;
        let name = "own".to_owned();
        let service = Target { vips: member.service(&name)?, name };
        for client in world.clients(member) {
            client.reach(&service, member)?;
        }
        member.run(&["delete", "service", &service.name])?;
    }
    Ok(())
}

/// The Service leads to other pods than the import, to tell them apart.
fn derived(world: &mut World) -> anyhow::Result<()> {
    for (importer, exporter) in world.directions() {
        let name = "derived".to_owned();
        let target = Target { vips: importer.service(&name)?, name };
        world.release.ensure(importer)?;
        let clients = world.clients(importer);
        target.publish(importer, &[exporter])?;
        for client in &clients {
            client.reach(&target, exporter)?;
        }
        target.withdraw(importer)?;
        for client in &clients {
            client.reach(&target, importer)?;
        }
        target.publish(importer, &[exporter])?;
        for client in &clients {
            client.reach(&target, exporter)?;
        }
        target.withdraw(importer)?;
        importer.run(&["delete", "service", &target.name])?;
    }
    Ok(())
}
