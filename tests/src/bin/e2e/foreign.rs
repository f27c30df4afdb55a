//! A foreign program on the node's cgroup that translates the same address.

use std::net::SocketAddrV4;

use mcs_tests::bpf::{AttachType, Link, Program, has_order_on_cgroups};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a foreign connect program after ours: ours has the address", after_ours);
    suite.case("a foreign connect program that was there before ours", before_ours);
}

/// What the foreign program leads to servers of the importer, and the import to those of the
/// exporter: TCP connections to the IPv4 address.
struct Rivals<'a> {
    /// Every node of the importer.
    nodes: Vec<Node>,
    importer: &'a Member,
    exporter: &'a Member,
    target: Target,
    address: SocketAddrV4,
    theirs: SocketAddrV4,
    clients: Vec<Client<'a>>,
}

impl<'a> Rivals<'a> {
    fn new(world: &'a World, name: &str) -> Result<Self> {
        let (importer, exporter) = world.directions()[0];
        let nodes = importer.nodes();
        if nodes.is_empty() {
            return Err(skip("the nodes are elsewhere"));
        }
        let target = world.fresh(name, importer)?;
        let v4 = |addresses: Vec<SocketAddr>| {
            addresses.into_iter().find_map(|address| match address {
                SocketAddr::V4(address) => Some(address),
                SocketAddr::V6(_) => None,
            })
        };
        let address = v4(target.tcp().collect()).context("no IPv4 address")?;
        let theirs = v4(importer.backends()?).context("no server has an IPv4 address")?;
        let clients = Client::all(importer);
        Ok(Self { nodes, importer, exporter, target, address, theirs, clients })
    }

    /// Every client gets to the servers of the import.
    fn ours_has_it(&self) -> Result {
        let backends = self.exporter.backends()?;
        self.clients.iter().try_for_each(|client| {
            client.wait_for("tcp", self.address.into(), |answer| backends.contains(&answer.by))
        })
    }

    /// Every client gets to the server of the foreign program.
    fn theirs_has_it(&self) -> Result {
        self.clients.iter().try_for_each(|client| {
            client.wait_for("tcp", self.address.into(), |answer| answer.by == self.theirs.into())
        })
    }

    /// Attaches the foreign program to every node, behind those that are there.
    fn attach(&self) -> Result<Vec<Link>> {
        let attach = |node: &Node| {
            let cgroup = node.cgroup()?;
            let file = File::open(&cgroup).with_context(|| cgroup.display().to_string())?;
            Ok(attach(&file, self.address, self.theirs)?)
        };
        self.nodes.iter().map(attach).collect()
    }
}

fn after_ours(world: &mut World) -> Result {
    let rivals = Rivals::new(world, "after-ours")?;
    let Rivals { importer, exporter, target, .. } = &rivals;
    world.release.ensure(importer)?;
    target.publish(importer, &[exporter])?;
    rivals.ours_has_it()?;
    let _links = rivals.attach()?;
    rivals.ours_has_it()?;
    target.withdraw(importer)?;
    // Nothing tells the agent that somebody else has the address.
    rivals.clients.iter().try_for_each(|client| client.is_refused(target))
}

fn before_ours(world: &mut World) -> Result {
    let rivals = Rivals::new(world, "before-ours")?;
    let Rivals { importer, exporter, target, .. } = &rivals;
    world.release.remove(importer)?;
    let links = rivals.attach()?;
    rivals.theirs_has_it()?;
    world.release.ensure(importer)?;
    target.publish(importer, &[exporter])?;
    // What the other program leaves alone tells when ours is at work. It is attached first where the kernel can do so.
    let backends = exporter.backends()?;
    for client in &rivals.clients {
        for address in target.udp() {
            client.wait_for("udp", address, |answer| backends.contains(&answer.by))?;
        }
    }
    if has_order_on_cgroups() {
        rivals.ours_has_it()?;
    } else {
        rivals.theirs_has_it()?;
    }
    drop(links);
    rivals.ours_has_it()?;
    target.withdraw(importer)
}

fn attach(cgroup: &File, from: SocketAddrV4, to: SocketAddrV4) -> io::Result<Link> {
    let hook = AttachType::BPF_CGROUP_INET4_CONNECT;
    // The last part of the address is small.
    Program::leading(hook, *from.ip(), to)?.attach_to_cgroup(cgroup, hook)
}
