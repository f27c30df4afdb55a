//! The time, by the clock of the runtime: a played clusterset lets hours pass at once.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use jiff::{SignedDuration, Timestamp};

/// By how many milliseconds the clock of a played controller is wrong.
pub type Skew = Arc<AtomicI64>;

tokio::task_local! {
    pub(crate) static SKEW: Skew;
}

thread_local! {
    /// What a played clusterset has as its time of day, and when it began.
    static PLAYED: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
}

/// The time now. `std`'s own, unless a test has paused the runtime's clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time of day: the system's own, unless this thread plays a clusterset.
pub(crate) fn time_of_day() -> Timestamp {
    let Some((began, at)) = PLAYED.get() else { return Timestamp::now() };
    let passed = SignedDuration::try_from(now() - at).unwrap_or_default();
    let skew = SKEW.try_with(|skew| skew.load(Ordering::Relaxed)).unwrap_or_default();
    let skewed = began.saturating_add(passed + SignedDuration::from_millis(skew));
    skewed.unwrap_or(began)
}

/// It is `began` now for the controllers that this thread plays, and time passes by the clock of the runtime.
pub fn play_from(began: Timestamp) {
    PLAYED.set(Some((began, now())));
}
