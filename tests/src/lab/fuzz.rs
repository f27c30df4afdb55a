//! Random inputs: a fixed number of them, or as many as there is time for.

use std::{
    panic,
    sync::{Arc, Mutex, PoisonError},
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner},
};

use crate::{prelude::*, suite::seconds_of, wait::FUZZ_SECONDS};

/// How long to look for a smaller input that fails as well.
const SHRINKING: Duration = Duration::from_mins(1);

/// The directory of the seeds of failed inputs. They are replayed first.
#[derive(Clone, Copy, Debug)]
pub struct Regressions(&'static str);

impl Regressions {
    /// Of objects that are read.
    pub const OBJECTS: Self =
        Self(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/objects.txt"));
    /// Of answers of an API server.
    pub const MESSAGES: Self =
        Self(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/messages.txt"));
    /// Of packets.
    pub const PACKETS: Self =
        Self(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/packets.txt"));
    /// Of what maps hold when an agent starts.
    pub const RESTORE: Self =
        Self(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/restore.txt"));
}

/// Tries inputs that `strategy` makes: `cases` of them, or for as long as [`FUZZ_SECONDS`] says. One that
/// makes `test` fail or panic is made as small as it gets, and is an error. Tells how many were tried.
pub fn fuzz<S: Strategy>(
    regressions: Regressions,
    cases: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result,
) -> Result {
    let start = Instant::now();
    let time = seconds_of(FUZZ_SECONDS)?;
    let test = |input| test(input).map_err(|error| TestCaseError::fail(format!("{error:#}")));
    let mut tried = 0;
    while tried == 0 || start.elapsed() < time {
        let mut runner = TestRunner::new(Config {
            cases,
            failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions.0))),
            max_shrink_time: u32::try_from(SHRINKING.as_millis())?,
            ..Config::default()
        });
        let (result, panic) = with_quiet_panics(|| runner.run(strategy, test));
        match result {
            Ok(()) => tried += cases,
            Err(TestError::Abort(reason)) => bail!("{reason}"),
            Err(TestError::Fail(reason, input)) => bail!(
                "{reason}\n{panic}\nThe smallest input found:\n{input:?}\nIts seed is noted in {}",
                regressions.0
            ),
        }
    }
    tell(format!("{tried} inputs, 0 failures"));
    Ok(())
}

/// Runs `work`, whose panics say nothing at once. Returns what the last of them says.
fn with_quiet_panics<T>(work: impl FnOnce() -> T) -> (T, String) {
    let last = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&last);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    let result = work();
    panic::set_hook(usual);
    let last = std::mem::take(&mut *last.lock().unwrap_or_else(PoisonError::into_inner));
    (result, last)
}
