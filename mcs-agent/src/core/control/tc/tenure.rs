//! Since when devices have programs of ours: `auto` does not leave a device because of a program that came much later than
//! those that it attached.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A CNI attaches its programs while it sets a pod up. A program of others that comes later than this is no part of the
/// pod's network, and connections over the device are open.
const SETTLED: Duration = Duration::from_mins(1);

/// Since when each device has programs of ours.
#[derive(Debug)]
pub(super) struct Tenure {
    /// Whether `auto` attached the programs that the first check finds. Those of `on` are on devices that `auto` leaves alone.
    inherits: bool,
    /// By the index of the device; none before the first check. `None`: since before this process.
    devices: Option<BTreeMap<u32, Option<Instant>>>,
}

impl Tenure {
    pub(super) const fn new(inherits: bool) -> Self {
        Self { inherits, devices: None }
    }

    /// Notes which devices have programs of ours now.
    pub(super) fn note(&mut self, devices: impl Iterator<Item = u32>, now: Instant) {
        let before = self.devices.take();
        let since = |device: &u32| match &before {
            None => (!self.inherits).then_some(now),
            Some(before) => before.get(device).copied().unwrap_or(Some(now)),
        };
        let devices = devices.map(|device| (device, since(&device))).collect();
        self.devices = Some(devices);
    }

    /// Whether the device had programs of ours for so long that it keeps them.
    pub(super) fn is_settled(&self, device: u32, now: Instant) -> bool {
        let since = self.devices.as_ref().and_then(|devices| devices.get(&device));
        since.is_some_and(|since| since.is_none_or(|since| now.duration_since(since) >= SETTLED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_settled_after_a_time_or_if_it_was_found_so() {
        let start = Instant::now();
        let mut tenure = Tenure::new(true);
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

    #[test]
    fn what_on_attached_is_judged_as_if_it_were_new() {
        let start = Instant::now();
        let mut tenure = Tenure::new(false);
        tenure.note([1].into_iter(), start);
        assert!(!tenure.is_settled(1, start));
        tenure.note([1].into_iter(), start + SETTLED);
        assert!(tenure.is_settled(1, start + SETTLED), "`auto` has left it there");
    }
}
