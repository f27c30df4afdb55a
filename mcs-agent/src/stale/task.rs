//! When passes run, and on which threads: after each change that removes a backend of UDP.

use std::{io, path::PathBuf, thread, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    NetNamespaces, Pass, StaleUdpReport, UdpConnection, UdpConnections, Unmatched, destroy,
    leaks::{Leaks, Unlisted, free_leaks},
    probe,
};
use crate::engine::throttle::Throttle;

/// A pass begins this long after a removal: more removals may come, and connects that are about to reach the
/// backend get there.
const DELAY: Duration = Duration::from_millis(50);
/// The agent looks again for a socket that it did not find, and repeats a pass that failed, after this long.
const AGAIN: Duration = Duration::from_secs(1);
/// Where backends are removed all the time, passes rest for this many times as long as they took, but never for
/// longer than [`LONGEST_REST`].
const RESTS: u32 = 50;
const LONGEST_REST: Duration = Duration::from_secs(1);
/// How often the agent looks for lost slots. After a look that takes long it rests for this many times as long.
const LEAKS: Duration = Duration::from_secs(5);
const LEAKS_REST: u32 = 100;

/// Destroys stale UDP sockets, on threads of its own.
pub struct StaleUdp {
    state: PathBuf,
    report: StaleUdpReport,
    at: Option<Instant>,
    /// When the latest pass began.
    began: Instant,
    throttle: Throttle,
    running: Option<Running>,
    unmatched: Unmatched,
    /// When the agent looks for lost slots.
    leaks_at: Instant,
    unlisted: Unlisted,
}

/// What the thread does.
enum Running {
    /// It reads the list of connections.
    Listing(ThreadResult<Vec<UdpConnection>>),
    /// It destroys sockets in all namespaces.
    Destroying(ThreadResult<Pass>),
    /// It frees lost slots.
    Freeing(ThreadResult<Leaks>),
}

type ThreadResult<T> = oneshot::Receiver<io::Result<T>>;

/// What [`StaleUdp::next`] waited for.
pub enum StaleUdpEvent {
    /// The list of connections was read. The caller passes the stale ones to [`StaleUdp::destroy`].
    Connections(Vec<UdpConnection>),
    /// The report has changed.
    ReportChanged,
}

impl StaleUdp {
    /// Tries whether the agent can destroy sockets, if that is wanted.
    pub fn new(state: PathBuf, is_wanted: bool) -> Self {
        let mut report = StaleUdpReport { wanted: is_wanted, ..StaleUdpReport::default() };
        if is_wanted {
            match probe() {
                Ok(()) => {
                    let found = NetNamespaces::find();
                    report.namespaces = found.namespaces.len();
                    report.closed = found.closed;
                    tracing::info!(
                        namespaces = report.namespaces,
                        "UDP sockets that are connected to removed backends: destroyed"
                    );
                }
                Err(obstacle) => {
                    tracing::warn!(
                        "UDP sockets that are connected to removed backends stay so: {obstacle}"
                    );
                    report.obstacle = Some(obstacle.to_string());
                }
            }
        }
        Self {
            state,
            report,
            at: None,
            began: Instant::now(),
            throttle: Throttle::new(RESTS, LONGEST_REST),
            running: None,
            unmatched: Unmatched::default(),
            leaks_at: Instant::now() + LEAKS,
            unlisted: Unlisted::default(),
        }
    }

    /// The report for `status`.
    pub const fn report(&self) -> &StaleUdpReport {
        &self.report
    }

    /// Schedules a pass, since backends may have been removed.
    pub fn removed(&mut self) {
        if self.report.is_done() {
            self.at_latest(DELAY);
        }
    }

