//! Two replicas of a controller. One of them writes.

use std::{thread::sleep, time::Duration};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    suite::{Suite, is_full, tell},
    wait,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    clients::meanwhile,
    cluster::addresses,
    controller::{Controller, NAMESPACE},
    objects::{namespaced, service},
    silence::{follows_again, imported_service},
    world::{World, slice_of},
};

/// Longer than the Lease of a leader that was killed lasts.
const TAKE_OVER: Duration = Duration::from_secs(40);

pub(crate) fn cases(suite: &mut Suite<World>) {
    let name =
        "replicas that are killed while exports and endpoints change, and a leader that is stopped";
    suite.case(name, meanwhile(killed));
}

fn killed(world: &mut World) -> anyhow::Result<()> {
    let (namespace, imported) = imported_service(world)?;
    let other_namespace = world.fresh()?;
    let vips = |world: &World| -> anyhow::Result<_> {
        let import = world.second().import(&namespace)?.context("there is no import")?;
        Ok(import["spec"]["ips"].clone())
    };
    let before = vips(world)?;
    world.clusters[1].controller.restart_with(&["--replica=a"])?;
    let mut other = world.clusters[1].controller.another(&["--replica=b"])?;
    let kills = if is_full() { 60 } else { 6 };
    for number in 0..kills {
        world.first().api().apply(&slice_of(&namespace, 0, 1 + number % 3))?;
        if number % 2 == 0 {
            world.first().export(&service(&other_namespace), None)?;
        } else {
            world.first().unexport(&other_namespace)?;
        }
        let one = &mut world.clusters[1].controller;
        let controller = if number % 2 == 0 { one } else { &mut other };
        controller.restart()?;
        sleep(Duration::from_secs(1));
        ensure!(vips(world)? == before, "the address has changed");
    }
    tell(format!("{kills} kills"));
    world.first().api().apply(&slice_of(&namespace, 0, 3))?;
    wait::within(TAKE_OVER, "the endpoints after the last kill", || {
        let slices = world.second().imported_slices(&namespace)?;
        let found: Vec<_> = slices.iter().flat_map(addresses).collect();
        ensure!(found == ["10.77.9.17", "10.77.9.18", "10.77.9.19"], "there are {found:?}");
        Ok(())
    })?;
    ensure!(vips(world)? == before, "the address has changed");
    world.second().wait_for_nothing(&other_namespace)?;
    stopped(world, &namespace, &other)?;
    drop(other);
    world.clusters[1].controller.restart_with(&[])?;
    follows_again(world, &namespace, &imported)
}

/// As on a node that hangs: the leader goes on in the middle of its work, and another one has its Lease.
fn stopped(world: &World, namespace: &str, other: &Controller) -> anyhow::Result<()> {
    let lease = namespaced("coordination.k8s.io/v1", "Lease", NAMESPACE, "mcs-controller");
    let holder = || {
        let mut lease = world.second().api().read(&lease)?;
        anyhow::Ok(lease["spec"]["holderIdentity"].take().as_str().context("nobody")?.to_owned())
    };
    let former = holder()?;
    let controller = if former == "a" { &world.second().controller } else { other };
    let leader = Pid::from_raw(controller.pid()?.try_into()?).context("no process")?;
    // It has changes to write when it is stopped.
    for number in 1..=3 {
        world.first().api().apply(&slice_of(namespace, 0, number))?;
    }
    kill_process(leader, Signal::STOP)?;
    let taken_over = wait::within(TAKE_OVER, "the Lease to change hands", || {
        let holder = holder()?;
        ensure!(holder != former, "{holder} leads");
        Ok(holder)
    });
    let taken_over = taken_over.and_then(|successor| {
        world.first().api().apply(&slice_of(namespace, 0, 2))?;
        world.second().wait_for_addresses(namespace, &["10.77.9.17", "10.77.9.18"])?;
        Ok(successor)
    });
    kill_process(leader, Signal::CONT)?;
    let successor = taken_over?;
    // Whatever it had begun, it has noticed by then that it does not lead.
    sleep(Duration::from_secs(4));
    world.second().wait_for_addresses(namespace, &["10.77.9.17", "10.77.9.18"])?;
    ensure!(holder()? == successor, "the former leader has it again");
    Ok(())
}
