//! Slots that no program frees, and the agent that does.

use mcs_tests::agent::CAPABILITY_FOR_STALE_UDP;

use super::{STRANGER, ensure_free};
use crate::{prelude::*, tcp::mptcp};

/// The agent finds a lost slot within this time: it looks every five seconds, twice, or twelve times before Linux 5.14, which
/// does not tell a namespace's cookie.
const LOST: Duration = Duration::from_secs(90);

/// An agent with two slots that may look for lost ones.
fn freeing(world: &World, role: &str) -> Result<(Site, Target)> {
    let target = world.fresh(role).with(World::WEB);
    let (run, netns) = (&world.run, &world.network.node.netns);
    let services = [&target.service];
    let mut site =
        Launch::new(run, role, netns).capabilities(&[CAPABILITY_FOR_STALE_UDP]).knows(&services)?;
    World::give_two_slots(&mut site, &[])?;
    Ok((site, target))
}

/// The kernel calls no program when a socket is disconnected, and at its close only the last peer is known.
pub(super) fn goes_elsewhere(world: &mut World) -> Result {
    let (site, target) = freeing(world, "elsewhere")?;
    let _in_cgroup = site.cgroup.visit()?;
    let to_storage = || Ok::<_, anyhow::Error>(site.agent.counters()?["slot_unavailable"]);
    let shows_vip = || {
        world.at(Place::Pod, || {
            let (stream, vip) = (tcp(Family::V4)?, target.tcp(Family::V4));
            connect(&stream, vip)?;
            let shown = stream.peer_addr()?;
            ensure!(shown == vip, "{shown} instead of {vip}");
            Ok(())
        })
    };
    world.at(Place::Pod, || {
        // As many as there are slots.
        for family in [Family::V4, Family::V6] {
            let stream = tcp(family)?;
            connect(&stream, target.tcp(family))?;
            disconnect(&stream)?;
            let stranger = backend(STRANGER, family, TCP.1);
            connect(&stream, stranger)?;
            let shown = stream.peer_addr()?;
            ensure!(shown == stranger, "{shown} instead of {stranger}");
        }
        Ok(())
    })?;
    ensure!(ensure_free(&site.bpffs).is_err(), "the sockets have left no slot");
    ensure!(to_storage()? == 0, "a socket found no slot");
    shows_vip()?;
    ensure!(to_storage()? == 1, "there is a slot for another socket");
    wait::within(LOST, "all slots to be free", || ensure_free(&site.bpffs))?;
    shows_vip()?;
    ensure!(to_storage()? == 1, "there is no slot after the agent has freed them");
    Ok(())
}

/// Multipath TCP connects by sockets of the kernel, which no hook releases.
pub(super) fn frees(world: &mut World) -> Result {
    let (site, target) = freeing(world, "multipath")?;
    let _in_cgroup = site.cgroup.visit()?;
    world.at(Place::Pod, || {
        Family::ALL.into_iter().try_for_each(|family| {
            let stream = mptcp(family)?;
            connect(&stream, target.tcp(family))?;
            identity(&stream).map(drop)
        })
    })?;
    wait::within(LOST, "all slots to be free", || ensure_free(&site.bpffs))
}
