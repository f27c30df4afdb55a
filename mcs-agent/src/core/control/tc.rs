//! Attaches the packet path's programs to devices. A separate thread does so, because bpf(2) and netlink wait for
//! other processes that change devices.

#[cfg(test)]
pub(crate) mod fixture;
mod report;
mod tenure;
mod worker;

use std::{future, sync::Arc, thread, time::Duration};

use anyhow::{Context as _, bail};
use tokio::sync::watch;

pub use report::{DeviceReport, TcReport};

use self::worker::Worker;
use super::{
    config::{Config, TcAttach},
    kernel::detach_all,
};
use crate::core::kernel::{
    devices::TcMode,
    loader::{Classifiers, Features, Mechanism, Pins},
};

/// How long the agent waits until programs are attached or switched.
const PATIENCE: Duration = Duration::from_secs(10);

/// The packet path: a thread keeps the programs on devices, unless it is off.
pub(super) struct PacketPath {
    report: watch::Receiver<TcReport>,
    /// Absent with `--tc=off`.
    thread: Option<Thread>,
    /// The number of the latest order, until [`PacketPath::attached`].
    waiting: Option<u64>,
}

struct Thread {
    /// The latest order; none before the first.
    orders: watch::Sender<Option<Order>>,
    /// The number of the latest order that the thread has carried out.
    done: watch::Receiver<Option<u64>>,
}

/// Programs to attach. They replace those of the order before.
#[derive(Clone)]
struct Order {
    number: u64,
    classifiers: Arc<Classifiers>,
}

impl PacketPath {
    /// Starts the thread, which attaches nothing before [`PacketPath::attach`]. With `--tc=off` it starts none, and
    /// detaches the programs of an earlier agent.
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
            return Ok(Self { report, thread: None, waiting: None });
        }
        let (orders, given) = watch::channel(None);
        let worker = Worker::new(pins, features, mechanism, config.packets.clone());
        let (said, done) = watch::channel(None);
        let work = move || {
            if let Err(error) = worker.run(given, &said, &sender) {
                tracing::error!("the thread that keeps programs on devices failed: {error:#}");
            }
        };
        thread::Builder::new()
            .name("devices".to_owned())
            .spawn(work)
            .context("cannot start a thread")?;
        Ok(Self { report, thread: Some(Thread { orders, done }), waiting: None })
    }

    /// Orders these programs to be attached, or switched to: their maps are complete. Does not wait
    /// for the thread, see [`PacketPath::attached`].
    pub(super) fn attach(&mut self, classifiers: &Arc<Classifiers>) {
        let Some(Thread { orders, .. }) = &self.thread else { return };
        let last = orders.borrow().clone();
        if last.as_ref().is_some_and(|last| Arc::ptr_eq(&last.classifiers, classifiers)) {
            return;
        }
        let number = last.map_or(0, |last| last.number + 1);
        orders.send_replace(Some(Order { number, classifiers: Arc::clone(classifiers) }));
        self.waiting = Some(number);
    }

    /// Waits until all devices have the programs of the latest order, but for no longer than [`PATIENCE`].
    pub(super) async fn attached(&mut self) {
        let (Some(Thread { done, .. }), Some(number)) = (&mut self.thread, self.waiting.take())
        else {
            return;
        };
        let followed = done.wait_for(|done| *done >= Some(number));
        if tokio::time::timeout(PATIENCE, followed).await.is_err() {
            tracing::warn!(
                "the programs on devices were not switched within {PATIENCE:?}: the agent continues \
                 without waiting for them"
            );
        }
    }

    /// The state of the devices.
    pub(super) fn report(&self) -> TcReport {
        self.report.borrow().clone()
    }

    /// Waits until the thread has changed the state of the devices.
    pub(super) async fn reported(&mut self) -> anyhow::Result<()> {
        if self.thread.is_none() {
            return future::pending().await;
        }
        self.report.changed().await.context("the thread that keeps programs on devices has ended")
    }
}

fn mechanism(wanted: TcAttach, features: Features) -> anyhow::Result<Mechanism> {
    Ok(match wanted {
        TcAttach::Auto | TcAttach::Tcx if features.tcx => Mechanism::Tcx,
        TcAttach::Tcx => bail!("--tc-attach=tcx needs Linux 6.6: use --tc-attach=auto"),
        TcAttach::Auto | TcAttach::Clsact => Mechanism::Clsact,
    })
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// A packet path whose thread is the test.
    struct Fake {
        path: PacketPath,
        orders: watch::Receiver<Option<Order>>,
        done: watch::Sender<Option<u64>>,
        report: watch::Sender<TcReport>,
    }

    impl Fake {
        fn new() -> Self {
            let (report, read) = watch::channel(TcReport::new(TcMode::Auto, Mechanism::Tcx));
            let (orders, given) = watch::channel(None);
            let (said, done) = watch::channel(None);
            let thread = Some(Thread { orders, done });
            let path = PacketPath { report: read, thread, waiting: None };
            Self { path, orders: given, done: said, report }
        }

        /// Gives an order. Returns its number.
        fn attach(&mut self) -> u64 {
            self.path.attach(&Arc::new(Classifiers::default()));
            self.orders.borrow_and_update().as_ref().expect("an order").number
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_switch_waits_for_the_thread_until_patience_ends() {
        let mut fake = Fake::new();
        fake.path.attached().await;
        let first = fake.attach();
        fake.done.send_replace(Some(first));
        let begin = Instant::now();
        fake.path.attached().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        fake.attach();
        fake.report.send_modify(|report| report.repairs += 1);
        fake.path.attached().await;
        assert_eq!(begin.elapsed(), PATIENCE);
        fake.path.attached().await;
        assert_eq!(begin.elapsed(), PATIENCE, "once");
        fake.path.reported().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_programs_are_ordered_once() {
        let mut fake = Fake::new();
        let programs = Arc::new(Classifiers::default());
        for _ in 0..2 {
            fake.path.attach(&programs);
            assert_eq!(fake.orders.borrow().as_ref().map(|order| order.number), Some(0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_ended_is_an_error() {
        let Fake { mut path, orders, done, report } = Fake::new();
        path.attach(&Arc::new(Classifiers::default()));
        drop((orders, done, report));
        path.attached().await;
        assert!(path.reported().await.is_err());
    }
}
