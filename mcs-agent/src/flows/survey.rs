use std::collections::BTreeMap;

use super::{Entry, FlowPair, Pairing};
use crate::model::Protocol;

/// What a walk over the flow table found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// Entries.
    pub entries: usize,
    /// Flows that have one of their two entries and are not over.
    pub halves: usize,
    /// Flows by protocol and by state.
    pub states: BTreeMap<String, BTreeMap<String, usize>>,
    /// Flows that are over.
    pub due: Vec<FlowPair>,
}

/// Makes a [`Survey`] of the entries as they come.
#[derive(Debug)]
pub struct Surveyor {
    now_ns: u64,
    pairing: Pairing,
    survey: Survey,
}

impl Surveyor {
    /// Begins at this instant of `CLOCK_MONOTONIC`.
    pub fn new(now_ns: u64) -> Self {
        Self { now_ns, pairing: Pairing::default(), survey: Survey::default() }
    }

    /// Takes the next entry.
    pub fn add(&mut self, entry: Entry) {
        self.survey.entries += 1;
        if let Some(flow) = self.pairing.add(entry) {
            self.survey.count(&flow, self.now_ns);
        }
    }

    /// Ends.
    pub fn finish(self) -> Survey {
        let mut survey = self.survey;
        for flow in self.pairing.rest() {
            survey.halves += usize::from(!flow.is_due(self.now_ns));
            survey.count(&flow, self.now_ns);
        }
        survey
    }
}

impl Survey {
    fn count(&mut self, flow: &FlowPair, now_ns: u64) {
        if flow.is_due(now_ns) {
            self.due.push(*flow);
            return;
        }
        let protocol = flow.client().protocol;
        let protocol = Protocol::from_number(protocol)
            .map_or_else(|| protocol.to_string(), |protocol| protocol.to_string());
        let states = self.states.entry(protocol).or_default();
        *states.entry(flow.state().name().to_owned()).or_default() += 1;
    }
}
