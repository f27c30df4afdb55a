//! A kernel in memory, for unit tests: it notes what the agent does, in order, and fails on demand.

#![expect(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "the signatures are those of the types for the kernel"
)]

use std::{
    collections::BTreeMap,
    fs::File,
    future, io, mem,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcs_common::Address;

use crate::{
    dataplane::{Figures, FilterDensity, FormerFilter, Run},
    flows::{FlowPins, SweepResult},
    loader::{
        CgroupRoot, Classifiers, DetachOutcome, Hook, LoadError, LoadOptions, MapPins, Pins,
        Repair, TcError, Watching,
    },
    model::Capacity,
    reconcile::{
        MapContents, MapError, Maps, Realized, Step,
        testing::{MemoryMaps, can_fail},
    },
};

/// The kernels of all tests, by the directory of their pins.
static KERNELS: Mutex<BTreeMap<PathBuf, Arc<Kernel>>> = Mutex::new(BTreeMap::new());

/// The kernel of one test.
#[derive(Default)]
pub(in crate::agent) struct Kernel(Mutex<State>);

#[derive(Default)]
struct State {
    done: Vec<String>,
    failing: Vec<&'static str>,
    damaged: Vec<Repair>,
    loaded: u32,
    attached: Option<u32>,
    /// The capacity of the programs that were loaded last.
    capacity: Capacity,
    /// The programs for devices that their load had to make.
    needed: Vec<&'static str>,
    pinned: Option<PinnedMaps>,
    run: Option<Run>,
    filter: FilterDensity,
}

/// The config maps that are pinned.
#[derive(Clone)]
pub(in crate::agent) struct PinnedMaps {
    pub(in crate::agent) capacity: Capacity,
    /// `None`: they cannot be read.
    pub(in crate::agent) contents: Option<MapContents>,
}

impl Kernel {
    /// The kernel of the test that has this pin.
    pub(in crate::agent) fn of(pin: &Path) -> Arc<Self> {
        let root = pin.ancestors().find(|path| path.ends_with("mcs")).expect("a pin");
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(kernels.entry(root.to_owned()).or_default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done since the last call.
    pub(in crate::agent) fn take_done(&self) -> Vec<String> {
        mem::take(&mut self.state().done)
    }

    /// The programs that are attached, by the number of their load.
    pub(in crate::agent) fn attached(&self) -> Option<u32> {
        self.state().attached
    }

    /// The programs for devices that the last load had to make.
    pub(in crate::agent) fn needed(&self) -> Vec<&'static str> {
        self.state().needed.clone()
    }

    /// Lets this fail the next time.
    pub(in crate::agent) fn fail(&self, what: &'static str) {
        self.state().failing.push(what);
    }

    /// Lets the next check of hooks find and repair this.
    pub(in crate::agent) fn damage(&self, repair: Repair) {
        self.state().damaged.push(repair);
    }

    /// Pins maps as an earlier agent leaves them.
    pub(in crate::agent) fn pin(&self, maps: PinnedMaps) {
        self.state().pinned = Some(maps);
    }

    /// Gives the address filter buckets, all of them set.
    pub(in crate::agent) fn fill_filter(&self, buckets: u32) {
        self.state().filter = FilterDensity { buckets, set: buckets, backends: buckets };
    }

    fn does(&self, what: impl Into<String>) -> io::Result<()> {
        let what = what.into();
        self.state().done.push(what.clone());
        self.may(&what)
    }

    fn may(&self, what: &str) -> io::Result<()> {
        let failing = &mut self.state().failing;
        let Some(place) = failing.iter().position(|failing| *failing == what) else {
            return Ok(());
        };
        failing.remove(place);
        Err(io::Error::other("the test wants it"))
    }

    fn loads(&self, action: &'static str) -> Result<(), LoadError> {
        let error = |source| LoadError::Pin { action, path: PathBuf::new(), source };
        self.does(action).map_err(error)
    }
}

/// The programs that were loaded together.
pub(in crate::agent) struct Programs {
    kernel: Arc<Kernel>,
    number: u32,
    capacity: Capacity,
    is_staged: bool,
    pins: MapPins,
    watching: Watching,
}

impl Programs {
    pub(in crate::agent) fn load(options: &LoadOptions) -> Result<Self, LoadError> {
        let (kernel, capacity) = (Kernel::of(options.pins.root()), options.capacity);
        kernel.loads(if options.trace { "load traced" } else { "load" })?;
        let mut state = kernel.state();
        state.loaded += 1;
        state.capacity = capacity;
        state.needed.clone_from(&options.needed);
        let empty = PinnedMaps { capacity, contents: Some(MapContents::default()) };
        let is_staged = state.pinned.get_or_insert(empty).capacity != capacity;
        let (number, pins) = (state.loaded, MapPins::live(options.pins.clone()));
        drop(state);
        Ok(Self { kernel, number, capacity, is_staged, pins, watching: Watching::Nothing })
    }

    pub(in crate::agent) fn take_classifiers(&mut self) -> Classifiers {
        Classifiers::taken_and_refused()
    }

    pub(in crate::agent) const fn pins(&self) -> &MapPins {
        &self.pins
    }

    pub(in crate::agent) const fn is_staged(&self) -> bool {
        self.is_staged
    }

    pub(in crate::agent) fn take_links(&mut self, former: &mut Self) {
        self.watching = mem::take(&mut former.watching);
    }

    pub(in crate::agent) fn attach(&mut self, _: &CgroupRoot) -> Result<(), LoadError> {
        self.kernel.loads("attach")?;
        self.kernel.state().attached = Some(self.number);
        Ok(())
    }

    pub(in crate::agent) fn watch(&mut self, watching: Watching) -> Result<Watching, LoadError> {
        Ok(mem::replace(&mut self.watching, watching))
    }

    pub(in crate::agent) fn repair_hooks(&self, _: &CgroupRoot) -> Result<Vec<Repair>, LoadError> {
        self.kernel.loads("repair hooks")?;
        Ok(mem::take(&mut self.kernel.state().damaged))
    }

    pub(in crate::agent) fn repair_pins(&self) -> Result<Vec<Repair>, LoadError> {
        self.kernel.loads("repair pins").map(|()| Vec::new())
    }

    /// Nothing is attached to a real cgroup, so there is nothing to verify.
    pub(in crate::agent) const fn program_ids(&self) -> Vec<(&'static Hook, u32)> {
        Vec::new()
    }

    pub(in crate::agent) fn commit(&mut self) -> Result<(), LoadError> {
        self.kernel.loads("commit")?;
        self.is_staged = false;
        self.kernel.pin(PinnedMaps { capacity: self.capacity, contents: None });
        Ok(())
    }

    pub(in crate::agent) fn commit_run(&self) -> Result<(), LoadError> {
        Ok(())
    }

    pub(in crate::agent) fn trace_maps(&self) -> io::Result<[OwnedFd; 2]> {
        let null = || File::open("/dev/null").map(OwnedFd::from);
        Ok([null()?, null()?])
    }

    pub(in crate::agent) fn follow_log(&mut self) -> Result<(), LoadError> {
        self.kernel.loads("follow log")
    }
}

/// The config maps that the agent writes.
pub(in crate::agent) struct KernelMaps {
    kernel: Arc<Kernel>,
    pub(in crate::agent) maps: MemoryMaps,
}

impl KernelMaps {
    /// Opens those of the programs that were loaded last.
    pub(in crate::agent) fn open(config: &Path, _: &Path) -> Result<Self, MapError> {
        let kernel = Kernel::of(config);
        let state = kernel.state();
        let pinned = state.pinned.as_ref().filter(|pinned| pinned.capacity == state.capacity);
        let contents = pinned.and_then(|pinned| pinned.contents.clone()).unwrap_or_default();
        let maps = MemoryMaps::with_contents(state.capacity, contents);
        drop(state);
        Ok(Self { kernel, maps })
    }

    pub(in crate::agent) fn prepare_filter(
        &mut self,
        former: &FormerFilter,
    ) -> Result<(), MapError> {
        let error = |error| MapError::reading("hints", "all", error);
        self.kernel.does(format!("prepare filter after {former:?}")).map_err(error)
    }

    pub(in crate::agent) fn filter_density(&self) -> FilterDensity {
        self.kernel.state().filter
    }

    pub(in crate::agent) fn begin_filter_rebuild(&mut self) -> io::Result<()> {
        self.kernel.does("begin rebuild")
    }

    pub(in crate::agent) fn finish_filter_rebuild(&mut self, _: &[Address]) -> io::Result<bool> {
        self.kernel.does("finish rebuild")?;
        let filter = &mut self.kernel.state().filter;
        *filter = FilterDensity { buckets: filter.buckets, ..FilterDensity::default() };
        Ok(true)
    }

    pub(in crate::agent) fn set_figures(
        &mut self,
        _: impl Fn(u32) -> u32,
        _: impl Fn(u32) -> u8,
    ) -> io::Result<()> {
        Ok(())
    }
}

impl Maps for KernelMaps {
    type Reader = MemoryMaps;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        if can_fail(step) {
            self.kernel.may("write").map_err(|error| MapError::writing(step, error))?;
        }
        self.maps.write(step)
    }

    fn reader(&self) -> &MemoryMaps {
        &self.maps
    }
}

/// Reads the pinned config maps.
pub(in crate::agent) struct KernelMapsReader;

impl KernelMapsReader {
    pub(in crate::agent) fn open(config: &Path) -> Result<MemoryMaps, MapError> {
        let pinned = Kernel::of(config).state().pinned.clone();
        let read = pinned
            .and_then(|pinned| Some(MemoryMaps::with_contents(pinned.capacity, pinned.contents?)));
        read.ok_or_else(|| MapError::reading("of maps", "all", io::ErrorKind::InvalidData.into()))
    }
}

pub(in crate::agent) fn pinned_capacity(pins: &Pins) -> Result<Option<Capacity>, LoadError> {
    Ok(Kernel::of(pins.root()).state().pinned.as_ref().map(|pinned| pinned.capacity))
}

pub(in crate::agent) fn read_run_record(pin: &Path) -> Result<Run, MapError> {
    let run = Kernel::of(pin).state().run.clone();
    run.ok_or_else(|| MapError::reading("run", "the pin", io::ErrorKind::NotFound.into()))
}

pub(in crate::agent) fn write_run_record(pin: &Path, run: &Run) -> Result<(), MapError> {
    let kernel = Kernel::of(pin);
    let error = |error| MapError::reading("run", "the pin", error);
    kernel.does("record run").map_err(error)?;
    kernel.state().run = Some(run.clone());
    Ok(())
}

/// The agent's sign of life.
pub(in crate::agent) struct LivenessWriter(Arc<Kernel>);

impl LivenessWriter {
    pub(in crate::agent) fn open(pin: &Path, _: Option<Duration>) -> Result<Self, MapError> {
        Ok(Self(Kernel::of(pin)))
    }

    pub(in crate::agent) fn report(&mut self, synced: bool) -> Result<(), MapError> {
        let error = |error| MapError::reading("alive", "the pin", error);
        self.0.does(if synced { "live, synced" } else { "live" }).map_err(error)
    }
}

/// Tests have no figures of imports.
pub(in crate::agent) enum FigurePlaces {}

impl FigurePlaces {
    pub(in crate::agent) fn open(_: &Path, _: u32, _: [&str; 2]) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::agent) const fn shared(&self) -> Arc<Figures> {
        match *self {}
    }

    pub(in crate::agent) const fn write(
        &mut self,
        _: &Step,
        _: &mut KernelMaps,
    ) -> Result<(), MapError> {
        match *self {}
    }

    pub(in crate::agent) const fn follow(
        &mut self,
        _: &Realized,
        _: &mut KernelMaps,
    ) -> io::Result<()> {
        match *self {}
    }

    pub(in crate::agent) const fn fill(&self, _: &mut KernelMaps) -> io::Result<()> {
        match *self {}
    }
}

