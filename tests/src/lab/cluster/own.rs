//! Clusters of a suite, which go with its process.

use std::{
    process,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::{Claim, ClusterSet, Observer, Plan, Programs, removal, start};

/// How often a signal is looked for.
const INTERVAL: Duration = Duration::from_millis(50);
/// The exit status of what Ctrl-C has ended, as shells have it.
const INTERRUPTED: i32 = 130;

/// The clusters of a set of a suite. They are removed when this is dropped, and when a signal ends the process.
#[derive(Debug)]
pub struct OwnClusters {
    claim: Arc<Claim>,
    keep: bool,
    interrupted: Arc<AtomicBool>,
}

impl OwnClusters {
    /// Starts them, and tells the progress on standard output. `keep`: they stay.
    pub fn start(
        set: ClusterSet,
        programs: &Programs,
        plan: &Plan,
        keep: bool,
    ) -> anyhow::Result<Self> {
        let claim = Arc::new(Claim::take(set)?);
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&interrupted))?;
        }
        // What is there was kept for somebody to look at, or has survived its suite.
        removal::remove(&claim)?;
        let progress = Progress { begin: Instant::now(), interrupted: Arc::clone(&interrupted) };
        start(&claim, plan, programs, &progress).inspect_err(|_| {
            if interrupted.load(Ordering::Relaxed) {
                eprintln!("interrupted; the clusters are removed");
                process::exit(INTERRUPTED);
            }
        })?;
        remove_when_interrupted(Arc::clone(&interrupted), Arc::downgrade(&claim));
        Ok(Self { claim, keep, interrupted })
    }
}

impl Drop for OwnClusters {
    fn drop(&mut self) {
        if self.keep {
            println!("The clusters stay: {} status|kubeconfig|down", self.claim.set().command());
            return;
        }
        if self.interrupted.load(Ordering::Relaxed) {
            // The other thread ends this process when it is done.
            loop {
                thread::park();
            }
        }
        if let Err(error) = removal::remove(&self.claim) {
            eprintln!("cannot remove the clusters: {error:#}");
        }
    }
}

/// Ends this process when a signal has come, whatever it does then, unless the clusters have gone before.
fn remove_when_interrupted(interrupted: Arc<AtomicBool>, claim: Weak<Claim>) {
    thread::spawn(move || {
        while !interrupted.load(Ordering::Relaxed) {
            thread::sleep(INTERVAL);
            if claim.strong_count() == 0 {
                return;
            }
        }
        let Some(claim) = claim.upgrade() else { return };
        if let Err(error) = removal::remove(&claim) {
            eprintln!("cannot remove the clusters: {error:#}");
        }
        eprintln!("interrupted; the clusters are removed");
        process::exit(INTERRUPTED);
    });
}

struct Progress {
    begin: Instant,
    interrupted: Arc<AtomicBool>,
}

impl Observer for Progress {
    fn progress(&self, what: &str) {
        println!("{:>6.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }
}
