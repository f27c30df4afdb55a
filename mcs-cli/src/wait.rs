//! Asks a cluster again and again, until it is as it should be or time is up.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

/// How long after an answer it asks again.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks until there is an answer, or `end`. The inner error is why there is none yet.
///
/// # Errors
/// A question fails, or time is up.
pub(crate) async fn until<T>(
    end: Instant,
    mut ask: impl AsyncFnMut() -> anyhow::Result<Result<T, String>>,
) -> anyhow::Result<T> {
    loop {
        match ask().await? {
            Ok(answer) => return Ok(answer),
            Err(why) if Instant::now() >= end => bail!(why),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_asks_again_until_the_time_is_up() {
        let mut reasons = ["later", "not yet"].into_iter().map(str::to_owned);
        let mut answer = async || Ok(reasons.next().map_or(Ok("there"), Err));
        let now = Instant::now();
        let error = until(now, &mut answer).await.unwrap_err();
        assert_eq!(error.to_string(), "later");
        assert_eq!(until(now + 60 * PAUSE, answer).await.unwrap(), "there");
    }
}
