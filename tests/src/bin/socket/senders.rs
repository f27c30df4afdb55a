//! How many sockets have a backend, as `mcs-agent sockets` says: those that find no slot, and UDP sockets that send without
//! connecting. Who drains a cluster waits for them.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("connected sockets without slot count until they are closed", without_slot);
    suite.case("UDP sockets that send without connecting count until they are closed", count);
}

/// Connections of TCP: more than there are slots.
const STREAMS: usize = 6;
/// Sockets that send to one VIP.
const ONE: usize = 20;
/// Sockets that send to both.
const BOTH: usize = 3;

fn without_slot(world: &mut World) -> Result {
    let former = world.fresh("former").with(&PODS[..1]);
    let latter = world.fresh("latter").with(&PODS[1..2]);
    let services = [&former.service, &latter.service];
    let site = world.start_with_two_slots("without-slot", &[], &services)?;
    let _in_cgroup = site.cgroup.visit()?;
    for family in Family::ALL {
        let sockets = world.at(Place::Pod, || {
            let socket = udp_connected(family, former.udp(family))?;
            connect(&socket, latter.udp(family))?;
            let streams = (0..STREAMS).map(|_| Ok(connected(family, former.tcp(family))?));
            Ok((socket, streams.collect::<Result<Vec<_>>>()?))
        })?;
        // The slot of the UDP socket still has its former connection, to which a failed connect would have left it.
        is_counted(&site, "sockets", "former", 1 + STREAMS)?;
        is_counted(&site, "sockets", "latter", 1)?;
        drop(sockets);
        wait::until("closed sockets that do not count", || {
            is_counted(&site, "sockets", "former", 0)?;
            is_counted(&site, "sockets", "latter", 0)
        })?;
    }
    Ok(())
}

fn count(world: &mut World) -> Result {
    let [dns, log] = ["dns", "log"].map(|name| world.fresh(name).with(&PODS[..1]));
    let site = world.start("senders", &[], &[&dns.service, &log.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let families = Family::ALL.len();
    let sockets = world.at(Place::Pod, || {
        let mut sockets = Vec::new();
        for family in Family::ALL {
            for nth in 0..ONE + BOTH {
                let socket = udp(family)?;
                let to: &[&Target] = if nth < ONE { &[&dns] } else { &[&dns, &log] };
                // Twice: a socket counts once.
                for target in to.iter().chain(to) {
                    socket.send_to(b"who are you", target.udp(family))?;
                    receive(&socket)?;
                }
                sockets.push(socket);
            }
        }
        Ok(sockets)
    })?;
    is_counted(&site, "unconnected", "dns", families * (ONE + BOTH))?;
    is_counted(&site, "unconnected", "log", families * BOTH)?;
    drop(sockets);
    wait::until("closed sockets that do not count", || {
        is_counted(&site, "unconnected", "dns", 0)?;
        is_counted(&site, "unconnected", "log", 0)
    })?;
    // Whoever sends next counts again.
    let socket = world.at(Place::Pod, || {
        let socket = udp(Family::V4)?;
        socket.send_to(b"who are you", dns.udp(Family::V4))?;
        receive(&socket)?;
        Ok(socket)
    })?;
    is_counted(&site, "unconnected", "dns", 1)?;
    drop(socket);
    Ok(())
}

fn is_counted(site: &Site, how: &str, service: &str, expected: usize) -> Result {
    let service = format!("default/{service}");
    let all = process::json_list(&site.agent.command(&["sockets", &service, "-o", "json"])?)?;
    let found: u64 = all.iter().filter_map(|one| one[how].as_u64()).sum();
    ensure!(found == expected as u64, "{service}: {found} {how} instead of {expected}: {all:?}");
    Ok(())
}
