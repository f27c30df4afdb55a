//! A changed `--max-flows` keeps flows.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, ensure};
use mcs_agent::{
    flows::{FlowTable, monotonic_ns},
    loader::Pins,
};
use mcs_tests::{site::Site, suite::Suite};

use crate::{
    World,
    entries::{SECOND, TCP, flow},
    table::{Maps, add, complete_flows, open},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a larger --max-flows keeps every flow", grows);
    suite.case("a smaller --max-flows keeps the flows seen last", shrinks);
    suite.case("flows are found again after a kill while they are moved", was_killed);
}

struct Resized {
    site: Site,
    pins: Pins,
}

impl Resized {
    /// An agent with room for 1024 flows, and this many flows: a higher number was seen later.
    fn start(world: &World, role: &str, flows: u32) -> anyhow::Result<Self> {
        let site = Site::start(&world.run, role, &world.netns, &["--max-flows", "1024"], &[])?;
        let pins = Pins::new(site.bpffs.path());
        let mut table = open(&pins.flows())?;
        let first = monotonic_ns() - SECOND;
        for n in 0..flows {
            add(&mut table, &flow(TCP, n, first + u64::from(n)))?;
        }
        Ok(Self { site, pins })
    }

    fn restart(&mut self, max_flows: &str) -> anyhow::Result<FlowTable> {
        self.site.agent.stop()?;
        self.start_again(max_flows)
    }

    fn start_again(&mut self, max_flows: &str) -> anyhow::Result<FlowTable> {
        self.site.agent.start_again(&["--max-flows", max_flows])?;
        self.site.agent.wait_until_healthy()?;
        ensure!(!self.pins.old_flows().exists(), "the former table is still there");
        let table = open(&self.pins.flows())?;
        ensure!(table.capacity().0.to_string() == max_flows, "{:?}", table.capacity());
        Ok(table)
    }
}

fn grows(world: &mut World) -> anyhow::Result<()> {
    let mut resized = Resized::start(world, "grows", 500)?;
    let expected = complete_flows(&open(&resized.pins.flows())?)?;
    assert_eq!(expected, (0..500).collect());
    let table = resized.restart("4096")?;
    assert_eq!(complete_flows(&table)?, expected);
    // The same again changes nothing.
    let table = resized.restart("4096")?;
    assert_eq!(complete_flows(&table)?, expected);
    Ok(())
}

fn shrinks(world: &mut World) -> anyhow::Result<()> {
    let mut resized = Resized::start(world, "shrinks", 900)?;
    let before = complete_flows(&open(&resized.pins.flows())?)?;
    let table = resized.restart("256")?;
    let kept = complete_flows(&table)?;
    // The kernel keeps some entries free for each CPU, and evicts for them.
    let last: BTreeSet<u32> = before.iter().rev().take(100).copied().collect();
    assert!(kept.is_superset(&last), "{kept:?}");
    assert!(kept.len() <= 256);
    assert!(kept.first().context("none is left")? >= &600, "{kept:?}");
    Ok(())
}

fn was_killed(world: &mut World) -> anyhow::Result<()> {
    let mut resized = Resized::start(world, "killed", 500)?;
    resized.site.agent.kill()?;
    // As if the agent had died after the first step, with a new table that is empty.
    fs::rename(resized.pins.flows(), resized.pins.old_flows())?;
    let table = resized.start_again("2048")?;
    assert_eq!(complete_flows(&table)?, (0..500).collect());
    // As if it had died before the last step, and got another flag then.
    resized.site.agent.kill()?;
    fs::rename(resized.pins.flows(), resized.pins.old_flows())?;
    let table = resized.start_again("1024")?;
    assert_eq!(complete_flows(&table)?, (0..500).collect());
    // As after two kills: an older table is there too.
    resized.site.agent.kill()?;
    let other = Maps::create(world, "before", 256)?;
    fs::hard_link(other.pins().flows(), resized.pins.old_flows())?;
    let table = resized.start_again("4096")?;
    assert_eq!(complete_flows(&table)?, (0..500).collect());
    Ok(())
}
