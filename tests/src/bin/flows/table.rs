//! Walks over the flow table.

use mcs_agent::core::{
    kernel::{
        flows::{FlowCapacity, FlowPins, FlowTable},
        loader::{LoadOptions, Programs},
    },
    model::Capacity,
};

use crate::{entries::number, prelude::*};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a walk finds every entry once", finds_all);
    suite.case("a walk ends and misses nothing while others write", walks_among_writers);
}

/// Maps without an agent.
pub(crate) struct Maps {
    directory: BpfDirectory,
}

impl Maps {
    /// Makes them.
    pub(crate) fn create(world: &World, role: &str, flows: u32) -> Result<Self> {
        let directory = BpfDirectory::create(&world.run, role)?;
        let maps = Self { directory };
        maps.pins().prepare(maps.directory.path())?;
        maps.load(flows)?.commit()?;
        Ok(maps)
    }

    /// Loads programs that use them, as a starting agent does.
    pub(crate) fn load(&self, flows: u32) -> Result<Programs> {
        load(&self.pins(), flows, SOCKET_SLOT_BITS)
    }

    pub(crate) fn pins(&self) -> Pins {
        Pins::new(self.directory.path())
    }

    pub(crate) fn flow_pins(&self) -> FlowPins {
        FlowPins::in_state(&self.pins().state())
    }

    pub(crate) fn table(&self) -> Result<FlowTable> {
        open(&self.pins().flows())
    }
}

/// Loads programs as an agent does that has the pinned config maps, with tables of these sizes. Nothing is attached.
pub(crate) fn load(pins: &Pins, flows: u32, socket_slot_bits: u32) -> Result<Programs> {
    let small = Capacity { vips: 16, frontends: 16, endpoints: 16, clusters: 4, imports: 16 };
    let options = LoadOptions {
        pins: pins.clone(),
        capacity: pins.capacity()?.unwrap_or(small),
        flows: FlowCapacity(flows),
        features: Features::probe()?,
        only_netns: None,
        log_programs: false,
        release_orphans: false,
        socket_slot_bits,
        settings: Vec::new(),
        needed: Vec::new(),
    };
    Programs::load(&options).context("cannot load the programs")
}

pub(crate) fn open(pin: &Path) -> Result<FlowTable> {
    FlowTable::open(pin).with_context(|| format!("cannot open {}", pin.display()))
}

/// Adds both entries of a flow.
pub(crate) fn add(table: &mut FlowTable, flow: &FlowPair) -> Result {
    for entry in flow.entries() {
        ensure!(table.add(&entry)?, "there is an entry already");
    }
    Ok(())
}

/// The numbers of the flows that have both entries.
pub(crate) fn complete_flows(table: &FlowTable) -> Result<BTreeSet<u32>> {
    let flows = table.flows()?;
    Ok(flows.iter().filter(|flow| flow.entries().count() == 2).map(number).collect())
}

fn finds_all(world: &mut World) -> Result {
    let maps = Maps::create(world, "walk", 4096)?;
    let mut table = maps.table()?;
    assert!(table.is_empty()?);
    assert_eq!(table.flows()?, []);
    for count in [1, 3000] {
        for n in complete_flows(&table)?.len()..count {
            add(&mut table, &flow(UDP, u32::try_from(n)?, SECOND))?;
        }
        let mut entries = 0;
        table.for_each(|_| entries += 1)?;
        assert_eq!(entries, 2 * count);
        assert_eq!(complete_flows(&table)?, (0..u32::try_from(count)?).collect());
        assert!(!table.is_empty()?);
    }
    Ok(())
}

fn walks_among_writers(world: &mut World) -> Result {
    const STAY: u32 = 1000;
    const COME_AND_GO: u32 = 1000;
    let maps = Maps::create(world, "walk-on", 4096)?;
    let mut table = maps.table()?;
    for n in 0..STAY {
        add(&mut table, &flow(UDP, n, SECOND))?;
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<u32> {
            let mut table = maps.table()?;
            let mut writes = 0;
            while !done.load(Ordering::Relaxed) {
                for n in STAY..STAY + COME_AND_GO {
                    let flow = flow(UDP, n, SECOND);
                    for entry in flow.entries() {
                        if !table.add(&entry)? {
                            table.remove(&entry.key)?;
                        }
                        writes += 1;
                    }
                }
            }
            Ok(writes)
        });
        let walks = (0..50).try_for_each(|_| {
            let mut seen = BTreeSet::new();
            let mut again = 0;
            let flows = {
                table.for_each(|entry| again += usize::from(!seen.insert(entry.key)))?;
                complete_flows(&table)?
            };
            ensure!(again == 0, "{again} entries were read twice");
            let there = flows.range(..STAY).count();
            ensure!(there == STAY as usize, "{there} of {STAY} flows were found");
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        let written = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        ensure!(written > 1000, "only {written} writes");
        walks
    })
}
