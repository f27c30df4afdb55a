//! A long run: memory, descriptors and threads of the agent do not grow.

use crate::prelude::*;

/// Objects that change at a time.
const SERVICES: usize = 100;
/// Memory that may come and go, in KiB.
const SLACK: u64 = 16 << 10;
/// What blocks at a time: one reads manifests, one is the self-test, one sweeps flows.
const BLOCKING: usize = 3;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "memory, descriptors, threads and eBPF objects stay flat over many changes, under load",
        stays_flat,
    );
}

fn stays_flat(world: &mut World) -> Result {
    let changes = if is_full() { 100_000 } else { 10_000 };
    let (target, mut site, _in_cgroup) = world.stage("flat", &[])?;
    let pid = site.agent.pid();
    // The first tenth fills what is kept for later.
    let mut turns = 0..changes / SERVICES;
    let go = |turns: &mut dyn Iterator<Item = usize>| -> Result {
        for turn in turns {
            (0..SERVICES).try_for_each(|number| site.manifests.write(&service(turn, number)))?;
            site.agent.wait_for(&service(turn, SERVICES - 1))?;
        }
        Ok(())
    };
    Load::of(&target).during(&world.network.pod, || {
        go(&mut turns.by_ref().take(changes / SERVICES / 10))?;
        let before = Footprint::of(pid)?;
        go(&mut turns)?;
        // Some threads last as long as what they do: parsing a manifest, for one.
        let after = wait::until("threads to end", || {
            let after = Footprint::of(pid)?;
            ensure!(after.threads <= before.threads, "threads leak: {after}, before {before}");
            ensure!(after.pool <= BLOCKING, "threads of the pool leak: {after}, before {before}");
            Ok(after)
        })?;
        tell(format!("after {} changes: {before}", changes / 10));
        tell(format!("after {changes}: {after}"));
        ensure!(after.descriptors <= before.descriptors, "descriptors leak");
        ensure!(after.objects == before.objects, "eBPF objects leak");
        ensure!(after.maps <= before.maps, "maps leak");
        ensure!(after.resident <= before.resident + SLACK, "memory leaks");
        Ok(())
    })?;
    site.agent.stop()
}

/// A service with other endpoints each turn.
fn service(turn: usize, number: usize) -> Service {
    let byte = |number: usize| u8::try_from(number % 250).unwrap_or(0);
    let ips = (0..4).map(|host| [10, 81, byte(turn), byte(number + host)].into());
    Service::new(format!("changing-{number}"), [[10, 91, 0, byte(number)].into()])
        .port(Protocol::Tcp, 80, 80)
        .endpoints("remote", ips)
}
