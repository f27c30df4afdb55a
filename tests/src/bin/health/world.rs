//! What the cases share: a node with an agent that answers, and two remote pods.

use mcs_tests::target::REMOTE;

use crate::prelude::*;

/// The VIP of `web`, which has backends.
pub(crate) const WEB: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The VIP of `empty`, which has none.
pub(crate) const EMPTY: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// The remote pods, as host numbers.
pub(crate) const PODS: [u8; 2] = [11, 12];

/// A node with an agent, which most cases ask.
pub(crate) type World = mcs_tests::world::World<Site>;

/// Creates everything.
pub(crate) fn begin(run: Run) -> Result<World> {
    let world = mcs_tests::world::World::of(run).pods(&PODS).serving(&[(Server::tcp, TCP.1)]);
    let flags = ["--health-address", HEALTH, "--metrics-address", METRICS];
    world.build()?.with_agent(&flags, &[&web(), &empty()])
}

/// Starts another agent in a separate namespace, without waiting for it. It listens on the default
/// addresses.
pub(crate) fn another(
    world: &World,
    role: &str,
    flags: &[&str],
    prepare: impl FnOnce(&Manifests) -> Result,
) -> Result<(Site, Namespace)> {
    let netns = Namespace::create(&world.run, role)?;
    let manifests = Manifests::create(&world.run)?;
    prepare(&manifests)?;
    let flags = [&["--health-address", HEALTH, "--metrics-address", METRICS], flags].concat();
    let site = Launch::new(&world.run, role, &netns).flags(&flags).reads(manifests)?;
    wait::until("an answer", || http::health(&netns, "/livez"))?;
    Ok((site, netns))
}

/// Connects to a VIP from the node, in the cgroup of the agent.
pub(crate) fn connect(world: &World, vip: Ipv4Addr) -> Result<SocketAddr> {
    let _in_cgroup = world.site.cgroup.visit()?;
    world
        .network
        .node
        .netns
        .run(|| identity(&connected(Family::V4, SocketAddr::new(vip.into(), 80))?))?
}

/// What `/metrics` says of one sample.
pub(crate) fn sample(world: &World, name: &str) -> Result<f64> {
    let samples = http::samples(&world.network.node.netns)?;
    samples.get(name).copied().with_context(|| format!("there is no {name} in {samples:?}"))
}

/// Waits until it says that.
pub(crate) fn wait_for_sample(world: &World, name: &str, expected: f64) -> Result {
    wait::until(&format!("{name} to be {expected}"), || {
        let value = sample(world, name)?;
        ensure!((value - expected).abs() < f64::EPSILON, "it is {value}");
        Ok(())
    })
}

/// A service with both remote pods, one in each of two clusters.
pub(crate) fn web() -> Service {
    Service::new("web", [WEB.into()])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("east", [pod_address(PODS[0])])
        .endpoints("west", [pod_address(PODS[1])])
}

/// A service without endpoints.
pub(crate) fn empty() -> Service {
    Service::new("empty", [EMPTY.into()]).port(Protocol::Tcp, 80, 8080)
}

/// Where a remote pod is.
pub(crate) fn pod_address(pod: u8) -> IpAddr {
    REMOTE.v4(pod).into()
}
