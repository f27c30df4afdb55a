//! Asks a cluster again and again, until it is as it should be or time is up. A wait says what it waits for.

use std::{pin::pin, time::Duration};

use anyhow::bail;
use mcs_kube::{one_line, told};
use tokio::time::{Instant, sleep, timeout};

/// How long after an answer it asks again.
const PAUSE: Duration = Duration::from_secs(1);
/// What a wait says, and when: first, once it waits for something else, and again.
const FIRST: Duration = Duration::from_secs(4);
const CHANGED: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(30);

/// A wait that says on standard error what it waits for.
pub(crate) struct Waiting {
    what: String,
    begun: Instant,
    told: Option<(Instant, String)>,
}

impl Waiting {
    /// `what`: what it waits for until it knows better.
    pub(crate) fn new(what: &str) -> Self {
        Self { what: what.to_owned(), begun: Instant::now(), told: None }
    }

    /// It waits for this from now on.
    pub(crate) fn note(&mut self, what: String) {
        self.what = what;
        if let Some(line) = self.due(Instant::now()) {
            eprintln!("{line}");
        }
    }

    /// Does some work, and says meanwhile what it waits for.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            if let Ok(done) = timeout(PAUSE, &mut work).await {
                return done;
            }
            self.note(self.what.clone());
        }
    }

    /// Does some work, and looks meanwhile what keeps it waiting. A look without result changes nothing.
    pub(crate) async fn watch<T>(
        &mut self,
        work: impl Future<Output = T>,
        look: impl AsyncFn() -> Option<String>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            let looked = tokio::select! {
                done = &mut work => return done,
                looked = self.during(async {
                    sleep(PAUSE).await;
                    look().await
                }) => looked,
            };
            if let Some(what) = looked {
                self.note(what);
            }
        }
    }

    /// The line to print, if it is time for one.
    fn due(&mut self, now: Instant) -> Option<String> {
        let is_due = match &self.told {
            None => now - self.begun >= FIRST,
            Some((at, what)) if *what == self.what => now - *at >= AGAIN,
            Some((at, _)) => now - *at >= CHANGED,
        };
        is_due.then(|| {
            self.told = Some((now, self.what.clone()));
            format!("mcs: waits: {}", one_line(&self.what))
        })
    }
}

/// Asks until there is an answer, or `end`. The inner error is why there is none yet.
///
/// # Errors
/// A question fails, or time is up.
pub(crate) async fn until<T>(
    end: Instant,
    mut ask: impl AsyncFnMut() -> anyhow::Result<Result<T, String>>,
) -> anyhow::Result<T> {
    let mut waiting = Waiting::new("an API server has not answered yet");
    loop {
        match waiting.during(ask()).await? {
            Ok(answer) => return Ok(answer),
            Err(why) if Instant::now() >= end => bail!(why),
            Err(why) => waiting.note(why),
        }
        sleep(PAUSE).await;
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

    #[test]
    fn a_wait_says_what_it_waits_for() {
        let mut waiting = Waiting::new("an answer");
        let begun = waiting.begun;
        let mut said = Vec::new();
        for second in 0..100 {
            let image = "pod a: ErrImagePull no such\nimage";
            waiting.what = if second < 7 { "an answer" } else { image }.to_owned();
            let line = waiting.due(begun + Duration::from_secs(second));
            said.extend(line.map(|line| (second, line)));
        }
        let seconds: Vec<_> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [4, 9, 39, 69, 99]);
        assert_eq!(said[0].1, "mcs: waits: an answer");
        assert!(said[1].1.starts_with("mcs: waits: pod a: ErrImagePull no such"), "{said:?}");
        assert!(!said[1].1.contains('\n'));
    }

    #[tokio::test]
    async fn work_is_looked_at_until_it_is_done() {
        let mut waiting = Waiting::new("helm");
        let looks = std::cell::Cell::new(0);
        let look = async || {
            looks.set(looks.get() + 1);
            (looks.get() == 1).then(|| "pods".to_owned())
        };
        let work = async {
            sleep(PAUSE * 5 / 2).await;
            7
        };
        assert_eq!(waiting.watch(work, look).await, 7);
        assert_eq!((looks.get(), &*waiting.what), (2, "pods"), "the second had no result");
        // A look that hangs keeps nobody from saying so.
        let mut waiting = Waiting { begun: Instant::now() - FIRST, ..Waiting::new("helm") };
        let hangs = async || std::future::pending::<Option<String>>().await;
        waiting.watch(sleep(PAUSE * 3 / 2), hangs).await;
        assert!(waiting.told.is_some());
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
