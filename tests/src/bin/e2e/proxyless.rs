//! A cluster without kube-proxy, where the Service `kubernetes` leads nowhere.

use mcs_tests::cluster::Proxyless;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "without kube-proxy: agents with apiServer.host start, serve, are replaced and uninstalled",
        without,
    );
}

fn without(world: &mut World) -> Result {
    let [exporter, importer] = &world.members;
    let node = importer.node.ok_or_else(|| skip("nodes are elsewhere, and so is kube-proxy"))?;
    let name = "proxyless".to_owned();
    let own = Target { vips: importer.service(&name)?, name };
    let clients = Client::all(importer);
    for client in &clients {
        client.reach(&own, importer)?;
    }
    let stopped = Proxyless::stop(&world.clusters.programs, &importer.nodes())?;
    let api_server = node.cluster.api_server();
    let values = [
        format!("apiServer.host={}", api_server.ip()),
        format!("apiServer.port={}", api_server.port()),
    ];
    world.release.install(importer, &values.each_ref().map(String::as_str))?;
    let target = imported(world, "without-proxy", importer, exporter)?;
    for client in &clients {
        client.reach(&target, exporter)?;
    }
    agents::delete_pods(importer)?;
    for client in &clients {
        client.reach(&target, exporter)?;
    }
    target.withdraw(importer)?;
    world.release.remove(importer)?;
    is_clean(importer)?;

    drop(stopped);
    for client in &clients {
        client.reach(&own, importer)?;
    }
    importer.run(&["delete", "service", &own.name]).map(drop)
}
