//! Makes the maps of the embedded object, or takes pinned ones, and sets the constants of the programs.

use std::sync::{LazyLock, Mutex, PoisonError};

use aya::{Ebpf, EbpfError, EbpfLoader, Pod};
use aya_log::Level;
use mcs_common::{
    BUCKETS_PER_WORD,
    maps::{Entries, Place},
};

use super::{LoadOptions, Setting, pins::MapPins};

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
