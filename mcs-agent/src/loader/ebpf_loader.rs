//! Makes the maps of the embedded object, or adopts pinned ones, and sets the constants of the programs.

use std::{
    path::Path,
    sync::{LazyLock, Mutex, PoisonError},
};

use aya::{Ebpf, EbpfError, EbpfLoader, Pod};
use aya_log::Level;
use mcs_common::{HINTS_PER_WORD, maps};

use super::{LoadOptions, layout};

/// One for all loads: aya parses the kernel's types for each that is made, which takes 20 ms and 17 MiB, and the programs
/// have no relocations by them.
static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    Mutex::new(loader)
});

/// Reads the object. Its config maps are pinned in `config`, and its hints at `hints`.
pub(super) fn load(
    object: &[u8],
    options: &LoadOptions,
    config: &Path,
    hints: &Path,
) -> Result<Ebpf, EbpfError> {
    let LoadOptions { pins, capacity, features, .. } = options;
    let log_level = if options.log_programs { Level::Debug as u8 } else { 0 };
    let hint_layout = layout::hints(*capacity);
    // Each load sets everything that the one before has set.
    let mut loader = LOADER.lock().unwrap_or_else(PoisonError::into_inner);
    loader
        .override_global("HAVE_SET_RETVAL", forever(u8::from(features.set_retval)), true)
        .override_global("HAVE_COARSE_CLOCK", forever(u8::from(features.coarse_clock)), true)
        .override_global("RELEASE_ORPHANS", forever(u8::from(options.release_orphans)), true)
        .override_global("AYA_LOG_LEVEL", forever(log_level), true)
        .override_global("ONLY_NETNS", forever(options.only_netns.unwrap_or(0)), true)
        .override_global("SOCKET_SLOT_BITS", forever(options.socket_slot_bits), true)
        .override_global("HINT_BUCKETS", forever(hint_layout.entries * HINTS_PER_WORD), true)
        .map_max_entries(maps::HINTS, hint_layout.entries)
        .map_pin_path(maps::HINTS, hints.to_owned());
    for map in layout::config(*capacity) {
        loader.map_max_entries(map.name, map.entries);
        loader.map_pin_path(map.name, config.join(map.name));
    }
    for map in layout::state(options.flows, options.socket_slot_bits) {
        if map.name == maps::FLOWS || layout::SOCKET_SLOTS.contains(&map.name) {
            loader.map_max_entries(map.name, map.entries);
        }
        loader.map_pin_path(map.name, pins.state().join(map.name));
    }
    loader.map_pin_path(maps::RUN, pins.run());
    loader.map_pin_path(maps::ALIVE, pins.alive());
    loader.load(object)
}

/// The loader keeps references to constants. They are some bytes for each move to larger maps.
fn forever<T: Pod>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
