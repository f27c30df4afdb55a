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
    controller::NAMESPACE,
    objects::{namespaced, service},
    silence::{follows_again, imported_service},
    world::{World, slice_of},
};

/// Longer than the Lease of a leader that was killed lasts.
const TAKE_OVER: Duration = Duration::from_secs(40);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("replicas that are killed while exports and endpoints change", meanwhile(killed));
    suite.case("a leader that is stopped for longer than its Lease lasts", meanwhile(stopped));
}

fn killed(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
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
    drop(other);
    world.clusters[1].controller.restart_with(&[])?;
    follows_again(world, &namespace)
}

/// As on a node that hangs: the controller goes on in the middle of its work, and another one has its Lease.
fn stopped(world: &mut World) -> anyhow::Result<()> {
    let (namespace, _) = imported_service(world)?;
    world.clusters[1].controller.restart_with(&["--replica=a"])?;
    let leads = |replica: &str| {
        let lease = namespaced("coordination.k8s.io/v1", "Lease", NAMESPACE, "mcs-controller");
        wait::within(TAKE_OVER, "the Lease to change hands", || {
            let holder = world.second().api().read(&lease)?["spec"]["holderIdentity"].take();
            ensure!(
                holder.as_str().is_some_and(|holder| holder.contains(replica)),
                "{holder} leads"
            );
            Ok(())
        })
    };
    leads("a")?;
    let first =
        Pid::from_raw(world.second().controller.pid()?.try_into()?).context("no process")?;
    let other = world.second().controller.another(&["--replica=b"])?;
    // It has changes to write when it is stopped.
    for number in 1..=3 {
        world.first().api().apply(&slice_of(&namespace, 0, number))?;
    }
    kill_process(first, Signal::STOP)?;
    let taken_over = leads("b").and_then(|()| {
        world.first().api().apply(&slice_of(&namespace, 0, 2))?;
        world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])
    });
    kill_process(first, Signal::CONT)?;
    taken_over?;
    // Whatever it had begun, it has noticed by then that it does not lead.
    sleep(Duration::from_secs(4));
    world.second().wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    leads("b")?;
    drop(other);
    world.clusters[1].controller.restart_with(&[])?;
    follows_again(world, &namespace)
}
