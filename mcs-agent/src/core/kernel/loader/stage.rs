//! Where a load finds each map, or makes it. A load changes nothing that attached programs use: a map of another shape keeps
//! its pin, and the new one is pinned beside it, until [`Programs::commit`](super::Programs::commit).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use mcs_common::maps::{self, Map, Place};

use super::{
    Pins,
    layout::{self, MapLayout, Sizes},
    load::{LoadError, pin_error},
    pins::{MapPins, at, places, remove_places},
};
use crate::core::kernel::bpf::remove_file;

/// Maps that speak of each other: a tag says that a connection is right, and the record which flows the table may lack. The
/// programs get those of one load.
const TOGETHER: [[&str; 2]; 2] = [layout::SOCKET_SLOTS, [maps::FLOWS, maps::FLOW_EVICTIONS]];

/// Clears what a killed agent left half done, and chooses the pins of a load.
///
/// What a killed agent has staged stays until the commit, since some of the attached programs may use it: a load that needs
/// the same shape goes on with it.
pub(super) fn stage(pins: &Pins, sizes: Sizes<'_>) -> Result<MapPins, LoadError> {
    finish_commit(pins)?;
    remove_file(&pins.scratch()).map_err(pin_error("remove", &pins.scratch()))?;
    for leftover in [pins.new_config(), pins.old_config()] {
        pins.remove_former_config(&leftover).map_err(pin_error("remove", &leftover))?;
    }
    let mut chosen = MapPins::live(pins.clone());
    let is_complete = all_match(sizes.layouts(Place::Config), |map| pins.pin(map))?;
    if !is_complete && (pins.config().exists() || pins.has_links()) {
        chosen.config = pins.new_config();
    }
    let layouts = [Place::State, Place::Root].into_iter().flat_map(|place| sizes.layouts(place));
    for layout in layouts.clone() {
        let pin = pins.pin(layout.map);
        let place = if layout.map.name == maps::HINTS {
            filter_place(&pin, layout, chosen.is_staged())?
        } else {
            let names = TOGETHER.iter().find(|names| names.contains(&layout.map.name));
            let is_with =
                |name| names.map_or(name == layout.map.name, |names| names.contains(&name));
            latest_place(pins, &layouts.clone().filter(|other| is_with(other.map.name)))?
        };
        if place > 0 {
            chosen.staged.insert(pin.clone(), at(&pin, place));
        }
    }
    Ok(chosen)
}

/// The place of the address filter. Programs with the pinned config maps share the pinned filter: a device can keep the
/// program of an earlier agent, which must see the bits that are set from now on.
fn filter_place(pin: &Path, layout: MapLayout, is_config_new: bool) -> Result<u32, LoadError> {
    // The pinned filter has every bit that was set in another one.
    remove_places(pin, 1).map_err(pin_error("remove what is staged beside", pin))?;
    let is_shared = !is_config_new && layout.matches(pin).map_err(pin_error("look at", pin))?;
    Ok(u32::from(!is_shared))
}

/// The latest place where all these maps are as they should be, or else one where none of them is. A commit that was cut
/// short leaves them at two places, but all of them only at the latest.
fn latest_place(
    pins: &Pins,
    layouts: &(impl Iterator<Item = MapLayout> + Clone),
) -> Result<u32, LoadError> {
    let mut taken = BTreeSet::new();
    for layout in layouts.clone() {
        let pin = pins.pin(layout.map);
        taken.extend(places(&pin).map_err(pin_error("look at", &pin))?);
    }
    for &place in taken.iter().rev() {
        if all_match(layouts.clone(), |map| at(&pins.pin(map), place))? {
            return Ok(place);
        }
    }
    Ok((0..=u32::MAX).find(|place| !taken.contains(place)).unwrap_or_default())
}

/// Whether all these maps are as they should be where they are pinned.
fn all_match(
    mut layouts: impl Iterator<Item = MapLayout>,
    pin: impl Fn(&Map) -> PathBuf,
) -> Result<bool, LoadError> {
    layouts.try_fold(true, |all, layout| {
        let pin = pin(layout.map);
        Ok(all & layout.matches(&pin).map_err(pin_error("look at", &pin))?)
    })
}

/// Finishes the [`Programs::commit`](super::Programs::commit) of a killed agent: the programs run with the new config maps.
pub(super) fn finish_commit(pins: &Pins) -> Result<(), LoadError> {
    let (live, new, old) = (pins.config(), pins.new_config(), pins.old_config());
    if !live.exists() && old.exists() && new.exists() {
        fs::rename(&new, &live).map_err(pin_error("move", &new))?;
    }
    Ok(())
}
