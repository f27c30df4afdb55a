//! The specs of the public conformance suite about connections: agents of two clusters, and servers that play their pods.

use std::{
    collections::BTreeSet,
    io::Read as _,
    net::{IpAddr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    agent::{Agent, Source},
    bpffs::BpfDirectory,
    cgroup::{Cgroup, Visit},
    netns::Namespace,
    server::Server,
    site,
    suite::Suite,
    wait,
};
use serde_json::json;

use crate::{
    cluster::Cluster,
    objects::service,
    world::{PODS, World, pod, slice_of},
};

/// What a pod listens to.
pub(crate) const TARGET: u16 = 4242;
/// How often clients connect.
const TIMES: usize = 10;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a service that is not exported is not reached", not_exported);
    suite.case("an exported service is reached from every cluster", exported);
    suite.case("a service of both clusters that one exports", exported_by_one);
    suite.case("one port name with two numbers", one_name_two_numbers);
    suite.case("a port name of its own in each cluster", names_of_their_own);
}

/// Pods of both clusters, and a node of each with the agent.
pub(crate) struct Dataplane {
    nodes: Vec<AgentNode>,
    _servers: Vec<Server>,
    _pods: Namespace,
}

/// An agent that follows a cluster, and the cgroup of its clients.
struct AgentNode {
    agent: Agent,
    cgroup: Cgroup,
    bpffs: BpfDirectory,
}

impl AgentNode {
    fn start(world: &World, cluster: &Cluster) -> anyhow::Result<Self> {
        let source = Source::Kubeconfig(cluster.administrator()?);
        let role = format!("agent-{}", cluster.id);
        let (config, cgroup, bpffs) = site::place(&world.run, &role, source, &["--tc=off"])?;
        let mut agent = Agent::start(&world.node.netns, config)?;
        wait::within(Duration::from_secs(30), "a healthy agent", || agent.wait_until_healthy())?;
        Ok(Self { agent, cgroup, bpffs })
    }
}

