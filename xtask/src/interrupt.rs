//! Ctrl-C, and a request to end, without leaving anything behind.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM},
    flag,
};

/// The exit status of what Ctrl-C has ended, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit status of what a closed output has ended, as shells have it.
const OUTPUT_CLOSED: i32 = 128 + SIGPIPE;

const INTERVAL: Duration = Duration::from_millis(10);

/// Ends this process once nobody reads its output any more (`| head`). No destructor runs.
pub(crate) fn end_with_output() -> io::Result<()> {
    flag::register_conditional_shutdown(SIGPIPE, OUTPUT_CLOSED, Arc::new(AtomicBool::new(true)))
        .map(drop)
}

/// Tells whether a signal has come that ends a program. The signals no longer end this one.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the signals from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&came))?;
        }
        Ok(Self(came))
    }

    /// Whether one has come.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once one has come.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.came(), "interrupted");
        Ok(())
    }

    /// Sleeps, and ends early with an error when one comes.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            thread::sleep(INTERVAL);
        }
        Ok(())
    }
}