/// The move of flows to a table of another size.
pub(in crate::agent) struct FlowMigration(Arc<Kernel>);

impl FlowMigration {
    pub(in crate::agent) fn find(pins: &FlowPins) -> Self {
        Self(Kernel::of(&pins.table))
    }

    pub(in crate::agent) fn copy(&mut self) {
        drop(self.0.does("copy flows"));
    }
}

pub(in crate::agent) struct EvictionRecord;

impl EvictionRecord {
    pub(in crate::agent) fn prepare(pins: &FlowPins) -> io::Result<()> {
        Kernel::of(&pins.table).does("prepare evictions")
    }
}

/// Sweeps no flow table.
pub(in crate::agent) struct FlowSweeper;

impl FlowSweeper {
    pub(in crate::agent) const fn new(_: &FlowPins) -> io::Result<Self> {
        Ok(Self)
    }

    pub(in crate::agent) const fn set_watched(&mut self, _: bool) {}

    pub(in crate::agent) async fn next(&mut self) -> io::Result<SweepResult> {
        future::pending().await
    }
}

pub(in crate::agent) fn addresses_in_use(_: &Path, flows: &FlowPins) -> io::Result<Vec<Address>> {
    Kernel::of(&flows.table).does("list addresses in use").map(|()| Vec::new())
}

pub(in crate::agent) async fn detach_all(_: &Pins) -> Result<DetachOutcome, TcError> {
    Ok(DetachOutcome { programs: 0, elsewhere: false })
}
