//! Figures of imports: what the programs count by import and source cluster, in the per-CPU map `figures`.

use bytemuck::{Pod, Zeroable};

use crate::Counter;

/// Value of the per-CPU array `figures`: the counts of one import, whose frontends name the row. Row 0 counts all imports
/// without a row of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FigureRow {
    /// Connections by source cluster, in the columns that backends name: the first one counts all clusters without a
    /// column of their own. Then refusals, by [`Refusal::column`].
    pub counts: [u64; 16],
}

crate::pod!(FigureRow);

impl FigureRow {
    /// How many counts a row has.
    pub const COLUMNS: u32 = 16;
    /// How many columns count source clusters.
    pub const CLUSTERS: u32 = Self::COLUMNS - Refusal::COUNT;
    /// The column of slices that name no cluster.
    pub const UNKNOWN_CLUSTER: u8 = 1;
}

/// Why a client of an import was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Refusal {
    /// There is no usable backend.
    NoBackend,
    /// The VIP has no such port.
    UnknownPort,
    /// Other flows have the tuple of replies for every backend and port tried.
    Collision,
}

impl Refusal {
    const COUNT: u32 = Self::Collision as u32 + 1;

    /// Each, in the order of their columns.
    pub const ALL: [Self; Self::COUNT as usize] =
        [Self::NoBackend, Self::UnknownPort, Self::Collision];

    /// The column for these refusals.
    #[inline(always)]
    #[must_use]
    pub const fn column(self) -> u32 {
        FigureRow::CLUSTERS + self as u32
    }

    /// The reason that the counter of a refused packet or connect stands for.
    #[inline(always)]
    #[must_use]
    pub const fn of_packet(counter: u32) -> Option<Self> {
        const NO_BACKEND: u32 = Counter::PacketRefusedNoBackend as u32;
        const UNKNOWN_PORT: u32 = Counter::PacketRefusedUnknownPort as u32;
        const COLLISION: u32 = Counter::PacketRefusedCollision as u32;
        match counter {
            NO_BACKEND => Some(Self::NoBackend),
            UNKNOWN_PORT => Some(Self::UnknownPort),
            COLLISION => Some(Self::Collision),
            _ => None,
        }
    }

    /// The name that the metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoBackend => "no_backend",
            Self::UnknownPort => "unknown_port",
            Self::Collision => "collision",
        }
    }
}

const _: () = {
    assert!(size_of::<FigureRow>() == 8 * FigureRow::COLUMNS as usize);
    assert!(Refusal::Collision.column() == FigureRow::COLUMNS - 1);
};
