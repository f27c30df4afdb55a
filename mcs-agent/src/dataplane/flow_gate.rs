use std::{io, path::Path};

use mcs_common::{FlowsUsed, maps};

use crate::bpf::{MappedArray, ReadWrite, ReaderBarrier};

/// Looks after `flows_used`: while there is no flow, packets to pods pass without a look.
#[derive(Debug)]
pub struct FlowGate {
    used: MappedArray<u32, ReadWrite>,
    readers: ReaderBarrier,
}

impl FlowGate {
    /// Opens the map in the state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        Ok(Self {
            used: MappedArray::open(&state.join(maps::FLOWS_USED))?,
            readers: ReaderBarrier::new()?,
        })
    }

    /// One of [`FlowsUsed`].
    pub fn get(&self) -> u32 {
        self.used.read(0).unwrap_or(FlowsUsed::YES)
    }

    /// There are flows.
    pub fn used(&mut self) -> io::Result<()> {
        self.used.store(0, FlowsUsed::YES)
    }

    /// There may be no flow any more. Returns whether that is so.
    ///
    /// A program writes [`FlowsUsed::YES`] before it makes a flow. One that began before the mark
    /// was written here may have read `YES` and be about to make one: it is waited for, and its flow
    /// found. One that begins after that writes over the mark, which then is not taken away.
    pub fn end(&mut self, is_empty: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        self.used.store(0, FlowsUsed::ENDING)?;
        let empty = self.readers.wait().and_then(|()| is_empty());
        if matches!(empty, Ok(true)) {
            return self.used.replace(0, FlowsUsed::ENDING, FlowsUsed::NO);
        }
        self.used()?;
        empty
    }
}
