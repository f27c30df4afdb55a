//! The VIPs that unconnected UDP sockets sent to, whatever other sockets do.

use aya::maps::HashMap;
use mcs_common::{Peer, ReverseKey, ReverseValue, maps};
use rustix::net::sockopt::socket_cookie;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("90,000 short sends of others", survives_a_flood);
    each_family(suite, "UDP with four VIPs on one socket", tells_four_apart);
    suite.case("a socket that the version before remembered", was_remembered);
}

/// More than `udp_reverse` has entries.
const SENDS: usize = 90_000;

fn survives_a_flood(world: &mut World) -> Result {
    let world = &*world;
    let mut flooded = world.fresh("flooded");
    let (v4, v6) = nowhere(3);
    // The datagrams go nowhere, after the hook.
    flooded.service = flooded.service.endpoints("nowhere", [v4.into(), v6.into()]);
    world.site.apply(&flooded.service)?;
    world.at(Place::Pod, || {
        let mut victims = Vec::new();
        for family in Family::ALL {
            let socket = udp(family)?;
            socket.send_to(b"who are you", world.web.udp(family))?;
            victims.push((socket, world.web.udp(family)));
        }
        let to = flooded.udp(Family::V4);
        for _ in 0..SENDS {
            let _ = UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", to);
        }
        for (socket, vip) in victims {
            assert_eq!(receive(&socket)?.source, vip);
        }
        Ok(())
    })?;
    world.site.remove(&flooded.service)
}

/// The storage has the latest pairs, and the table the others.
fn tells_four_apart(world: &World, family: Family, place: Place) -> Result {
    let targets: Vec<Target> =
        PODS[..4].iter().map(|pod| world.fresh(&format!("of-{pod}")).with(&[*pod])).collect();
    for target in &targets {
        world.site.apply(&target.service)?;
    }
    world.at(place, || {
        let socket = udp(family)?;
        for _ in 0..3 {
            for target in &targets {
                socket.send_to(b"who are you", target.udp(family))?;
            }
            let replies = targets.iter().map(|_| Ok(receive(&socket)?.source));
            let sources = replies.collect::<Result<BTreeSet<_>>>()?;
            assert_eq!(sources, targets.iter().map(|target| target.udp(family)).collect());
        }
        // The first one, by its own address: no longer as the VIP.
        let direct = family.written(backend(PODS[0], family, UDP.1));
        socket.send_to(b"who are you", direct)?;
        assert_eq!(receive(&socket)?.source, direct);
        Ok(())
    })?;
    targets.iter().try_for_each(|target| world.site.remove(&target.service))
}

/// As after an upgrade: the pair is in the table, and the map of the storage is new.
fn was_remembered(world: &mut World) -> Result {
    let target = world.fresh("remembered").with(&PODS[..1]);
    let mut site = world.start("remembered", &[], &[&target.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let vip = target.udp(Family::V4);
    let socket = world.at(Place::Pod, || {
        let socket = udp(Family::V4)?;
        socket.send_to(b"who are you", vip)?;
        Ok(socket)
    })?;
    site.agent.stop()?;
    let state = site.bpffs.path().join("mcs/state");
    fs::remove_file(state.join(maps::SENT_PAIRS))?;
    let table = MapData::from_pin(state.join(maps::UDP_REVERSE))?;
    let mut table: HashMap<_, ReverseKey, ReverseValue> =
        Map::LruHashMap(table).try_into().context("udp_reverse")?;
    let served = backend(PODS[0], Family::V4, UDP.1);
    let key = ReverseKey {
        cookie: socket_cookie(&socket)?,
        backend: Peer::new(served.ip().into(), served.port()),
    };
    table.insert(key, ReverseValue { vip: Peer::new(vip.ip().into(), vip.port()) }, 0)?;
    site.agent.come_back(&[])?;
    assert_eq!(receive(&socket)?.source, vip);
    // The next datagram brings the pair to the storage.
    socket.send_to(b"who are you", vip)?;
    table.remove(&key)?;
    assert_eq!(receive(&socket)?.source, vip);
    Ok(())
}