    /// Waits for the next result of a thread. If the future is dropped before, the next call waits for the same
    /// thread.
    pub async fn next(&mut self) -> StaleUdpEvent {
        loop {
            match &mut self.running {
                None => {
                    if let Some(due) = self.due().filter(|due| *due <= self.leaks_at) {
                        sleep_until(due).await;
                        self.list();
                    } else {
                        // Whether stale sockets are destroyed or not.
                        sleep_until(self.leaks_at).await;
                        self.free_leaks();
                    }
                }
                Some(Running::Freeing(leaks)) => {
                    let leaks = result_of(leaks).await;
                    self.running = None;
                    self.note_leaks(leaks);
                }
                Some(Running::Listing(list)) => {
                    let list = result_of(list).await;
                    self.running = None;
                    match list {
                        Ok(connections) => return StaleUdpEvent::Connections(connections),
                        Err(error) => self.fail("cannot list the connected UDP sockets", &error),
                    }
                }
                Some(Running::Destroying(pass)) => {
                    let pass = result_of(pass).await;
                    self.running = None;
                    match pass {
                        Ok(pass) => self.note(pass),
                        Err(error) => self.fail("cannot look for connected UDP sockets", &error),
                    }
                    return StaleUdpEvent::ReportChanged;
                }
            }
        }
    }

    fn list(&mut self) {
        self.at = None;
        self.began = Instant::now();
        let state = self.state.clone();
        let list = move || UdpConnections::open(&state)?.all();
        self.running = Some(Running::Listing(begin(list)));
    }

    fn free_leaks(&mut self) {
        let (state, before) = (self.state.clone(), std::mem::take(&mut self.unlisted));
        self.running = Some(Running::Freeing(begin(move || free_leaks(&state, &before))));
    }

    fn note_leaks(&mut self, leaks: io::Result<Leaks>) {
        let leaks = leaks.unwrap_or_else(|error| {
            tracing::warn!("cannot look for the slots of closed sockets: {error}; trying again");
            Leaks::default()
        });
        if leaks.freed > 0 {
            tracing::info!(slots = leaks.freed, "freed the slots of sockets that were closed");
        }
        self.unlisted = leaks.unlisted;
        self.leaks_at = Instant::now() + leaks.took.saturating_mul(LEAKS_REST).max(LEAKS);
    }

    /// When the next pass begins.
    fn due(&self) -> Option<Instant> {
        let next = self.throttle.next().map(Instant::from_std);
        self.at.map(|at| next.map_or(at, |next| at.max(next)))
    }

    /// Begins to destroy the sockets of these connections.
    pub fn destroy(&mut self, connections: Vec<UdpConnection>) {
        let unmatched = std::mem::take(&mut self.unmatched);
        if connections.is_empty() {
            self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
            return;
        }
        let state = self.state.clone();
        let pass = move || destroy(&state, &connections, &unmatched);
        self.running = Some(Running::Destroying(begin(pass)));
    }

    fn note(&mut self, pass: Pass) {
        self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
        if pass.destroyed > 0 {
            tracing::info!(
                sockets = pass.destroyed,
                micros = pass.took.as_micros(),
                "destroyed UDP sockets that were connected to removed backends"
            );
        }
        for failure in &pass.failures {
            tracing::warn!("{failure}");
        }
        self.report.add(&pass);
        self.unmatched = pass.unmatched;
        if !self.unmatched.is_empty() {
            self.at_latest(AGAIN);
        }
    }

    fn fail(&mut self, what: &str, error: &io::Error) {
        tracing::warn!("{what}: {error}; trying again");
        self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
        self.at_latest(AGAIN);
    }

    /// Schedules a pass after this long, unless one is due before.
    fn at_latest(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.at = Some(self.at.map_or(at, |due| due.min(at)));
    }
}

/// Does some work on a thread of its own, which then ends: a thread that has been in other namespaces must not do
/// anything else.
fn begin<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> ThreadResult<T> {
    let (done, result) = oneshot::channel();
    // If the thread cannot start, or panics, `done` is dropped.
    let _ = thread::Builder::new().name("stale-udp".to_owned()).spawn(move || {
        // Nobody receives it when the agent ends.
        let _ = done.send(work());
    });
    result
}

async fn result_of<T>(result: &mut ThreadResult<T>) -> io::Result<T> {
    result.await.unwrap_or_else(|_| Err(io::Error::other("the thread for it has failed")))
}
