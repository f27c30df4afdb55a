//! Does the same in many clusters, a few at a time, and shows what became of each.

use std::process::ExitCode;

use futures_util::{StreamExt as _, stream};
use mcs_kube::{
    one_line,
    program::{print, table, terminal_width},
    told,
};

/// How many clusters are asked at a time. One machine has all kubeconfigs, and each cluster can take several tools.
pub(crate) const AT_A_TIME: usize = 8;

/// Does the same for each, [`AT_A_TIME`]. The results have the order of the input.
pub(crate) async fn each<T, R>(
    all: impl IntoIterator<Item = T>,
    work: impl AsyncFn(T) -> R,
) -> Vec<R> {
    each_of(AT_A_TIME, all, work).await
}

/// Does the same for each, so many at a time. One that takes long holds up no other.
pub(crate) async fn each_of<T, R>(
    at_a_time: usize,
    all: impl IntoIterator<Item = T>,
    work: impl AsyncFn(T) -> R,
) -> Vec<R> {
    let work = &work;
    let work =
        all.into_iter().enumerate().map(|(place, one)| async move { (place, work(one).await) });
    let mut done: Vec<_> = stream::iter(work).buffer_unordered(at_a_time.max(1)).collect().await;
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

/// All results, or the text of every error.
///
/// # Errors
/// At least one has failed.
pub(crate) fn all_of<T>(results: Vec<anyhow::Result<T>>) -> anyhow::Result<Vec<T>> {
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(one) => all.push(one),
            Err(error) => failed.push(error),
        }
    }
    match failed.len() {
        0 => Ok(all),
        1 => Err(failed.remove(0)),
        _ => Err(Several(failed).into()),
    }
}

/// The errors of several clusters. Their causes decide on the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(told).collect::<Vec<_>>().join("; "))]
pub(crate) struct Several(pub(crate) Vec<anyhow::Error>);

/// What became of one cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// What was done.
    Done(String),
    /// Why nothing was done.
    Left(String),
    /// What has failed, and what was done before.
    Failed(String),
}

/// The clusters of a command, with what became of each.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Vec<(String, Outcome)>);

impl Outcomes {
    pub(crate) fn add(&mut self, cluster: &impl ToString, outcome: Outcome) {
        self.0.push((cluster.to_string(), outcome));
    }

    /// Prints a row for each cluster, failures first. The exit code says whether one has failed.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn show(&self) -> anyhow::Result<ExitCode> {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_by_key(|(_, outcome)| !matches!(outcome, Outcome::Failed(_)));
        let rows = sorted.iter().map(|(cluster, outcome)| {
            let (result, what) = match outcome {
                Outcome::Done(what) => ("done", what),
                Outcome::Left(what) => ("left alone", what),
                Outcome::Failed(what) => ("FAILED", what),
            };
            vec![cluster.clone(), result.to_owned(), one_line(what)]
        });
        print(&table(terminal_width(), &["CLUSTER", "RESULT", "WHAT"], rows))?;
        Ok(self.exit_code())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        let has_failed = self.0.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn a_few_are_at_work_and_a_failure_ends_nobody_else() {
        let (at_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = async |number: usize| {
            most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(5)).await;
            at_work.fetch_sub(1, Ordering::SeqCst);
            if number == 0 { Err(number) } else { Ok(number) }
        };
        let results = each(0..30, work).await;
        assert_eq!(results[0], Err(0));
        assert_eq!(results[1..], (1..30).map(Ok).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), AT_A_TIME);
    }

    #[test]
    fn every_error_is_told() {
        let results = vec![Ok(1), Err(anyhow::anyhow!("east")), Err(anyhow::anyhow!("west"))];
        assert_eq!(all_of(results).unwrap_err().to_string(), "east; west");
    }

    #[test]
    fn one_failure_decides_on_the_exit_code() {
        let mut outcomes = Outcomes::default();
        outcomes.add(&"east", Outcome::Left("as it was".to_owned()));
        assert_eq!(outcomes.exit_code(), ExitCode::SUCCESS);
        outcomes.add(&"west", Outcome::Failed("helm".to_owned()));
        assert_eq!(outcomes.exit_code(), ExitCode::FAILURE);
    }
}
