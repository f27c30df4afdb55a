//! The packet path's part of the agent: a thread of its own, since bpf(2) and netlink wait for
//! whoever else is changing devices.

#[cfg(test)]
pub(crate) mod fixture;
mod report;
mod worker;

use std::{
    future,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::sync::watch;

pub use report::{DeviceReport, TcReport};

use self::worker::Worker;
use super::{Config, TcAttach};
use crate::{
    devices::TcMode,
    loader::{Classifiers, Features, Mechanism, Pins, TcHook, detach_all},
};

/// How long is waited until programs are attached, or switched to.
const PATIENCE: Duration = Duration::from_secs(10);

/// The hooks of devices that programs are needed for.
pub(super) fn hooks(config: &Config) -> Vec<TcHook> {
    let wanted = |hook: &TcHook| match hook {
        TcHook::ToPod | TcHook::FromPod => config.packets.wants_pods(),
        TcHook::Uplink => config.packets.wants_uplinks(),
    };
    TcHook::ALL.into_iter().filter(wanted).collect()
}

/// The packet path: looked after by a thread, unless it is off.
pub(super) struct PacketPath {
    report: watch::Receiver<TcReport>,
    /// Absent if it is off.
    thread: Option<Thread>,
}

struct Thread {
    /// Says which programs to attach; nothing before the first.
    orders: watch::Sender<Option<Order>>,
    /// Says the numbers of those orders that have been followed.
    done: mpsc::Receiver<u64>,
}

/// Programs to attach, in the places of those of the order before.
#[derive(Clone)]
struct Order {
    number: u64,
    classifiers: Arc<Classifiers>,
}

impl PacketPath {
    /// Starts the thread, which attaches nothing before [`PacketPath::activate`]. With `--tc=off`
    /// there is none, and what an earlier agent has attached is taken off.
    pub(super) async fn start(
        config: &Config,
        pins: &Pins,
        features: Features,
    ) -> anyhow::Result<Self> {
        let mechanism = mechanism(config.tc_attach, features)?;
        let first = TcReport::new(config.packets.mode, mechanism);
        let (sender, report) = watch::channel(first);
        if config.packets.mode == TcMode::Off {
            let detached = detach_all(pins).await.context("cannot detach programs from devices")?;
            tracing::info!(detached = detached.programs, "devices: off");
            return Ok(Self { report, thread: None });
        }
        let (orders, given) = watch::channel(None);
        let worker = Worker::new(pins, features, mechanism, config.packets.clone());
        let (said, done) = mpsc::channel();
        let work = move || {
            if let Err(error) = worker.run(given, said, &sender) {
                tracing::error!("cannot look after devices: {error:#}");
            }
        };
        thread::Builder::new()
            .name("devices".to_owned())
            .spawn(work)
            .context("cannot start a thread")?;
        Ok(Self { report, thread: Some(Thread { orders, done }) })
    }

    /// Attaches these programs, or switches to them: their maps are what they should be. Waits until
    /// all devices have them.
    pub(super) fn attach(&self, classifiers: &Arc<Classifiers>) {
        let Some(Thread { orders, done }) = &self.thread else { return };
        let last = orders.borrow().clone();
        if last.as_ref().is_some_and(|last| Arc::ptr_eq(&last.classifiers, classifiers)) {
            return;
        }
        let number = last.map_or(0, |last| last.number + 1);
        orders.send_replace(Some(Order { number, classifiers: Arc::clone(classifiers) }));
        let until = Instant::now() + PATIENCE;
        loop {
            match done.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(followed) if followed < number => {}
                // A thread that ended is told of by `changed`.
                Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    tracing::warn!("devices have not been looked at in {PATIENCE:?}; going on");
                    return;
                }
            }
        }
    }

    /// How devices stand.
    pub(super) fn report(&self) -> TcReport {
        self.report.borrow().clone()
    }

    /// Waits until [`PacketPath::report`] has changed.
    pub(super) async fn changed(&mut self) -> anyhow::Result<()> {
        if self.thread.is_none() {
            return future::pending().await;
        }
        if self.report.changed().await.is_err() {
            bail!("nobody looks after devices any more");
        }
        Ok(())
    }
}

fn mechanism(wanted: TcAttach, features: Features) -> anyhow::Result<Mechanism> {
    Ok(match wanted {
        TcAttach::Auto | TcAttach::Tcx if features.tcx => Mechanism::Tcx,
        TcAttach::Tcx => bail!("--tc-attach=tcx needs Linux 6.6: use --tc-attach=auto"),
        TcAttach::Auto | TcAttach::Clsact => Mechanism::Clsact,
    })
}
