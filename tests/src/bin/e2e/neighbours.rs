//! kube-proxy beside the agent.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("Services of the cluster are kube-proxy's, in both of its modes", own_services);
    suite.case("a derived Service has the address when its import goes", derived);
    suite.case("a Service that comes later than the import takes nothing from it", comes_later);
}

fn own_services(world: &mut World) -> Result {
    for member in &world.members {
        world.release.ensure(member)?;
        let name = "own".to_owned();
        let service = Target { vips: member.service(&name)?, name };
        for client in Client::all(member) {
            client.reach(&service, member)?;
        }
        member.run(&["delete", "service", &service.name])?;
    }
    Ok(())
}

/// The Service leads to other pods than the import, to tell them apart.
fn derived(world: &mut World) -> Result {
    for (importer, exporter) in world.directions() {
        let name = "derived".to_owned();
        let target = Target { vips: importer.service(&name)?, name };
        world.release.ensure(importer)?;
        let clients = Client::all(importer);
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

/// An import has a free address of the range of Services, and a Service asks for it.
fn comes_later(world: &mut World) -> Result {
    let (importer, exporter) = world.directions()[0];
    let name = "later".to_owned();
    let target = Target { vips: importer.service(&name)?, name };
    importer.run(&["delete", "service", &target.name])?;
    world.release.ensure(importer)?;
    let clients = Client::all(importer);
    target.publish(importer, &[exporter])?;
    let own = json!({
        "ipFamilyPolicy": "PreferDualStack",
        "clusterIP": target.vips.first(),
        "clusterIPs": target.vips,
    });
    importer.service_of(&target.name, own)?;
    // kube-proxy serves Services in their order.
    let next = Target { vips: importer.service("next")?, name: "next".to_owned() };
    for client in &clients {
        client.reach(&next, importer)?;
        client.reach(&target, exporter)?;
    }
    target.withdraw(importer)?;
    for client in &clients {
        client.reach(&target, importer)?;
    }
    importer.run(&["delete", "service", &target.name, &next.name])?;
    Ok(())
}
