//! Since when devices have programs of ours: `auto` does not leave a device because of a program that came much later.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A CNI attaches its programs while it sets a pod up. A program of others that comes later than this is no part of the
/// pod's network, and connections over the device are open.
const SETTLED: Duration = Duration::from_mins(1);

/// Since when each device has programs of ours, by its index. `None`: since before this process.
#[derive(Debug, Default)]
pub(super) struct Tenure(Option<BTreeMap<u32, Option<Instant>>>);

impl Tenure {
    /// Notes which devices have programs of ours now.
    pub(super) fn note(&mut self, devices: impl Iterator<Item = u32>, now: Instant) {
        let before = self.0.take();
        let since = |device: &u32| match &before {
            None => None,
            Some(before) => before.get(device).copied().unwrap_or(Some(now)),
        };
        self.0 = Some(devices.map(|device| (device, since(&device))).collect());
    }

    /// Whether the device had programs of ours for so long that it keeps them.
    pub(super) fn is_settled(&self, device: u32, now: Instant) -> bool {
        let since = self.0.as_ref().and_then(|devices| devices.get(&device));
        since.is_some_and(|since| since.is_none_or(|since| now.duration_since(since) >= SETTLED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_settled_after_a_time_or_if_it_was_found_so() {
        let start = Instant::now();
        let mut tenure = Tenure::default();
        assert!(!tenure.is_settled(1, start));
        tenure.note([1].into_iter(), start);
        assert!(tenure.is_settled(1, start), "a former agent attached its programs");

        tenure.note([1, 2].into_iter(), start);
        assert!(!tenure.is_settled(2, start));
        tenure.note([2].into_iter(), start + SETTLED / 2);
        assert!(!tenure.is_settled(2, start + SETTLED / 2));
        assert!(tenure.is_settled(2, start + SETTLED));

        // Device 1 lost its programs; another one may have its index now.
        tenure.note([1, 2].into_iter(), start + SETTLED);
        assert!(!tenure.is_settled(1, start + SETTLED));
    }
}
