//! Figures of imports: what the programs count by import and source cluster, in the per-CPU map `figures`.

use bytemuck::{Pod, Zeroable};

use crate::Counter;

/// Value of the per-CPU array `figures`: the counts of one import, whose index in `services` is that of the row. Row 0
/// has those of all imports without a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FigureRow {
    /// By [`FigureRow::column_of`] and [`Refusal::column`].
    pub counts: [u64; 16],
}

crate::pod!(FigureRow);

impl FigureRow {
    /// How many counts a row has.
    pub const COLUMNS: usize = size_of::<Self>() / 8;
    /// The column of all source clusters without a column of their own: their index in `clusters` is this or more.
    pub const OTHER_CLUSTERS: u32 = Self::COLUMNS as u32 - Refusal::ALL.len() as u32 - 1;

    /// The row of an import, among so many rows.
    #[inline(always)]
    #[must_use]
    pub const fn row_of(service: u32, rows: u32) -> u32 {
        if service < rows { service } else { 0 }
    }

    /// The column for connections to a source cluster.
    #[inline(always)]
    #[must_use]
    pub const fn column_of(cluster: u32) -> u32 {
        if cluster < Self::OTHER_CLUSTERS { cluster } else { Self::OTHER_CLUSTERS }
    }
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
    /// Each, in the order of their columns.
    pub const ALL: [Self; 3] = [Self::NoBackend, Self::UnknownPort, Self::Collision];

    /// The column for these refusals.
    #[inline(always)]
    #[must_use]
    pub const fn column(self) -> u32 {
        FigureRow::OTHER_CLUSTERS + 1 + self as u32
    }

    /// What the counter of a refused packet says of its import.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_place_of_its_own_is_with_the_others() {
        let rows = [0, 1, 9, 10, u32::MAX].map(|service| FigureRow::row_of(service, 10));
        assert_eq!(rows, [0, 1, 9, 0, 0]);
        let other = FigureRow::OTHER_CLUSTERS;
        let columns = [0, 1, other - 1, other, other + 1].map(FigureRow::column_of);
        assert_eq!(columns, [0, 1, other - 1, other, other]);
    }

    #[test]
    fn refusals_have_the_last_columns() {
        let columns = Refusal::ALL.map(|refusal| refusal.column() as usize);
        assert_eq!(
            columns,
            [FigureRow::COLUMNS - 3, FigureRow::COLUMNS - 2, FigureRow::COLUMNS - 1]
        );
        assert_eq!(columns[0], FigureRow::OTHER_CLUSTERS as usize + 1);
    }
}
