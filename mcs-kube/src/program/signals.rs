//! The signals that end the process.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT since [`Signals::listen`].
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to handle both signals. The first process of a container loses a signal that it does not handle.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot handle SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot handle SIGINT")?,
        })
    }

    /// Waits for a signal. An earlier one counts.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for SIGTERM or SIGINT.
pub async fn until_signal() -> anyhow::Result<()> {
    Signals::listen()?.next().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_signal_counts_that_comes_before_anybody_waits() {
        let mut signals = Signals::listen().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        timeout(Duration::from_secs(5), signals.next()).await.unwrap();
    }
}
