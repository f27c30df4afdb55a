//! The scenario suite, on the maps that the programs read.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, ensure};
use mcs_agent::core::{
    kernel::{
        dataplane::{FormerFilter, KernelMaps},
        flows::FlowCapacity,
        loader::{Features, LoadOptions, Pins, Programs},
    },
    model::Capacity,
    tables::{MapError, MapReader as _, Maps, Step},
};
use mcs_tests::{
    bpffs::BpfDirectory,
    run::Run,
    scenario::{self, Backing, Effort},
};

/// Fewer than in memory: loading the programs takes its time.
const EFFORT: Effort = Effort {
    seeds: 1,
    stories: 4,
    first: Capacity { vips: 8, frontends: 8, endpoints: 16, clusters: 2, imports: 8 },
};

fn main() -> ExitCode {
    scenario::main(EFFORT, begin, Kernel::new_maps)
}

fn begin() -> anyhow::Result<(Kernel, PathBuf)> {
    let run = Run::begin("mcs-scenario")?;
    let directory = run.directory().to_owned();
    let features = Features::probe()?;
    Ok((Kernel { run, features, nodes: Cell::new(0) }, directory))
}

/// What all plays share.
struct Kernel {
    run: Run,
    features: Features,
    /// The number of plays so far, for names. A play may need second maps while the first still exist.
    nodes: Cell<u32>,
}

impl Kernel {
    fn new_maps(&self, capacity: Capacity) -> anyhow::Result<PinnedMaps> {
        let nth = self.nodes.get();
        self.nodes.set(nth + 1);
        let directory = BpfDirectory::create(&self.run, &format!("node-{nth}"))?;
        let maps = load(directory.path(), capacity, self.features)?;
        Ok(PinnedMaps { directory, capacity, features: self.features, maps })
    }
}

/// The maps of an agent that has loaded its programs, and attached none.
struct PinnedMaps {
    directory: BpfDirectory,
    capacity: Capacity,
    features: Features,
    maps: KernelMaps,
}

impl Backing for PinnedMaps {
    fn reopen(&mut self) -> anyhow::Result<()> {
        self.maps = load(self.directory.path(), self.capacity, self.features)?;
        Ok(())
    }

    /// As the agent does, but without programs to switch.
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()> {
        let options = options(self.directory.path(), capacity, self.features);
        let former = FormerFilter::open(&options.pins.hints());
        let mut programs = Programs::load(&options)?;
        let mut maps = KernelMaps::open(programs.pins().config(), &programs.pins().hints())?;
        maps.prepare_filter(&former)?;
        for step in self.maps.reader().read_all()?.copy(capacity) {
            maps.write(&step)?;
        }
        programs.commit()?;
        (self.maps, self.capacity) = (maps, capacity);
        Ok(())
    }
}

impl Maps for PinnedMaps {
    type Reader = KernelMaps;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        self.maps.write(step)
    }

    fn reader(&self) -> &KernelMaps {
        self.maps.reader()
    }
}

fn load(bpffs: &Path, capacity: Capacity, features: Features) -> anyhow::Result<KernelMaps> {
    let pins = Pins::new(bpffs);
    pins.prepare(bpffs)?;
    let former =
        if pins.has_state() { FormerFilter::open(&pins.hints()) } else { FormerFilter::None };
    let mut programs =
        Programs::load(&options(bpffs, capacity, features)).context("cannot load the programs")?;
    ensure!(!programs.is_staged(), "the pinned maps are not taken over");
    let mut maps = KernelMaps::open(programs.pins().config(), &programs.pins().hints())?;
    maps.prepare_filter(&former)?;
    programs.commit()?;
    Ok(maps)
}

fn options(bpffs: &Path, capacity: Capacity, features: Features) -> LoadOptions {
    LoadOptions {
        pins: Pins::new(bpffs),
        capacity,
        flows: FlowCapacity::default(),
        features,
        only_netns: None,
        needed: Vec::new(),
        log_programs: false,
        release_orphans: false,
        socket_slot_bits: mcs_common::maps::SOCKET_SLOT_BITS,
        settings: Vec::new(),
    }
}
