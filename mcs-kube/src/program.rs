//! The shared parts of the command lines: logs, HTTP, a page, output, variables, the runtime, and signals.

pub mod finding;
mod heartbeat;
pub mod http;
mod logs;
mod output;
pub mod page;
pub mod shell;
mod signals;
pub mod suggest;
mod table;
mod trace;

use std::{
    env,
    ffi::OsStr,
    net::{AddrParseError, SocketAddr},
    panic::resume_unwind,
    str::FromStr,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use clap::builder::Resettable;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

pub use tracing_subscriber::filter::ParseError;

pub use self::{
    heartbeat::Heartbeat,
    logs::{LogFilter, LogFormat, start_logs},
    output::{Format, FormatArgs, OutputArgs, Style},
    signals::{Signals, until_signal},
    table::{growing_row, has_reader, input_ended, print, table, takes_output, terminal_width},
    trace::{TraceFormat, Verdict, trace_duration},
};

/// An address to listen on, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen(pub Option<SocketAddr>);

/// The text is neither an address with a port nor `off`.
#[derive(Debug, thiserror::Error)]
#[error("write it as 127.0.0.1:16450, [::]:16450 or off")]
pub struct ListenError(#[from] AddrParseError);

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if text == "off" {
            return Ok(Self(None));
        }
        Ok(Self(Some(text.parse()?)))
    }
}

/// Changes the command so that an empty `MCS_` variable counts as unset: manifests set all of them.
#[must_use]
pub fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| {
        name.to_string_lossy().starts_with("MCS_")
            && env::var_os(name).is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| {
            if arg.get_env().is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg }
        })
        .mut_subcommands(without_empty_variables)
}

/// Waits until a moment; for ever if there is none.
pub async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Runs a command on a runtime of this thread alone.
///
/// # Errors
/// Those of the command, or the runtime cannot start.
pub fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(command);
    // Time to finish the write of a file. A running name lookup does not delay the exit further.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

/// Runs a task on a thread of this name, by [`block_on`]. Returns what waits for its result, and panics if the task has panicked.
///
/// # Errors
/// The thread cannot start.
pub fn run_on_thread<T: Send + 'static, F: Future<Output = anyhow::Result<T>>>(
    name: &str,
    task: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<impl Future<Output = anyhow::Result<T>>> {
    let (running, ended) = oneshot::channel::<()>();
    let work = move || {
        // It is dropped when the thread ends, also by a panic.
        let _running = running;
        block_on(task())
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    let thread = thread.context("cannot start a thread")?;
    Ok(async {
        let _ = ended.await;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_thread_is_told_whether_it_returns_fails_or_panics() {
        let (end, ending) = oneshot::channel::<()>();
        let thread = run_on_thread("one", async move || {
            let _ = ending.await;
            Ok(thread::current().name().map(str::to_owned))
        });
        drop(end);
        assert_eq!(thread.unwrap().await.unwrap().as_deref(), Some("one"));

        let thread = run_on_thread("two", async || anyhow::bail!("no room"));
        let result: anyhow::Result<()> = thread.unwrap().await;
        assert_eq!(result.unwrap_err().to_string(), "no room");

        let thread = run_on_thread::<(), _>("three", async || panic!("the test wants it"));
        assert!(tokio::spawn(thread.unwrap()).await.unwrap_err().is_panic());
    }
}
