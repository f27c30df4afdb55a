//! Waiting for what another process does.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;

/// How long a case waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(20);

/// Tries until `attempt` gives a value. After [`PATIENCE`] it is an error that names `what` and the
/// last obstacle, which is what `attempt` returns as an error.
pub fn until<T>(what: &str, attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    within(PATIENCE, what, attempt)
}

/// The same with another patience.
pub fn within<T>(
    patience: Duration,
    what: &str,
    mut attempt: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(obstacle) if Instant::now() > deadline => {
                bail!("waited {patience:?} for {what}: {obstacle:#}");
            }
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}
