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

use crate::core::{
    kernel::{
        dataplane::{FilterDensity, FormerFilter, Run},
        flows::{FlowPins, SweepResult},
        loader::{
            CgroupRoot, Classifiers, DetachOutcome, Hook, LoadError, LoadOptions, MapPins, Pins,
            Repair, TcError,
        },
    },
    model::Capacity,
    tables::{
        MapContents, MapError, Maps, Step,
        testing::{MemoryMaps, can_fail},
    },
};

/// The kernels of all tests, by the directory of their pins.
static KERNELS: Mutex<BTreeMap<PathBuf, Arc<Kernel>>> = Mutex::new(BTreeMap::new());

/// The kernel of one test.
#[derive(Default)]
pub(crate) struct Kernel(Mutex<State>);

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
pub(crate) struct PinnedMaps {
    pub(crate) capacity: Capacity,
    /// `None`: they cannot be read.
    pub(crate) contents: Option<MapContents>,
}

impl Kernel {
    /// The kernel of the test that has this pin.
    pub(crate) fn of(pin: &Path) -> Arc<Self> {
        let root = pin.ancestors().find(|path| path.ends_with("mcs")).expect("a pin");
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(kernels.entry(root.to_owned()).or_default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done since the last call.
    pub(crate) fn take_done(&self) -> Vec<String> {
        mem::take(&mut self.state().done)
    }

    /// The programs that are attached, by the number of their load.
    pub(crate) fn attached(&self) -> Option<u32> {
        self.state().attached
    }

    /// The programs for devices that the last load had to make.
    pub(crate) fn needed(&self) -> Vec<&'static str> {
        self.state().needed.clone()
    }

    /// Lets this fail the next time.
    pub(crate) fn fail(&self, what: &'static str) {
        self.state().failing.push(what);
    }

    /// Lets the next check of hooks find and repair this.
    pub(crate) fn damage(&self, repair: Repair) {
        self.state().damaged.push(repair);
    }

    /// Pins maps as an earlier agent leaves them.
    pub(crate) fn pin(&self, maps: PinnedMaps) {
        self.state().pinned = Some(maps);
    }

    /// Gives the address filter buckets, all of them set.
    pub(crate) fn fill_filter(&self, buckets: u32) {
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
pub(crate) struct Programs {
    kernel: Arc<Kernel>,
    number: u32,
    capacity: Capacity,
    is_staged: bool,
    pins: MapPins,
}

impl Programs {
    pub(crate) fn load(options: &LoadOptions) -> Result<Self, LoadError> {
        let (kernel, capacity) = (Kernel::of(options.pins.root()), options.capacity);
        let is_usual = options.settings.is_empty();
        kernel.loads(if is_usual { "load" } else { "load variant" })?;
        let mut state = kernel.state();
        state.loaded += 1;
        state.capacity = capacity;
        state.needed.clone_from(&options.needed);
        let empty = PinnedMaps { capacity, contents: Some(MapContents::default()) };
        let is_staged = state.pinned.get_or_insert(empty).capacity != capacity;
        let (number, pins) = (state.loaded, MapPins::live(options.pins.clone()));
        drop(state);
        Ok(Self { kernel, number, capacity, is_staged, pins })
    }

    pub(crate) fn take_classifiers(&mut self) -> Classifiers {
        Classifiers::taken_and_refused()
    }

    pub(crate) const fn pins(&self) -> &MapPins {
        &self.pins
    }

    pub(crate) const fn is_staged(&self) -> bool {
        self.is_staged
    }

    pub(crate) const fn take_links(&mut self, _: &mut Self) {}

    pub(crate) fn attach(&mut self, _: &CgroupRoot) -> Result<(), LoadError> {
        self.kernel.loads("attach")?;
        self.kernel.state().attached = Some(self.number);
        Ok(())
    }

    pub(crate) fn set_tracepoints(
        &mut self,
        _: &[&'static str],
        _: &[&'static str],
    ) -> Result<(), LoadError> {
        Ok(())
    }

    pub(crate) fn repair_hooks(&self, _: &CgroupRoot) -> Result<Vec<Repair>, LoadError> {
        self.kernel.loads("repair hooks")?;
        Ok(mem::take(&mut self.kernel.state().damaged))
    }

    pub(crate) fn repair_pins(&self) -> Result<Vec<Repair>, LoadError> {
        self.kernel.loads("repair pins").map(|()| Vec::new())
    }

    /// Nothing is attached to a real cgroup, so there is nothing to verify.
    pub(crate) const fn program_ids(&self) -> Vec<(&'static Hook, u32)> {
        Vec::new()
    }

    pub(crate) fn commit(&mut self) -> Result<(), LoadError> {
        self.kernel.loads("commit")?;
        self.is_staged = false;
        self.kernel.pin(PinnedMaps { capacity: self.capacity, contents: None });
        Ok(())
    }

    pub(crate) fn commit_run(&self) -> Result<(), LoadError> {
        Ok(())
    }

    pub(crate) fn unpinned_maps(&self, names: &[&str]) -> io::Result<Vec<OwnedFd>> {
        names.iter().map(|_| File::open("/dev/null").map(OwnedFd::from)).collect()
    }

    pub(crate) fn follow_log(&mut self) -> Result<(), LoadError> {
        self.kernel.loads("follow log")
    }
}

/// The config maps that the agent writes.
pub(crate) struct KernelMaps {
    kernel: Arc<Kernel>,
    pub(crate) maps: MemoryMaps,
}

impl KernelMaps {
    /// Opens those of the programs that were loaded last.
    pub(crate) fn open(config: &Path, _: &Path) -> Result<Self, MapError> {
        let kernel = Kernel::of(config);
        let state = kernel.state();
        let pinned = state.pinned.as_ref().filter(|pinned| pinned.capacity == state.capacity);
        let contents = pinned.and_then(|pinned| pinned.contents.clone()).unwrap_or_default();
        let maps = MemoryMaps::with_contents(state.capacity, contents);
        drop(state);
        Ok(Self { kernel, maps })
    }

    pub(crate) fn prepare_filter(&mut self, former: &FormerFilter) -> Result<(), MapError> {
        let error = |error| MapError::reading("hints", "all", error);
        self.kernel.does(format!("prepare filter after {former:?}")).map_err(error)
    }

    pub(crate) fn filter_density(&self) -> FilterDensity {
        self.kernel.state().filter
    }

    pub(crate) fn begin_filter_rebuild(&mut self) -> io::Result<()> {
        self.kernel.does("begin rebuild")
    }

    pub(crate) fn finish_filter_rebuild(&mut self, _: &[Address]) -> io::Result<bool> {
        self.kernel.does("finish rebuild")?;
        let filter = &mut self.kernel.state().filter;
        *filter = FilterDensity { buckets: filter.buckets, ..FilterDensity::default() };
        Ok(true)
    }

    pub(crate) fn set_row(&mut self, _: u32, _: u32) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn set_column(&mut self, _: u32, _: u8) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn set_columns(
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
pub(crate) struct KernelMapsReader;

impl KernelMapsReader {
    pub(crate) fn open(config: &Path) -> Result<MemoryMaps, MapError> {
        let pinned = Kernel::of(config).state().pinned.clone();
        let read = pinned
            .and_then(|pinned| Some(MemoryMaps::with_contents(pinned.capacity, pinned.contents?)));
        read.ok_or_else(|| MapError::reading("of maps", "all", io::ErrorKind::InvalidData.into()))
    }
}

pub(crate) fn pinned_capacity(pins: &Pins) -> Result<Option<Capacity>, LoadError> {
    Ok(Kernel::of(pins.root()).state().pinned.as_ref().map(|pinned| pinned.capacity))
}

pub(crate) fn read_run_record(pin: &Path) -> Result<Run, MapError> {
    let run = Kernel::of(pin).state().run.clone();
    run.ok_or_else(|| MapError::reading("run", "the pin", io::ErrorKind::NotFound.into()))
}

pub(crate) fn write_run_record(pin: &Path, run: &Run) -> Result<(), MapError> {
    let kernel = Kernel::of(pin);
    let error = |error| MapError::reading("run", "the pin", error);
    kernel.does("record run").map_err(error)?;
    kernel.state().run = Some(run.clone());
    Ok(())
}

/// The agent's sign of life.
pub(crate) struct LivenessWriter(Arc<Kernel>);

impl LivenessWriter {
    pub(crate) fn open(pin: &Path, _: Option<Duration>) -> Result<Self, MapError> {
        Ok(Self(Kernel::of(pin)))
    }

    pub(crate) fn report(&mut self, synced: bool) -> Result<(), MapError> {
        let error = |error| MapError::reading("alive", "the pin", error);
        self.0.does(if synced { "live, synced" } else { "live" }).map_err(error)
    }
}

/// The move of flows to a table of another size.
pub(crate) struct FlowMigration(Arc<Kernel>);

impl FlowMigration {
    pub(crate) fn find(pins: &FlowPins) -> Self {
        Self(Kernel::of(&pins.table))
    }

    pub(crate) fn copy(&mut self) {
        drop(self.0.does("copy flows"));
    }
}

pub(crate) struct EvictionRecord;

impl EvictionRecord {
    pub(crate) fn prepare(pins: &FlowPins) -> io::Result<()> {
        Kernel::of(&pins.table).does("prepare evictions")
    }
}

/// Sweeps no flow table.
pub(crate) struct FlowSweeper;

impl FlowSweeper {
    pub(crate) const fn new(_: &FlowPins) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) const fn set_watched(&mut self, _: bool) {}

    pub(crate) fn set_bounds(&mut self, _: crate::core::kernel::flows::FlowBounds) {}

    pub(crate) async fn next(&mut self) -> io::Result<SweepResult> {
        future::pending().await
    }
}

pub(crate) fn addresses_in_use(_: &Path, flows: &FlowPins) -> io::Result<Vec<Address>> {
    Kernel::of(&flows.table).does("list addresses in use").map(|()| Vec::new())
}

pub(crate) async fn detach_all(_: &Pins) -> Result<DetachOutcome, TcError> {
    Ok(DetachOutcome { programs: 0, elsewhere: false })
}
