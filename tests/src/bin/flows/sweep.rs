//! Sweeps remove flows whose timeout has passed.

use mcs_agent::core::kernel::flows::{EvictionRecord, FlowSweep, FlowsUsedFlag};
use mcs_common::{Flow, FlowsUsed};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a sweep forgets what is over, and nothing else", forgets);
    suite.case("a sweep leaves a flow that had a packet since it was read", looks_again);
    suite.case("packets to pods are looked up while there is a flow", gate_follows);
    suite.case("a flow that begins meanwhile keeps the gate open", gate_stays_open);
    suite.case("a full table is swept in time", full_table);
    suite.case("a sweep corrects how many entries there may be", counts);
    suite.case("from a new table nothing was evicted", new_table);
    suite.case("a table that is made anew may lack flows", remade_table);
}

fn forgets(world: &mut World) -> Result {
    let maps = Maps::create(world, "sweep", 1024)?;
    let mut table = maps.table()?;
    // Replied UDP is over after 120 s, established TCP after 7440 s.
    for (n, protocol, last_seen) in [(1, UDP, 100), (2, UDP, 200), (3, TCP, 100), (4, UDP, 100)] {
        add(&mut table, &flow(protocol, n, last_seen * SECOND))?;
    }
    // Of the last one the client's entry is left: unreplied UDP, whichever entry it is.
    table.remove(&flow(UDP, 4, 0).translated().reversed())?;
    let mut sweep = FlowSweep::open(&maps.flow_pins())?;

    let usage = sweep.sweep(129 * SECOND, false)?.usage;
    assert_eq!((usage.entries, usage.halves, usage.forgotten), (7, 1, 0));
    assert_eq!((usage.max, usage.max_entries), (1024, 2048));
    let usage = sweep.sweep(221 * SECOND, false)?.usage;
    assert_eq!((usage.entries, usage.halves, usage.forgotten), (4, 0, 2));
    assert_eq!(complete_flows(&table)?, [2, 3].into());
    assert_eq!(usage.to_string(), "2 of 1024 (TCP: 1 established; UDP: 1 replied), 2 forgotten");
    let usage = sweep.sweep(7641 * SECOND, false)?.usage;
    assert_eq!((usage.entries, usage.forgotten), (0, 4));
    assert!(table.is_empty()?);
    Ok(())
}

fn looks_again(world: &mut World) -> Result {
    let maps = Maps::create(world, "again", 1024)?;
    let mut table = maps.table()?;
    let old = flow(UDP, 1, 0);
    for direction in 0..2 {
        let now = 1000 * SECOND;
        let mut entries: Vec<FlowEntry> = old.entries().collect();
        entries[direction].flow.last_seen_ns = now;
        for entry in &entries {
            table.add(entry)?;
        }
        assert!(old.is_due(now));
        assert_eq!(table.forget(&old, due(now))?, 0);
        assert_eq!(complete_flows(&table)?, [1].into());
        let later = now + 120 * SECOND + Flow::TOUCH_NS;
        assert_eq!(table.forget(&old, due(later))?, 2);
        assert!(table.is_empty()?);
        assert_eq!(table.forget(&old, due(later))?, 0);
    }
    Ok(())
}

fn gate_follows(world: &mut World) -> Result {
    let maps = Maps::create(world, "gate", 1024)?;
    let pins = maps.flow_pins();
    let gate = FlowsUsedFlag::open(&pins)?;
    let mut table = maps.table()?;
    assert_eq!(gate.get(), FlowsUsed::NO);
    // There are flows, and the mark says there are none: a damaged pin.
    add(&mut table, &flow(UDP, 1, 0))?;
    let mut sweep = FlowSweep::open(&pins)?;
    assert_eq!(gate.get(), FlowsUsed::YES);
    sweep.sweep(SECOND, false)?;
    assert_eq!(gate.get(), FlowsUsed::YES);
    sweep.sweep(1000 * SECOND, false)?;
    assert_eq!(gate.get(), FlowsUsed::NO);
    // Without the mark, a sweep does not walk the table.
    add(&mut table, &flow(UDP, 1, 0))?;
    assert_eq!(sweep.sweep(2000 * SECOND, false)?.usage.entries, 0);
    assert_eq!(complete_flows(&table)?, [1].into());
    Ok(())
}

