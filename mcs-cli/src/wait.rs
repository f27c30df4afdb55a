//! Asks a cluster again and again, until it is as it should be or time is up.

use std::time::Duration;

use anyhow::bail;
use mcs_kube::told;
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

/// As [`until`], but a question that fails is asked again too: an API server may be restarted.
///
/// # Errors
/// Time is up. The last error is told.
pub(crate) async fn patiently<T>(
    end: Instant,
    mut ask: impl AsyncFnMut() -> anyhow::Result<Result<T, String>>,
) -> anyhow::Result<T> {
    let asked = async || match ask().await {
        Err(error) if Instant::now() < end => Ok(Err(told(&error))),
        answer => answer,
    };
    until(end, asked).await
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
    #[tokio::test]
    async fn a_question_that_fails_is_asked_again() {
        let mut answers = vec![Ok(Ok("there")), Err(anyhow::anyhow!("503"))];
        let end = Instant::now() + 60 * PAUSE;
        assert_eq!(patiently(end, async || answers.pop().unwrap()).await.unwrap(), "there");
        let failed = async || Err::<Result<(), _>, _>(anyhow::anyhow!("503"));
        assert_eq!(patiently(Instant::now(), failed).await.unwrap_err().to_string(), "503");
    }
}
