//! A machine has moved to this node with its open connections. Nobody here knows their backends.

use std::{
    io::{ErrorKind, Read as _},
    time::{Duration, Instant},
};

use anyhow::ensure;
use mcs_tests::{
    client::{self, Family, set_option},
    suite::{Suite, tell},
    topology::pod::Layout,
    wait,
};

use crate::{each, world::World};

/// Two round trips take much less, and the timeout of a retransmission is 200 ms.
const SOON: Duration = Duration::from_millis(150);

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::CNI, "a connection that moved to this node ends at once", ends);
}

fn ends(world: &World, layout: Layout, family: Family) -> anyhow::Result<()> {
    let took = world.place.pod(layout)?.netns.run(|| {
        let mut stream = client::tcp(family)?;
        let repair =
            |on: i32| set_option(&stream, libc::SOL_TCP, libc::TCP_REPAIR, &on.to_ne_bytes());
        repair(1)?;
        // In this mode the kernel sends no SYN, as for a connection that a process or a machine brings along.
        client::connect(&stream, world.web.tcp(family))?;
        let start = Instant::now();
        // It sends a window probe when the mode ends.
        repair(0)?;
        let result = stream.read(&mut [0]);
        ensure!(
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
            "{result:?}"
        );
        anyhow::Ok(start.elapsed())
    })??;
    ensure!(took < wait::scaled(SOON), "it took {took:?}");
    tell(format!("reset after {took:?}"));
    Ok(())
}