fn gate_stays_open(world: &mut World) -> Result {
    let maps = Maps::create(world, "gate-open", 1024)?;
    let pins = maps.flow_pins();
    let mut gate = FlowsUsedFlag::open(&pins)?;
    let mut program = FlowsUsedFlag::open(&pins)?;
    gate.used()?;
    // A program began before the look, and made its flow while the agent waited for it.
    assert!(!gate.end(|| Ok(false))?);
    assert_eq!(gate.get(), FlowsUsed::YES);
    // A program begins after the second look: its flow may be there or not yet.
    let look = || {
        assert_eq!(program.get(), FlowsUsed::ENDING);
        program.used()?;
        Ok(true)
    };
    assert!(!gate.end(look)?);
    assert_eq!(gate.get(), FlowsUsed::YES);
    // A failed check.
    assert!(gate.end(|| Err(std::io::ErrorKind::Other.into())).is_err());
    assert_eq!(gate.get(), FlowsUsed::YES);
    assert!(gate.end(|| Ok(true))?);
    assert_eq!(gate.get(), FlowsUsed::NO);
    Ok(())
}

/// The default size. What is forgotten takes some system calls a flow, what stays does not.
fn full_table(world: &mut World) -> Result {
    const FLOWS: u32 = 65_536;
    let maps = Maps::create(world, "full", FLOWS)?;
    let mut table = maps.table()?;
    // Every second flow is over at 200 s.
    for n in 0..FLOWS {
        let last_seen = if n.is_multiple_of(2) { 10 } else { 100 };
        let flow = flow(UDP, n, last_seen * SECOND);
        flow.entries().try_for_each(|entry| table.add(&entry).map(drop))?;
    }
    let mut sweep = FlowSweep::open(&maps.flow_pins())?;
    let counting = sweep.sweep(101 * SECOND, false)?.usage;
    // On its way to the last free entry of a CPU, the kernel evicts some early.
    ensure!(counting.entries > 130_000, "{} entries are left", counting.entries);
    let forgetting = sweep.sweep(200 * SECOND, false)?.usage;
    ensure!(forgetting.forgotten > 32_000, "{} flows forgotten", forgetting.forgotten);
    tell(format!(
        "{} entries counted in {} ms; {} flows forgotten in {} ms",
        counting.entries,
        counting.sweep_micros / 1000,
        forgetting.forgotten,
        forgetting.sweep_micros / 1000
    ));
    // It runs on a separate thread, so it only has to end before the next sweep.
    let limit = u64::try_from(Duration::from_secs(10).as_micros())?;
    assert!(counting.sweep_micros < limit && forgetting.sweep_micros < limit);
    Ok(())
}

/// The programs count what they add, and a sweep corrects the count.
fn counts(world: &mut World) -> Result {
    let maps = Maps::create(world, "counted", 1024)?;
    let pins = maps.flow_pins();
    let mut table = maps.table()?;
    add(&mut table, &flow(TCP, 1, 0))?;
    // A record that is new, beside a table that is not: flows may have been evicted.
    EvictionRecord::prepare(&pins)?;
    let mut record = EvictionRecord::open(&pins)?;
    let found = record.get();
    assert_eq!(found.entries, 2);
    assert!(found.limit > 0 && found.limit < 2048, "{found:?}");
    assert_ne!(found.latest_ns, 0);
    // Again, with the same table: nothing has changed.
    EvictionRecord::prepare(&pins)?;
    assert_eq!(record.get(), found);
    // Programs have added three flows, one of them during a sweep that has found one flow.
    record.counted(6, 2)?;
    assert_eq!(record.get().entries, 6);
    record.counted(2, 4)?;
    assert_eq!(record.get().entries, 4);
    let mut sweep = FlowSweep::open(&pins)?;
    sweep.sweep(SECOND, false)?;
    assert_eq!(record.get().entries, 2);
    sweep.sweep(8000 * SECOND, false)?;
    assert_eq!(record.get().entries, 0);
    Ok(())
}

/// Nothing can have been evicted from a new table.
fn new_table(world: &mut World) -> Result {
    let maps = Maps::create(world, "new", 1024)?;
    let pins = maps.flow_pins();
    EvictionRecord::prepare(&pins)?;
    let found = EvictionRecord::open(&pins)?.get();
    assert_eq!((found.entries, found.latest_ns), (0, 0));
    assert!(found.limit > 0, "{found:?}");
    Ok(())
}

/// A table of another shape is made anew, with the same number of entries: the record beside it is not new.
fn remade_table(world: &mut World) -> Result {
    let maps = Maps::create(world, "remade", 1024)?;
    let pins = maps.flow_pins();
    EvictionRecord::prepare(&pins)?;
    FlowsUsedFlag::open(&pins)?.used()?;
    EvictionRecord::prepare(&pins)?;
    assert_ne!(EvictionRecord::open(&pins)?.get().latest_ns, 0);
    Ok(())
}

/// Whether a flow is over at this time.
fn due(now_ns: u64) -> impl Fn(&FlowPair) -> bool {
    move |flow| flow.is_due(now_ns)
}
