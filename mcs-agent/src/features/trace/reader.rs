//! Reads the events of the programs for `mcs-agent trace`.

use std::{io, os::fd::OwnedFd};

use aya::maps::{Map, MapData, PerCpuArray, RingBuf};
use mcs_common::TraceEvent;

use crate::core::kernel::bpf::into_io;

/// The events, and the number of those that found no room. One process reads them at a time.
pub(crate) struct TraceReader {
    events: RingBuf<MapData>,
    lost: PerCpuArray<MapData, u64>,
}

impl TraceReader {
    /// Reads the two maps, in the order in which the agent passes them.
    pub(crate) fn new([events, lost]: [OwnedFd; 2]) -> io::Result<Self> {
        let open = |fd| MapData::from_fd(fd).map_err(into_io);
        Ok(Self {
            events: RingBuf::try_from(Map::RingBuf(open(events)?)).map_err(into_io)?,
            lost: PerCpuArray::try_from(Map::PerCpuArray(open(lost)?)).map_err(into_io)?,
        })
    }

    /// The next event; `None` if there is none now.
    pub(crate) fn next_event(&mut self) -> Option<TraceEvent> {
        self.events.next().and_then(|item| bytemuck::try_pod_read_unaligned(&item).ok())
    }

    /// How many events were lost so far.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        let values = self.lost.get(&0, 0).map_err(into_io)?;
        Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
    }
}
