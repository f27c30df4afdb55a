//! A cluster without kube-proxy, where the Service `kubernetes` leads nowhere.

use crate::prelude::*;

const DAEMON: &str = "kube-proxy";

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
    let clients = world.clients(importer);
    for client in &clients {
        client.reach(&own, importer)?;
    }
    let stopped = Stopped::stop(world, importer)?;
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
    uninstall::is_clean(importer)?;

    drop(stopped);
    for client in &clients {
        client.reach(&own, importer)?;
    }
    importer.run(&["delete", "service", &own.name]).map(drop)
}

/// Nodes without kube-proxy and its rules. It starts again when this is dropped.
struct Stopped(Vec<Node>);

impl Stopped {
    fn stop(world: &World, member: &Member) -> Result<Self> {
        let nodes = member.nodes();
        let stopped = Self(nodes.clone());
        let kube_proxy = world.clusters.programs.find(DAEMON)?;
        for node in nodes {
            node.stop(DAEMON)?;
            process::run(node.command(&kube_proxy).arg("--cleanup"), "")?;
            let rules = process::run(&mut node.command("iptables-save"), "")?;
            let [api_server, _] = node.cluster.kubernetes();
            ensure!(!rules.contains(&api_server.to_string()), "{node} has rules: {rules}");
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for node in &self.0 {
            if let Err(error) = node.start(DAEMON).with_context(|| node.to_string()) {
                eprintln!("cannot start {DAEMON} again: {error:#}");
            }
        }
    }
}
