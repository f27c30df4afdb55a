//! Agents stop and start: flows continue, and the node is unchanged.

use mcs_tests::{
    aged,
    netns::Settings,
    writer::{WriteFaults, Writer},
};

use crate::prelude::*;

const BYTES: usize = 5_000_000;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the agent is killed and comes back", is_killed);
    suite.case("flows of former backends, when the address filter is rebuilt", are_found);
    suite.case("the node is what it was, with the agent and after it", changes_nothing);
}

struct Clients {
    stream: std::net::TcpStream,
    socket: std::net::UdpSocket,
    backend: SocketAddr,
}

impl Clients {
    fn begin(pod: &Pod, target: &Target, family: Family) -> Result<Self> {
        pod.netns.run(|| {
            let (stream, _) = greeted(family, target.tcp(family))?;
            let socket = client::udp(family)?;
            let backend = ask(&socket, target.udp(family))?.backend;
            Ok(Self { stream, socket, backend })
        })?
    }

    /// The socket is where it was; a new one, and a new connection, find a backend.
    fn go_on(&self, pod: &Pod, target: &Target, family: Family) -> Result {
        let reply = ask(&self.socket, target.udp(family))?;
        ensure!(reply.backend == self.backend, "moved to {}", reply.backend);
        pod.netns.run(|| {
            bulk(&greeted(family, target.tcp(family))?.0, 1_000)?;
            let reply = ask(&client::udp(family)?, target.udp(family))?;
            ensure!(reply.source == target.udp(family), "{} is shown", reply.source);
            anyhow::Ok(())
        })?
    }
}

fn is_killed(world: &mut World) -> Result {
    let place = world.new_place(&Layout::CNI.map(|layout| (layout, 1)))?;
    let target = world.fresh("killed").with_remote(Distance::Near, World::WEB);
    let node = &place.node.netns;
    let mut site = Site::start(&world.run, "killed", node, FLAGS, &[&target.service])?;
    let mut clients = Vec::new();
    for pod in place.pods() {
        for family in Family::ON_WIRE {
            clients.push((Clients::begin(pod, &target, family)?, pod, family));
        }
    }
    let all_go_on = |when: &str| {
        clients.iter().try_for_each(|(client, pod, family)| {
            let what = || format!("{when}: {}, {family}", pod.layout);
            client.go_on(pod, &target, *family).with_context(what)
        })
    };
    site.agent.kill()?;
    all_go_on("killed")?;
    site.agent.come_back(FLAGS)?;
    all_go_on("back")?;
    for (client, pod, family) in &clients {
        bulk(&client.stream, BYTES).with_context(|| format!("{}, {family}", pod.layout))?;
    }
    Ok(())
}

/// No config map has the backend any more: without the bit of its address, a reply would show it.
fn are_found(world: &mut World) -> Result {
    let place = world.new_place(&Layout::CNI.map(|layout| (layout, 1)))?;
    let target = world.fresh("found");
    let [first, second, third] =
        [11, 12, 13].map(|pod| target.clone().with_remote(Distance::Near, &[pod]).service);
    let flags = [FLAGS, &["--max-memory=64Ki"]].concat();
    let mut site = Site::start(&world.run, "found", &place.node.netns, &flags, &[&first])?;
    let mut streams = Vec::new();
    for pod in place.pods() {
        for family in Family::ON_WIRE {
            streams.push(pod.netns.run(|| greeted(family, target.tcp(family)))??.0);
        }
    }
    Writer::take_over(&mut site, WriteFaults::default())?.forget(
        &world.run,
        [&second, &third],
        &Distance::Near.pod(11),
    )?;
    site.manifests.write(&second)?;
    aged::start(&mut site, &flags)?;
    streams.iter().try_for_each(|stream| bulk(stream, BYTES))
}

fn changes_nothing(world: &mut World) -> Result {
    let place = world.new_place(&Layout::ALL.map(|layout| (layout, 1)))?;
    let target = world.fresh("unchanged").with_remote(Distance::Near, World::WEB);
    let netns = &place.node.netns;
    let rules = "table inet mine {\nchain forward {\ntype filter hook forward priority 0;\n}\n}";
    netns.output("nft", &[rules])?;
    let qdiscs = || netns.output("tc", &["qdisc", "show"]);
    let (before, qdiscs_before) = (Settings::look_at(netns)?, qdiscs()?);

    let mut site = Site::start(&world.run, "unchanged", netns, FLAGS, &[&target.service])?;
    for pod in place.pods() {
        for family in Family::ON_WIRE {
            Clients::begin(pod, &target, family)?.go_on(pod, &target, family)?;
        }
    }
    thread::sleep(Duration::from_millis(100));
    let differences = before.differences(&Settings::look_at(netns)?);
    ensure!(differences.is_empty(), "with the agent: {differences:?}");
    site.agent.stop()?;
    let cleanup = site.agent.cleanup()?;
    ensure!(cleanup.status.success(), "{cleanup:?}");
    let differences = before.differences(&Settings::look_at(netns)?);
    ensure!(differences.is_empty(), "after the cleanup: {differences:?}");
    let qdiscs = qdiscs()?;
    ensure!(qdiscs == qdiscs_before, "qdiscs after the cleanup: {qdiscs}");
    tell(format!(
        "{} settings, the rules and routes of both families, the ruleset of nft",
        before.count()
    ));
    Ok(())
}
