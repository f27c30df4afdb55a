//! Counts the entries of the flow table, and sets the flag that makes packets to pods skip the table while it is empty.

use std::{collections::BTreeSet, io, net::IpAddr, sync::Arc};

use mcs_common::{FlowFlags, FlowsUsed};

use super::{Connects, FlowBounds, FlowEntry, FlowPair, FlowPins, FlowUsage, Pairing};
use crate::core::{
    kernel::bpf::{MappedArray, ReadWrite, ReaderBarrier},
    model::Protocol,
};

/// What a [`FlowScan`] counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanTotals {
    /// The entries and flows, without the size of the table and the time.
    pub usage: FlowUsage,
    /// The VIPs of flows that are not over.
    pub vips: BTreeSet<IpAddr>,
    /// Flows that are over, or that bounds exclude.
    pub due: Vec<FlowPair>,
    /// What flows say of their backends, if somebody asks.
    pub connects: Option<Connects>,
}

/// Counts the entries of the flow table, in any order.
#[derive(Debug)]
pub struct FlowScan {
    now_ns: u64,
    bounds: Arc<FlowBounds>,
    pairing: Pairing,
    totals: ScanTotals,
}

impl FlowScan {
    /// `now_ns` is the instant of `CLOCK_MONOTONIC` at which flows are due. `connects` takes what flows say of their
    /// backends.
    pub fn new(now_ns: u64, bounds: Arc<FlowBounds>, connects: Option<Connects>) -> Self {
        let totals = ScanTotals { connects, ..ScanTotals::default() };
        Self { now_ns, bounds, pairing: Pairing::default(), totals }
    }

    /// Counts an entry.
    pub fn add(&mut self, entry: FlowEntry) {
        self.totals.usage.entries += 1;
        if let Some(flow) = self.pairing.add(entry) {
            self.totals.count(&flow, self.now_ns, &self.bounds);
        }
    }

    /// Ends the count: entries without a counterpart are halves, but for those that are kept on purpose.
    pub fn finish(self) -> ScanTotals {
        let mut totals = self.totals;
        for flow in self.pairing.rest() {
            let is_lost = !flow.is_due(self.now_ns) && !flow.is_kept_alone();
            totals.usage.halves += usize::from(is_lost);
            totals.count(&flow, self.now_ns, &self.bounds);
        }
        totals
    }
}

impl ScanTotals {
    fn count(&mut self, flow: &FlowPair, now_ns: u64, bounds: &FlowBounds) {
        if let Some(connects) = &mut self.connects {
            connects.add(flow);
        }
        if flow.is_due(now_ns) || bounds.exclude(flow) {
            self.due.push(*flow);
            return;
        }
        if flow.flow().flags & FlowFlags::PASSED == 0 {
            self.vips.insert(flow.client().dst.to_ip());
        }
        let protocol = flow.client().protocol;
        let protocol = Protocol::from_number(protocol)
            .map_or_else(|| protocol.to_string(), |protocol| protocol.to_string());
        let states = self.usage.states.entry(protocol).or_default();
        *states.entry(flow.state().name().to_owned()).or_default() += 1;
    }
}

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
