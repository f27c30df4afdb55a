use std::{collections::BTreeMap, time::SystemTime};

use crate::model::ObjectKey;

/// Changes of objects that are not in the maps yet.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    imports: usize,
    slices: usize,
    /// What made a controller change an EndpointSlice, by slice: the oldest of several.
    triggers: BTreeMap<ObjectKey, SystemTime>,
}

impl Unwritten {
    /// A ServiceImport came, changed or went.
    pub(super) fn add_import(&mut self) {
        self.imports += 1;
    }

    /// An EndpointSlice came or changed, because of something that happened then, if it says so.
    pub(super) fn add_slice(&mut self, slice: &ObjectKey, trigger: Option<SystemTime>) {
        self.slices += 1;
        if let Some(trigger) = trigger {
            self.triggers.entry(slice.clone()).or_insert(trigger);
        }
    }

    /// An EndpointSlice went: what it said last is not why.
    pub(super) fn add_deletion(&mut self, slice: &ObjectKey) {
        self.slices += 1;
        self.triggers.remove(slice);
    }

    /// How many changes of ServiceImports.
    pub(super) const fn imports(&self) -> usize {
        self.imports
    }

    /// How many changes of EndpointSlices.
    pub(super) const fn slices(&self) -> usize {
        self.slices
    }

    /// When that happened which the maps follow with these changes.
    pub(super) fn triggers(&self) -> impl Iterator<Item = SystemTime> {
        self.triggers.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn the_oldest_trigger_of_a_slice_counts_until_it_goes() {
        let (web, dns) = (ObjectKey::new("shop", "web-a"), ObjectKey::new("shop", "dns-a"));
        let mut unwritten = Unwritten::default();
        unwritten.add_slice(&web, Some(at(1)));
        unwritten.add_slice(&web, Some(at(2)));
        unwritten.add_slice(&dns, None);
        assert_eq!(unwritten.triggers().collect::<Vec<_>>(), [at(1)]);
        unwritten.add_deletion(&web);
        assert_eq!(unwritten.triggers().count(), 0);
        assert_eq!(unwritten.slices(), 4);
    }
}
