//! The flag that makes packets to pods skip the flow table while it is empty.

use std::io;

use mcs_common::FlowsUsed;

use super::FlowPins;
use crate::core::kernel::bpf::{MappedArray, ReadWrite, ReaderBarrier};

/// The map `flows_used`. While it says that there is no flow, the programs do not look packets to pods up.
#[derive(Debug)]
pub struct FlowsUsedFlag {
    used: MappedArray<u32, ReadWrite>,
    readers: ReaderBarrier,
}

impl FlowsUsedFlag {
    /// Opens the pinned map.
    pub fn open(pins: &FlowPins) -> io::Result<Self> {
        Ok(Self { used: MappedArray::open(&pins.used)?, readers: ReaderBarrier::new()? })
    }

    /// One of [`FlowsUsed`].
    pub fn get(&self) -> u32 {
        self.used.read(0).unwrap_or(FlowsUsed::YES)
    }

    /// Notes that there are flows.
    pub fn used(&mut self) -> io::Result<()> {
        self.used.store(0, FlowsUsed::YES)
    }

    /// Notes that there is no flow, if the table is empty. Returns whether it is.
    ///
    /// A program writes [`FlowsUsed::YES`] before it makes a flow. A program that began before this method
    /// wrote [`FlowsUsed::ENDING`] may have read `YES` and be about to make a flow: this method waits for it,
    /// and finds its flow. A program that begins later replaces `ENDING` by `YES`, and this method leaves that.
    pub fn end(&mut self, is_empty: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        self.used.store(0, FlowsUsed::ENDING)?;
        let empty = self.readers.wait().and_then(|()| is_empty());
        if matches!(empty, Ok(true)) {
            return self.used.replace_half(0, 0, FlowsUsed::ENDING, FlowsUsed::NO);
        }
        self.used()?;
        empty
    }
}
