//! How long a change of endpoints takes from its source cluster to the slice of this one.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::{
    clusterset::{ClusterId, ImportedSlice, ServiceName},
    plan::Write,
};

/// The latest measured change of each slice. A slice is rewritten for other reasons too.
#[derive(Debug)]
pub(super) struct Propagation {
    since: Timestamp,
    latest: HashMap<(Arc<str>, Arc<str>), Timestamp>,
}

impl Propagation {
    /// Starts to measure. Earlier changes have waited for this replica.
    pub(super) fn since(now: Timestamp) -> Self {
        Self { since: now, latest: HashMap::new() }
    }

    /// The delay of each change that these writes made, with its source cluster.
    pub(super) fn measure(
        &mut self,
        writes: &[Write],
        now: Timestamp,
    ) -> Vec<(ClusterId, Duration)> {
        let mut measured = Vec::new();
        for write in writes {
            match write {
                Write::ApplySlice(slice) => {
                    measured.extend(
                        self.of_slice(slice, now).map(|took| (slice.cluster.clone(), took)),
                    );
                }
                Write::DeleteSlice(service, _, slice) => {
                    self.latest.remove(&key(service, slice));
                }
                _ => {}
            }
        }
        measured
    }

    fn of_slice(&mut self, slice: &ImportedSlice, now: Timestamp) -> Option<Duration> {
        let change: Timestamp = slice.trigger_time.as_deref()?.parse().ok()?;
        if change < self.since {
            return None;
        }
        let former = self.latest.insert(key(&slice.service, &slice.name), change);
        let is_new = former.is_none_or(|former| former < change);
        // Clocks of clusters differ.
        is_new.then(|| now.duration_since(change).try_into().unwrap_or(Duration::ZERO))
    }
}

fn key(service: &ServiceName, slice: &Arc<str>) -> (Arc<str>, Arc<str>) {
    (service.namespace().into(), Arc::clone(slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::fixture::{cluster, imported_slice, name};

    fn write(time: &str) -> Write {
        Write::ApplySlice(ImportedSlice {
            trigger_time: Some(time.into()),
            ..imported_slice("west")
        })
    }

    #[test]
    fn each_change_is_measured_once() {
        let at = |second: &str| format!("2026-01-02T03:04:{second}Z").parse::<Timestamp>().unwrap();
        let mut propagation = Propagation::since(at("10"));
        let mut measure = |change: &str, now: &str| {
            let writes = [write(&at(change).to_string())];
            let measured = propagation.measure(&writes, at(now));
            measured.first().map(|(_, took)| took.as_millis())
        };
        assert_eq!(measure("09", "11"), None, "it has waited for this replica");
        assert_eq!(measure("10.5", "11"), Some(500));
        assert_eq!(measure("10.5", "12"), None, "written again for another reason");
        assert_eq!(measure("13", "12"), Some(0), "that cluster's clock is fast");
    }

    #[test]
    fn a_slice_that_is_gone_takes_no_memory() {
        let mut propagation = Propagation::since(Timestamp::UNIX_EPOCH);
        let writes = [write("2026-01-02T03:04:05Z")];
        propagation.measure(&writes, Timestamp::now());
        assert_eq!(propagation.latest.len(), 1);
        let gone = Write::DeleteSlice(name("shop/web"), cluster("west"), "web".into());
        propagation.measure(&[gone], Timestamp::now());
        assert!(propagation.latest.is_empty());
    }
}
