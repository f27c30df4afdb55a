//! Which events are wanted.

use mcs_common::{Counter, TraceEvent};
use mcs_kube::program::Verdict;

use super::Names;
use crate::core::{model::ObjectKey, tables::NameRecord};

/// What becomes of a client for this reason.
pub(super) const fn verdict(reason: Counter) -> Verdict {
    match reason {
        Counter::ConnectTranslated | Counter::SendTranslated | Counter::FlowCreated => {
            Verdict::Translated
        }
        Counter::PacketPassed => Verdict::Passed,
        Counter::PacketDroppedFailed => Verdict::Dropped,
        _ => Verdict::Refused,
    }
}

/// Which events are wanted: those that all of these allow.
#[derive(Debug, Default)]
pub(crate) struct TraceFilter {
    pub(crate) import: Option<ObjectKey>,
    pub(crate) namespace: Option<String>,
    /// Its uid.
    pub(crate) pod: Option<String>,
    pub(crate) process: Option<u32>,
    pub(crate) verdict: Option<Verdict>,
}

impl TraceFilter {
    /// Whether an event is wanted. What costs least is asked first.
    pub(crate) fn wants(&self, event: &TraceEvent, names: &mut Names) -> bool {
        let found = || reason(event).map(verdict);
        self.process.is_none_or(|process| process == event.process)
            && (self.verdict.is_none() || self.verdict == found())
            && self.wants_import(event, names)
            && self.pod.as_ref().is_none_or(|pod| names.pod(event).as_ref() == Some(pod))
    }

    fn wants_import(&self, event: &TraceEvent, names: &mut Names) -> bool {
        if self.import.is_none() && self.namespace.is_none() {
            return true;
        }
        let Some(record) = names.import(event) else { return false };
        let is_import = |import: &ObjectKey| NameRecord::of_import(import) == record;
        let is_in = |namespace: &String| *record.import().namespace == **namespace;
        self.import.as_ref().is_none_or(is_import) && self.namespace.as_ref().is_none_or(is_in)
    }
}

/// What was decided.
pub(super) fn reason(event: &TraceEvent) -> Option<Counter> {
    Counter::ALL.get(event.reason as usize).copied()
}
