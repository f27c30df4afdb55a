//! How to load the programs.

use super::{Features, Pins, layout::Sizes};
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
