//! Hundreds of devices come and go beside devices that nobody touches. The kernel lists qdiscs by position: devices that go
//! between two messages of a list make it leave out others.

use crate::prelude::*;

/// Pairs of devices that come before those of the pods.
const PAIRS: usize = 350;
/// How many of them go at a time.
const AT_A_TIME: usize = 25;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for by in Mechanism::BOTH {
        suite.case(
            format!("700 devices come and go, and others stay as they are, by {by}"),
            move |world| {
                can_attach(by)?;
                stay_as_they_are(world, by)
            },
        );
    }
}

fn stay_as_they_are(world: &World, by: Mechanism) -> Result {
    let place = world.new_place(&[(Layout::Routed, 1)])?;
    let node = &place.node.netns;
    let make = |pair| {
        format!(
            "link add gone{pair} type veth peer name gone{pair}p\nlink set gone{pair} up\n\
             link set gone{pair}p up\n"
        )
    };
    node.ip(&(0..PAIRS).map(make).collect::<Vec<_>>().concat())?;
    let ours = place.another_pod(&world.run, Layout::Routed)?;
    let foreign = place.pod_of(&world.run, Layout::Routed, 101)?;
    node.output("tc", &["qdisc", "add", "dev", &foreign.device, "clsact"])?;
    let pins = BpfDirectory::create(&world.run, "owner")?;
    let _owner = Counter::by_filter(node, &foreign.device, Way::Egress, pins.path())?;
    let bench = Bench::on(world, place, by, &[])?;
    let as_they_are = || -> Result {
        let devices = bench.devices()?;
        let device = devices.get(&ours.device).context("the pod's device is not listed")?;
        ensure!(device["attached_by"] == by.to_string(), "{device}");
        let device = devices.get(&foreign.device).context("the foreign device is not listed")?;
        let is_left_alone = device["left_alone"].as_str().is_some_and(|why| why.contains("eBPF"));
        ensure!(is_left_alone && device["programs"] == serde_json::json!({}), "{device}");
        Ok(())
    };
    wait::until("the devices to be looked at", as_they_are)?;

    for first in (0..PAIRS).step_by(AT_A_TIME) {
        let gone: Vec<_> = (first..first + AT_A_TIME)
            .map(|pair| format!("link del gone{pair}\n{}", make(PAIRS + pair)))
            .collect();
        bench.node().ip(&gone.concat())?;
        as_they_are().with_context(|| format!("after {first} pairs"))?;
    }
    reaches(&ours, &bench.target)?;
    let status = bench.site.agent.status()?;
    ensure!(status["report"]["tc"]["repairs"] == 0, "{}", status["report"]["tc"]);
    for line in bench.site.agent.log()?.lines() {
        let is_false = line.contains("another process detached")
            || (line.contains(&foreign.device) && line.contains("attached by"));
        ensure!(!is_false, "{line}");
    }
    tell(format!("{} devices went, and as many came", 2 * PAIRS));
    Ok(())
}
