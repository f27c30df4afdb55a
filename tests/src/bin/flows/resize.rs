//! A changed `--max-flows` keeps flows.

use aya::maps::MapInfo;
use mcs_agent::core::kernel::flows::{FlowTable, monotonic_ns};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a larger --max-flows keeps every flow", grows);
    suite.case("a smaller --max-flows keeps the flows seen last", shrinks);
    suite.case("a start of another --max-flows that ends after its load takes no flow", ends_early);
    suite.case("flows are found again after kills while they are moved", was_killed);
    suite.case("of two entries for one tuple, the one seen later stays", keeps_later);
}

struct Resized {
    site: Site,
    pins: Pins,
}

impl Resized {
    /// An agent with room for 1024 flows, and this many flows: a higher number was seen later.
    fn start(world: &World, role: &str, flows: u32) -> Result<Self> {
        let site = Site::start(&world.run, role, &world.netns, &["--max-flows", "1024"], &[])?;
        let pins = Pins::new(site.bpffs.path());
        let mut table = open(&pins.flows())?;
        let first = monotonic_ns() - SECOND;
        for n in 0..flows {
            add(&mut table, &flow(TCP, n, first + u64::from(n)))?;
        }
        Ok(Self { site, pins })
    }

    fn restart(&mut self, max_flows: &str) -> Result<FlowTable> {
        self.site.agent.stop()?;
        self.start_again(max_flows)
    }

    fn start_again(&mut self, max_flows: &str) -> Result<FlowTable> {
        self.site.agent.come_back(&["--max-flows", max_flows])?;
        ensure!(self.pins.flow_tables()? == [self.pins.flows()], "a former table is still there");
        let table = open(&self.pins.flows())?;
        ensure!(table.capacity().0.to_string() == max_flows, "{:?}", table.capacity());
        Ok(table)
    }
}

fn grows(world: &mut World) -> Result {
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

fn shrinks(world: &mut World) -> Result {
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

/// Where a start pins a table beside others.
fn beside(pins: &Pins, place: u32) -> PathBuf {
    pins.state().join(format!("flows-new{place}"))
}

/// As an upgrade with another size that fails, and its rollback.
fn ends_early(world: &mut World) -> Result {
    let mut resized = Resized::start(world, "early", 500)?;
    let live = MapInfo::from_pin(resized.pins.flows())?.id();
    let mut size = "1024";
    for (failed, next) in [(4096, "1024"), (4096, "4096"), (1024, "2048"), (512, "1024")] {
        resized.site.agent.kill()?;
        // Twice: nor does the second one make room for itself. One of the size that is there makes no table.
        let tables = if failed.to_string() == size { 1 } else { 2 };
        for _ in 0..2 {
            drop(load(&resized.pins, failed, SOCKET_SLOT_BITS)?);
            ensure!(resized.pins.flow_tables()?.len() == tables, "after a start with {failed}");
        }
        let table = resized.start_again(next)?;
        let when = format!("{failed} failed beside {size}, then {next}");
        ensure!(complete_flows(&table)? == (0..500).collect(), "{when}: flows are gone");
        size = next;
        if failed == 4096 && next == "1024" {
            let now = MapInfo::from_pin(resized.pins.flows())?.id();
            ensure!(now == live, "the table that programs used has lost its pin");
        }
    }
    Ok(())
}

/// Programs may have begun flows in every table.
fn was_killed(world: &mut World) -> Result {
    for next in ["1024", "4096", "2048", "8192"] {
        let mut resized = Resized::start(world, &format!("killed-{next}"), 200)?;
        resized.site.agent.kill()?;
        for (place, size, flows) in [(1, 4096, 200..400), (2, 2048, 400..500)] {
            drop(load(&resized.pins, size, SOCKET_SLOT_BITS)?);
            let mut table = open(&beside(&resized.pins, place))?;
            for n in flows {
                add(&mut table, &flow(TCP, n, monotonic_ns()))?;
            }
        }
        let table = resized.start_again(next)?;
        ensure!(complete_flows(&table)? == (0..500).collect(), "with {next} flows are gone");
    }
    // As if the pin had been removed.
    let mut resized = Resized::start(world, "unpinned", 500)?;
    resized.site.agent.kill()?;
    fs::rename(resized.pins.flows(), beside(&resized.pins, 1))?;
    let table = resized.start_again("2048")?;
    assert_eq!(complete_flows(&table)?, (0..500).collect());
    Ok(())
}

fn keeps_later(world: &mut World) -> Result {
    const LATER: u64 = 30 * SECOND;
    let (one, other) = (Maps::create(world, "one", 1024)?, Maps::create(world, "other", 256)?);
    let (mut one, mut other) = (one.table()?, other.table()?);
    for (n, [in_one, in_other]) in (0..).zip([[SECOND, LATER], [LATER, SECOND]]) {
        add(&mut one, &flow(TCP, n, in_one))?;
        add(&mut other, &flow(TCP, n, in_other))?;
    }
    add(&mut other, &flow(TCP, 2, LATER))?;
    let copied = one.copy_from(&[other], 0)?;
    assert_eq!((copied.copied, copied.left_out), (2, 0));
    let flows = one.flows()?;
    assert_eq!(flows.len(), 3);
    for entry in flows.iter().flat_map(FlowPair::entries) {
        ensure!(entry.flow.last_seen_ns == LATER, "{entry:?}");
    }
    Ok(())
}