impl Dataplane {
    pub(crate) fn start(world: &World) -> anyhow::Result<Self> {
        let hosts = [pod(0, 0), pod(1, 0)].map(|address| address.octets()[3]);
        let pods = world.node.link(&world.run, "pods", PODS, &hosts)?;
        let servers = [pod(0, 0), pod(1, 0)]
            .map(|address| Server::tcp(&pods, SocketAddr::new(address.into(), TARGET)));
        let servers = servers.into_iter().collect::<anyhow::Result<_>>()?;
        let nodes = world.clusters[..2]
            .iter()
            .map(|cluster| AgentNode::start(world, cluster))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { nodes, _servers: servers, _pods: pods })
    }

    /// Where the agent of a cluster pins its maps.
    pub(crate) fn bpffs(&self, node: usize) -> &Path {
        self.nodes[node].bpffs.path()
    }

    /// The cgroup of the clients of a cluster.
    pub(crate) fn cgroup(&self, node: usize) -> &Path {
        self.nodes[node].cgroup.path()
    }

    /// Moves this process into the cgroup of the clients of a cluster.
    pub(crate) fn visit(&self, node: usize) -> anyhow::Result<Visit> {
        self.nodes[node].cgroup.visit()
    }

    /// What a command of the agent of a cluster prints.
    pub(crate) fn prints(&self, node: usize, words: &[&str]) -> anyhow::Result<String> {
        let output = self.nodes[node].agent.command(words)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Who answers clients in a cluster. Nobody does where the connection is refused.
    fn answers(
        &self,
        world: &World,
        node: usize,
        to: SocketAddr,
    ) -> anyhow::Result<BTreeSet<String>> {
        let _in_cgroup = self.visit(node)?;
        let answers = world.node.netns.run(|| (0..TIMES).map(|_| ask(to)).collect::<Vec<_>>())?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// Waits until clients of both clusters reach these pods at a port of the service.
    pub(crate) fn reach(
        &self,
        world: &World,
        namespace: &str,
        port: u16,
        clusters: &[u8],
    ) -> anyhow::Result<()> {
        self.reach_each(world, namespace, port, [clusters; 2])
    }

    /// The same, with other pods for the clients of each cluster.
    pub(crate) fn reach_each(
        &self,
        world: &World,
        namespace: &str,
        port: u16,
        clusters: [&[u8]; 2],
    ) -> anyhow::Result<()> {
        for (node, (cluster, pods)) in world.clusters.iter().zip(clusters).enumerate() {
            let expected: BTreeSet<_> =
                pods.iter().map(|number| pod(*number, 0).to_string()).collect();
            let vip = vip(cluster, namespace)?;
            wait::until(&format!("clients of {} at port {port}", cluster.id), || {
                let found = self.answers(world, node, SocketAddr::new(vip, port))?;
                ensure!(found == expected, "{found:?} answered, not {expected:?}");
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The address of who answered.
fn ask(to: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).ok()?;
    let text = std::str::from_utf8(&answer[..length]).ok()?;
    Some(text.trim().parse::<SocketAddr>().ok()?.ip().to_string())
}

/// The address that an import of a case has.
pub(crate) fn vip(cluster: &Cluster, namespace: &str) -> anyhow::Result<IpAddr> {
    let import = cluster.wait_for_import(namespace, |import| {
        ensure!(import["spec"]["ips"][0].is_string(), "no addresses");
        Ok(())
    })?;
    Ok(import["spec"]["ips"][0].as_str().context("an address")?.parse()?)
}

fn not_exported(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let vip = vip(world.second(), &namespace)?;
    world.first().unexport(&namespace)?;
    world.second().wait_for_nothing(&namespace)?;
    wait::until("clients that are refused", || {
        let found = dataplane.answers(world, 1, SocketAddr::new(vip, 42))?;
        ensure!(found.is_empty(), "{found:?} answered");
        Ok(())
    })
}

fn exported(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    dataplane.reach(world, &namespace, 42, &[0])
}

fn exported_by_one(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    world.second().api().apply(&service(&namespace))?;
    world.second().api().apply(&slice_of(&namespace, 1, 1))?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    dataplane.reach(world, &namespace, 42, &[0])
}

/// Exports a service with one TCP port in both clusters. Of two exports of one second, that of `c1` counts as the older one.
fn export_ports(world: &World, namespace: &str, ports: [(&str, u16); 2]) -> anyhow::Result<()> {
    for ((cluster, (name, port)), number) in world.clusters.iter().zip(ports).zip(0..) {
        let mut service = service(namespace);
        service["spec"]["ports"] = json!([{ "name": name, "port": port, "protocol": "TCP" }]);
        // Each connection goes to any of the pods.
        service["spec"]["sessionAffinity"] = json!("None");
        service["spec"].as_object_mut().map(|spec| spec.remove("sessionAffinityConfig"));
        let mut slice = slice_of(namespace, number, 1);
        slice["ports"] = json!([{ "name": name, "port": TARGET, "protocol": "TCP" }]);
        cluster.export(&service, Some(&slice))?;
        cluster.wait_for_import(namespace, |_| Ok(()))?;
    }
    Ok(())
}

fn one_name_two_numbers(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    export_ports(world, &namespace, [("tcp", 42), ("tcp", 43)])?;
    world.second().wait_for_conditions(&namespace, &["Conflict=True/PortConflict"])?;
    dataplane.reach(world, &namespace, 42, &[0])?;
    dataplane.reach(world, &namespace, 43, &[])
}

fn names_of_their_own(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dataplane = world.dataplane()?;
    export_ports(world, &namespace, [("first", 42), ("second", 43)])?;
    dataplane.reach(world, &namespace, 42, &[0])?;
    dataplane.reach(world, &namespace, 43, &[1])
}
