//! Checks the packets that the virtual machines of the other cases have received.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for layout in [Layout::Tap, Layout::Tun] {
        suite.case(format!("every checksum was right, {layout}"), move |world| {
            were_right(world, layout)
        });
    }
}

/// Finished or not, in refusals and in what ICMP errors quote.
fn were_right(world: &World, layout: Layout) -> Result {
    let pod = world.place.pod(layout)?;
    // So that packets were checked even if no other case has run.
    for family in mcs_tests::client::Family::ON_WIRE {
        pod.netns.run(|| {
            let (stream, _) = crate::exchange::greeted(family, world.web.tcp(family))?;
            crate::exchange::bulk(&stream, 1_000_000)
        })??;
    }
    let mut faults = Vec::new();
    for pod in [pod, world.place.peer(layout)?] {
        let tally = pod.wire().context("there is no wire")?.tally();
        tell(format!(
            "{}: {} packets with a checksum to finish, {} more to be cut, {} finished",
            pod.device, tally.unfinished, tally.uncut, tally.finished
        ));
        faults.extend(tally.faults);
    }
    let tally = pod.wire().context("there is no wire")?.tally();
    ensure!(tally.unfinished > 0 && tally.uncut > 0, "nothing was left to the device");
    ensure!(faults.is_empty(), "{} packets were wrong, the first: {}", faults.len(), faults[0]);
    Ok(())
}
