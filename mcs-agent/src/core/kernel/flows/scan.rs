//! Counting the entries of the flow table.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use mcs_common::FlowFlags;

use super::{Connects, FlowBounds, FlowEntry, FlowPair, FlowUsage, Pairing};
use crate::core::model::Protocol;

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
