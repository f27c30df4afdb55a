//! Waits with a limit for something that another process does.

use std::{
    env,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;

/// How long a case waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(20);
/// The variable with a number by which every limit is multiplied, for machines that are slow.
pub const VARIABLE: &str = "MCS_PATIENCE";
/// The variable that says for how many seconds cases `fuzz: ...` try random inputs. Without it they try a fixed number.
pub const FUZZ_SECONDS: &str = "MCS_FUZZ_SECONDS";

/// A limit, or a span whose end another limit marks, on this machine.
pub fn scaled(limit: Duration) -> Duration {
    limit * factor()
}

/// How many times longer than on a usual machine anything may take.
pub fn factor() -> u32 {
    static FACTOR: LazyLock<u32> = LazyLock::new(|| {
        let factor = env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        factor.filter(|factor| *factor > 0).unwrap_or(1)
    });
    *FACTOR
}

/// Tries until `attempt` gives a value. After [`PATIENCE`] it is an error that names `what` and the
/// last obstacle, which is what `attempt` returns as an error.
pub fn until<T>(what: &str, attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    within(PATIENCE, what, attempt)
}

/// The same with another patience, which is [`scaled`] as well.
pub fn within<T>(
    patience: Duration,
    what: &str,
    mut attempt: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let patience = scaled(patience);
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
