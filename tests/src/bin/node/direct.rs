//! Traffic to addresses that are no VIP is not changed.

use anyhow::ensure;
use mcs_tests::{
    client::{self, Family, ask},
    suite::Suite,
    topology::{backbone::Distance, pod::Layout},
};

use crate::{
    each,
    exchange::{ask_until_known, bulk, greeted},
    world::{TCP, UDP, World, backends},
};

const BYTES: usize = 2_000_000;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "direct traffic, no VIP", passes);
}

/// TCP and UDP to remote pods at both distances, and to the other pod of the node.
fn passes(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let pod = world.place.pod(layout)?;
    let peer = world.place.peer(layout)?;
    let counted = world.site.agent.counters()?;
    let remote = |port| Distance::ALL.map(|distance| backends(distance, &[16], family, port));
    pod.netns.run(|| {
        let local = family.address(peer.v4(), peer.v6(), TCP.1);
        for to in remote(TCP.1).into_iter().flatten().chain([local]) {
            let (stream, identity) = greeted(family, to)?;
            ensure!(identity == to, "{to} says that it is {identity}");
            bulk(&stream, BYTES)?;
        }
        let local = family.address(peer.v4(), peer.v6(), UDP.1);
        for to in remote(UDP.1).into_iter().flatten().chain([local]) {
            let socket = client::udp(family)?;
            let reply = ask(&socket, to)?;
            ensure!((reply.backend, reply.source) == (to, to), "{to} answers as {reply:?}");
            ask_until_known(&socket, to, 4000)?;
        }
        anyhow::Ok(())
    })??;
    ensure!(world.site.agent.counters()? == counted, "something was counted");
    Ok(())
}
