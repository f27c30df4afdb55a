//! How the programs are loaded: the options, the loader of the embedded object, and why a load fails.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, PoisonError},
};

use aya::{Ebpf, EbpfError, EbpfLoader, Pod, programs::ProgramError};
use aya_log::Level;
use mcs_common::{
    BUCKETS_PER_WORD,
    maps::{Entries, Place},
};
use thiserror::Error;

use super::{
    BpffsError, Features, Pins, ProgramLogError, attach::AttachError, layout::Sizes, pins::MapPins,
};
use crate::core::{kernel::flows::FlowCapacity, model::Capacity};

/// How to load the programs.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where maps and links are pinned.
    pub pins: Pins,
    /// How large the config maps are.
    pub capacity: Capacity,
    /// How large the flow table is.
    pub flows: FlowCapacity,
    /// What the kernel can do.
    pub features: Features,
    /// The cookie of the network namespace whose sockets are translated; `None` for all.
    pub only_netns: Option<u64>,
    /// The table of connected sockets has two to the power of this many slots. Only tests have another value than
    /// [`SOCKET_SLOT_BITS`](mcs_common::maps::SOCKET_SLOT_BITS).
    pub socket_slot_bits: u32,
    /// The programs that devices have by now. The load fails without one of them: its devices would go on with the former
    /// maps. The kernel gets each other one when a device needs it.
    pub needed: Vec<&'static str>,
    /// The programs leave VIPs alone after the deadline of [`Pins::alive`].
    pub release_orphans: bool,
    /// The programs log each decision. Without it they contain no code for that.
    pub log_programs: bool,
    /// What features set.
    pub settings: Vec<Setting>,
}

/// What a feature sets in the programs and their maps, by name. It sets all that is its own each time, since a load keeps what
/// the load before it has set. The last value counts.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// The value of a constant.
    Constant(&'static str, u8),
    /// The entries of a map, or the bytes of a ring buffer.
    Entries(&'static str, u32),
}

impl LoadOptions {
    pub(super) fn sizes(&self) -> Sizes<'_> {
        let Self { capacity, flows, socket_slot_bits, ref settings, .. } = *self;
        Sizes { capacity, flows, socket_slot_bits, of_features: settings }
    }
}

/// One for all loads: a new one would parse the kernel's types, which takes 20 ms and 17 MiB, and the programs have no
/// relocations by them.
static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    Mutex::new(loader)
});

/// How many tasks have working memory: 3 MiB.
const SCRATCH_TASKS: u32 = 4096;

/// Reads the object. Its maps are pinned `at` these paths.
pub(super) fn load(object: &[u8], options: &LoadOptions, at: &MapPins) -> Result<Ebpf, EbpfError> {
    let features = options.features;
    let log_level = if options.log_programs { Level::Debug as u8 } else { 0 };
    let sizes = options.sizes();
    // Each load sets everything that the load before it has set.
    let mut loader = LOADER.lock().unwrap_or_else(PoisonError::into_inner);
    loader
        .override_global("HAVE_SET_RETVAL", forever(u8::from(features.set_retval)), true)
        .override_global("HAVE_COARSE_CLOCK", forever(u8::from(features.coarse_clock)), true)
        .override_global("RELEASE_ORPHANS", forever(u8::from(options.release_orphans)), true)
        .override_global("AYA_LOG_LEVEL", forever(log_level), true)
        .override_global("SCRATCH_PER_TASK", forever(u8::from(features.preempts_packets)), true)
        .map_max_entries("task_scratch", if features.preempts_packets { SCRATCH_TASKS } else { 1 })
        .override_global("ONLY_NETNS", forever(options.only_netns.unwrap_or(0)), true)
        .override_global("SOCKET_SLOT_BITS", forever(options.socket_slot_bits), true)
        .override_global("HINT_BUCKETS", forever(sizes.filter_words() * BUCKETS_PER_WORD), true);
    for setting in &options.settings {
        match *setting {
            Setting::Constant(name, value) => loader.override_global(name, forever(value), true),
            Setting::Entries(name, entries) => loader.map_max_entries(name, entries),
        };
    }
    for layout in [Place::Config, Place::State, Place::Root]
        .into_iter()
        .flat_map(|place| sizes.layouts(place))
    {
        let map = layout.map;
        if !matches!(map.entries, Entries::Fixed(_) | Entries::Lru) {
            loader.map_max_entries(map.name, layout.entries);
        }
        loader.map_pin_path(map.name, at.pin(map));
    }
    loader.load(object)
}

/// The loader keeps references to constants. This leaks some bytes with each move to larger maps.
fn forever<T: Pod>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Why the programs are not in the kernel.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Built by plain cargo.
    #[error(
        "this binary was built without its eBPF programs: run `cargo xtask setup`, then \
         `cargo xtask build`, and use target/release/mcs-agent"
    )]
    NoObject,
    /// There is no place to pin.
    #[error(transparent)]
    Bpffs(#[from] BpffsError),
    /// A directory or pin cannot be made or removed.
    #[error("cannot {action} {path}")]
    Pin {
        /// What was tried.
        action: &'static str,
        /// The directory or pin.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Maps could not be made.
    #[error("cannot make the maps under {path}")]
    Maps {
        /// Their directory.
        path: PathBuf,
        /// The error of aya.
        source: Box<EbpfError>,
    },
    /// The kernel rejects a program.
    #[error("the kernel does not take the program {program}")]
    Program {
        /// The program's name.
        program: &'static str,
        /// The error of aya, with the verifier's log.
        source: ProgramError,
    },
    /// A hook could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The log of the programs cannot be followed.
    #[error(transparent)]
    Log(#[from] ProgramLogError),
}

pub(super) fn pin_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> LoadError + use<> {
    let path = path.to_owned();
    move |source| LoadError::Pin { action, path, source }
}
