//! Every counter moves by what was done, and no other.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    each_family(suite, "counters of connections", connections);
    each_family(suite, "counters of datagrams", datagrams);
    each_family(suite, "counters of refusals", refusals);
}

/// The counters that `work` changes, with what it adds to each.
fn added(
    world: &World,
    place: Place,
    work: impl FnOnce() -> Result + Send,
) -> Result<BTreeMap<String, u64>> {
    let before = world.site.agent.counters()?;
    world.at(place, work)?;
    let mut after = world.site.agent.counters()?;
    for (name, count) in &mut after {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    after.retain(|_, count| *count > 0);
    Ok(after)
}

fn counts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.map(|(name, count)| (name.to_owned(), count)).into()
}

fn connections(world: &World, family: Family, place: Place) -> Result {
    let added = added(world, place, || {
        connected(family, world.web.tcp(family))?.peer_addr()?;
        let socket = udp_connected(family, world.web.udp(family))?;
        socket.send(b"who are you")?;
        receive_nameless(&socket)?;
        socket.send(b"who are you")?;
        receive(&socket)?;
        Ok(())
    })?;
    let expected =
        counts([("connect_translated", 2), ("peer_reversed", 1), ("receive_reversed", 1)]);
    assert_eq!(added, expected);
    Ok(())
}

fn datagrams(world: &World, family: Family, place: Place) -> Result {
    let added = added(world, place, || {
        let socket = udp(family)?;
        (0..3).try_for_each(|_| ask(&socket, world.web.udp(family)).map(drop))
    })?;
    assert_eq!(added, counts([("send_translated", 3), ("receive_reversed", 3)]));
    Ok(())
}

fn refusals(world: &World, family: Family, place: Place) -> Result {
    let added = added(world, place, || {
        let unknown: SocketAddr = world.web.at(family, UNKNOWN_PORT);
        assert!(connected(family, world.empty.tcp(family)).is_err());
        assert!(udp(family)?.send_to(b"hello", world.empty.udp(family)).is_err());
        assert!(connected(family, unknown).is_err());
        Ok(())
    })?;
    assert_eq!(added, counts([("refused_no_backend", 2), ("refused_unknown_port", 1)]));
    Ok(())
}
