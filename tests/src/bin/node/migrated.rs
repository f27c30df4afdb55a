//! A machine has moved to this node with its open connections. Nobody here knows their backends.

use mcs_tests::client::set_option;

use crate::prelude::*;

/// Two round trips take much less, and the timeout of a retransmission is 200 ms.
const SOON: Duration = Duration::from_millis(150);

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "a connection that moved to this node ends at once", ends);
    suite.case("a connection that moved to this node, before a program that accepts", is_silent);
}

fn ends(world: &World, layout: Layout, family: Family) -> Result {
    let pod = world.place.pod(layout)?;
    let (result, took) = pod.netns.run(|| moved(family, world.web.tcp(family)))??;
    ensure!(
        result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{result:?}"
    );
    ensure!(took < wait::scaled(SOON), "it took {took:?}");
    tell(format!("reset after {took:?}"));
    Ok(())
}

/// What a connection reads that a process or a machine brings along, and after how long.
fn moved(family: Family, vip: SocketAddr) -> Result<(io::Result<usize>, Duration)> {
    let mut stream = client::tcp(family)?;
    let repair = |on: i32| set_option(&stream, libc::SOL_TCP, libc::TCP_REPAIR, &on.to_ne_bytes());
    repair(1)?;
    // In this mode the kernel sends no SYN.
    client::connect(&stream, vip)?;
    let start = Instant::now();
    // It sends a window probe when the mode ends.
    repair(0)?;
    let result = stream.read(&mut [0]);
    Ok((result, start.elapsed()))
}

/// The program takes away the mark that asks the uplink for a reset.
fn is_silent(world: &mut World) -> Result {
    can_attach(Mechanism::Tcx)?;
    let bench = Bench::start(world, Mechanism::Tcx, &["--tc=on"])?;
    let _accepts = Counter::by_accepting(bench.node(), FIRST, Way::Ingress)?;
    let vip = bench.target.tcp(Family::V4);
    let (result, _) = bench.client()?.netns.run(|| moved(Family::V4, vip))??;
    ensure!(
        result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
        "{result:?}"
    );
    let counters = bench.site.agent.counters()?;
    ensure!(counters["packet_passed"] > 0 && counters["leak_prevented"] > 0, "{counters:?}");
    Ok(())
}
