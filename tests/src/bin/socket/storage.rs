//! Sockets whose option memory is used up: the kernel gives them no socket storage.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("sockets without storage", works_without_storage);
}

/// Uses a separate site, because the node remembers that storage failed.
fn works_without_storage(world: &mut World) -> Result {
    let netns = world.netns(Place::OtherPod);
    let site = world.start("starved", &[], &[&world.web.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let _starved = Starved::begin(netns)?;
    for family in Family::ALL {
        world.at(Place::OtherPod, || reaches_and_returns(world, family))?;
    }
    let counters = site.agent.counters()?;
    assert!(counters["storage_failed"] > 0, "storage did not fail: {counters:?}");
    Ok(())
}

fn reaches_and_returns(world: &World, family: Family) -> Result {
    let stream = connected(family, world.web.tcp(family))?;
    identity(&stream)?;
    assert_eq!(stream.peer_addr()?, world.web.tcp(family));

    let vip = world.web.udp(family);
    assert_eq!(ask(&udp(family)?, vip)?.source, vip);

    let socket = udp_connected(family, vip)?;
    assert_eq!(socket.peer_addr()?, vip);
    socket.send(b"who are you")?;
    let reply = receive(&socket)?;
    assert_eq!(reply.source, vip);

    let backend = family.written(reply.backend);
    connect(&socket, backend)?;
    assert_eq!(socket.peer_addr()?, backend, "after a connect to the backend itself");
    Ok(())
}

/// While this lives, sockets of the namespace get no option memory.
struct Starved<'a> {
    netns: &'a Namespace,
    before: String,
}

impl<'a> Starved<'a> {
    const SYSCTL: &'static str = "core/optmem_max";

    fn begin(netns: &'a Namespace) -> Result<Self> {
        let Ok(before) = netns.run(|| std::fs::read_to_string("/proc/sys/net/core/optmem_max"))?
        else {
            return Err(skip("this kernel has one net.core.optmem_max for all namespaces"));
        };
        netns.sysctl(Self::SYSCTL, "1")?;
        Ok(Self { netns, before })
    }
}

impl Drop for Starved<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.netns.sysctl(Self::SYSCTL, &self.before) {
            eprintln!("cannot restore {}: {error}", Self::SYSCTL);
        }
    }
}
