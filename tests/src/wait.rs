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
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(obstacle) if Instant::now() > deadline => {
                bail!("waited {PATIENCE:?} for {what}: {obstacle:#}");
            }
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}
