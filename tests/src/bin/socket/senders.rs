//! How many UDP sockets send to a backend without connecting, as `mcs-agent sockets` says: who drains a cluster waits for them.

use anyhow::ensure;
use mcs_tests::{process, site::Site, suite::Suite, wait};

use crate::{
    client::{Family, receive, udp},
    world::{PODS, Place, Target, World},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("UDP sockets that send without connecting count until they are closed", count);
}

/// Sockets that send to one VIP.
const ONE: usize = 20;
/// Sockets that send to both.
const BOTH: usize = 3;

fn count(world: &mut World) -> anyhow::Result<()> {
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
    is_counted(&site, "dns", families * (ONE + BOTH))?;
    is_counted(&site, "log", families * BOTH)?;
    drop(sockets);
    wait::until("closed sockets that do not count", || {
        is_counted(&site, "dns", 0)?;
        is_counted(&site, "log", 0)
    })?;
    // Whoever sends next counts again.
    let socket = world.at(Place::Pod, || {
        let socket = udp(Family::V4)?;
        socket.send_to(b"who are you", dns.udp(Family::V4))?;
        receive(&socket)?;
        Ok(socket)
    })?;
    is_counted(&site, "dns", 1)?;
    drop(socket);
    Ok(())
}

fn is_counted(site: &Site, service: &str, expected: usize) -> anyhow::Result<()> {
    let service = format!("default/{service}");
    let all = process::json_list(&site.agent.command(&["sockets", &service, "-o", "json"])?)?;
    let found: u64 = all.iter().filter_map(|one| one["unconnected"].as_u64()).sum();
    ensure!(found == expected as u64, "{service}: {found} senders instead of {expected}: {all:?}");
    Ok(())
}
