//! Changes of objects that the maps do not follow yet.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use crate::model::ObjectKey;

/// How many changes of objects the maps do not follow yet, and what triggered them.
#[derive(Debug, Default)]
pub struct PendingChanges {
    imports: usize,
    slices: usize,
    /// The time of the event that made a controller change an EndpointSlice, by slice: the oldest of
    /// several.
    triggers: BTreeMap<ObjectKey, Trigger>,
}

/// What made a controller change an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// `endpoints.kubernetes.io/last-change-trigger-time`.
    pub time: SystemTime,
    /// The source cluster of the slice; empty if it names none.
    pub cluster: Arc<str>,
}

impl PendingChanges {
    /// Counts a ServiceImport that was added, updated or removed.
    pub fn add_import(&mut self) {
        self.imports += 1;
    }

    /// Counts an EndpointSlice that was added or updated.
    pub(super) fn add_slice(&mut self, slice: &ObjectKey, trigger: Option<Trigger>) {
        self.slices += 1;
        if let Some(trigger) = trigger {
            self.triggers.entry(slice.clone()).or_insert(trigger);
        }
    }

    /// Counts an EndpointSlice that was removed. Its last trigger did not cause the removal.
    pub(super) fn add_deletion(&mut self, slice: &ObjectKey) {
        self.slices += 1;
        self.triggers.remove(slice);
    }

    /// Changes of ServiceImports.
    pub const fn imports(&self) -> usize {
        self.imports
    }

    /// Changes of EndpointSlices.
    pub const fn slices(&self) -> usize {
        self.slices
    }

    /// The oldest trigger of each changed EndpointSlice that names one.
    pub fn triggers(&self) -> impl Iterator<Item = &Trigger> {
        self.triggers.values()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(second: u64) -> Trigger {
        Trigger { time: UNIX_EPOCH + Duration::from_secs(second), cluster: "east".into() }
    }

    #[test]
    fn the_oldest_trigger_of_a_slice_counts_until_it_is_removed() {
        let (web, dns) = (ObjectKey::new("shop", "web-a"), ObjectKey::new("shop", "dns-a"));
        let mut changes = PendingChanges::default();
        changes.add_slice(&web, Some(at(1)));
        changes.add_slice(&web, Some(at(2)));
        changes.add_slice(&dns, None);
        assert_eq!(changes.triggers().collect::<Vec<_>>(), [&at(1)]);
        changes.add_deletion(&web);
        assert_eq!(changes.triggers().count(), 0);
        assert_eq!(changes.slices(), 4);
    }
}
