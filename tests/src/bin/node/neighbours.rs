//! Programs of others at the uplink, beside the guard.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a filter of others that is put at handle 1 leaves the guard", keeps_its_handle);
    // The program of others is attached by tcx.
    suite.case("a program of others before the guard degrades status", |world| {
        can_attach(Mechanism::Tcx)?;
        is_overtaken(world)
    });
    suite.case("a device with a tcx program of others gets no filters", |world| {
        can_attach(Mechanism::Tcx)?;
        gets_no_filters(world)
    });
}

/// Sends to a VIP without a hook that translates, and returns how many packets the guard has dropped.
fn drops(bench: &Bench) -> Result<u64> {
    let before = bench.site.agent.counters()?.get("leak_prevented").copied().unwrap_or_default();
    let to = bench.target.udp(Family::V4);
    bench.node().run(|| {
        // The kernel may report the drop as an error.
        let _ = client::udp(Family::V4)?.send_to(b"leak", to);
        anyhow::Ok(())
    })??;
    let after = bench.site.agent.counters()?.get("leak_prevented").copied().unwrap_or_default();
    Ok(after - before)
}

/// As Cilium does on clsact. Its filter, which accepts every packet, runs before older ones of its priority, so the agent puts
/// the guard in front again.
fn keeps_its_handle(world: &mut World) -> Result {
    let bench = Bench::start(world, Mechanism::Clsact, &[])?;
    let pins = BpfDirectory::create(&world.run, "replacing")?;
    let _counter = Counter::by_first_filter(bench.node(), UPLINK, Way::Egress, pins.path())?;
    wait::until("the guard to be in front", || {
        ensure!(drops(&bench)? == 1, "a packet has left");
        Ok(())
    })?;
    let filters = bench.node().output("tc", &["filter", "show", "dev", UPLINK, "egress"])?;
    ensure!(filters.matches(" handle ").count() == 2, "{filters}");
    wait::until("the repair to be counted", || {
        let tc = bench.site.agent.status()?["report"]["tc"].take();
        ensure!(tc["repairs"] == 1, "{tc}");
        Ok(())
    })
}

fn is_overtaken(world: &World) -> Result {
    let bench = Bench::start(world, Mechanism::Tcx, &[])?;
    let is_told = || -> Result<bool> {
        let degraded = bench.site.agent.status()?["degraded"].to_string();
        Ok(degraded.contains(UPLINK) && degraded.contains("before the guard"))
    };
    ensure!(!is_told()?, "{}", bench.site.agent.status()?["degraded"]);
    let counter = Counter::by_tcx(bench.node(), UPLINK, Way::Egress, Order::First)?;
    wait::until("status to be degraded", || {
        ensure!(is_told()?, "{}", bench.site.agent.status()?["degraded"]);
        Ok(())
    })?;
    drop(counter);
    wait::until("status to be well again", || {
        ensure!(!is_told()?, "{}", bench.site.agent.status()?["degraded"]);
        Ok(())
    })
}

/// With --tc-attach=clsact, as Cilium runs beside it: its tcx program accepts each packet, and no filter runs.
fn gets_no_filters(world: &World) -> Result {
    let bench = Bench::start(world, Mechanism::Clsact, &[])?;
    let is_attached = |by: Mechanism| {
        wait::until("the uplink to be attached", || {
            let uplink = bench.devices()?.remove(UPLINK).context("it is not listed")?;
            ensure!(uplink["attached_by"] == by.to_string(), "{uplink}");
            let filters =
                bench.node().output("tc", &["filter", "show", "dev", UPLINK, "egress"])?;
            let ours = usize::from(by == Mechanism::Clsact);
            ensure!(filters.matches(" handle ").count() == ours, "{filters}");
            ensure!(drops(&bench)? == 1, "a packet has left");
            ensure!(bench.site.agent.is_healthy()?, "{}", bench.site.agent.status()?["degraded"]);
            Ok(())
        })
    };
    is_attached(Mechanism::Clsact)?;
    let counter = Counter::by_tcx(bench.node(), UPLINK, Way::Egress, Order::First)?;
    is_attached(Mechanism::Tcx)?;
    drop(counter);
    is_attached(Mechanism::Clsact)
}
