//! Connected UDP sockets whose backend was removed: a pass over the node's network namespaces after
//! each change that removes a backend of UDP.

mod report;
mod served;

use std::{io, path::PathBuf, thread, time::Duration};

use tokio::{sync::oneshot, time::Instant};

pub use self::report::StaleUdpReport;
pub(super) use self::served::stale;
use crate::{
    dataplane::{UdpConnection, UdpConnections},
    engine::throttle::Throttle,
    stale::{Missed, Pass, Survey, destroy, probe},
};

/// From a removal to the pass. More removals may come meanwhile, and connects that are on their way to
/// the backend get there.
const DELAY: Duration = Duration::from_millis(50);
/// Until a socket that was not found is looked for once more, and a pass that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Passes rest for so many times as long as they took, where backends go all the time; but none waits
/// for longer than that.
const RESTS: u32 = 50;
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Looks after the sockets, in threads of their own.
pub(super) struct StaleUdp {
    state: PathBuf,
    report: StaleUdpReport,
    at: Option<Instant>,
    /// When the latest pass began.
    began: Instant,
    throttle: Throttle,
    running: Option<Running>,
    missed: Missed,
}

/// What a thread is at.
enum Running {
    /// It reads the list of connections.
    Listing(Outcome<Vec<UdpConnection>>),
    /// It goes through the namespaces.
    Destroying(Outcome<Pass>),
}

type Outcome<T> = oneshot::Receiver<io::Result<T>>;

/// What [`StaleUdp::next`] waited for.
pub(super) enum Next {
    /// These are the connections; [`StaleUdp::destroy`] is to be told which are stale.
    Listed(Vec<UdpConnection>),
    /// The report has changed.
    Reported,
}

impl StaleUdp {
    /// Tries what can be done, unless it is not wanted.
    pub(super) fn new(state: PathBuf, is_wanted: bool) -> Self {
        let mut report = StaleUdpReport { wanted: is_wanted, ..StaleUdpReport::default() };
        if is_wanted {
            match probe() {
                Ok(()) => {
                    let survey = Survey::new();
                    report.namespaces = survey.namespaces.len();
                    report.closed = survey.closed;
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
            missed: Missed::default(),
        }
    }

    /// How it stands.
    pub(super) const fn report(&self) -> &StaleUdpReport {
        &self.report
    }

    /// Backends may have been removed.
    pub(super) fn removed(&mut self) {
        if self.report.is_done() {
            self.at_latest(DELAY);
        }
    }

    /// Waits for the next thing that a thread has done. When this is dropped before, the next call goes
    /// on.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            match &mut self.running {
                None => {
                    super::control::at(self.due()).await;
                    self.at = None;
                    self.began = Instant::now();
                    let state = self.state.clone();
                    let list = move || UdpConnections::open(&state)?.all();
                    self.running = Some(Running::Listing(begin(list)));
                }
                Some(Running::Listing(list)) => {
                    let list = outcome(list).await;
                    self.running = None;
                    match list {
                        Ok(connections) => return Next::Listed(connections),
                        Err(error) => self.fail("cannot list the connected UDP sockets", &error),
                    }
                }
                Some(Running::Destroying(pass)) => {
                    let pass = outcome(pass).await;
                    self.running = None;
                    match pass {
                        Ok(pass) => self.note(pass),
                        Err(error) => self.fail("cannot look for connected UDP sockets", &error),
                    }
                    return Next::Reported;
                }
            }
        }
    }

    /// When the next pass begins.
    fn due(&self) -> Option<Instant> {
        let next = self.throttle.next().map(Instant::from_std);
        self.at.map(|at| next.map_or(at, |next| at.max(next)))
    }

    /// Has these destroyed.
    pub(super) fn destroy(&mut self, connections: Vec<UdpConnection>) {
        let missed = std::mem::take(&mut self.missed);
        if connections.is_empty() {
            self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
            return;
        }
        let state = self.state.clone();
        let pass = move || destroy(&state, &connections, &missed);
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
        self.missed = pass.missed;
        if !self.missed.is_empty() {
            self.at_latest(AGAIN);
        }
    }

    fn fail(&mut self, what: &str, error: &io::Error) {
        tracing::warn!("{what}: {error}; trying again");
        self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
        self.at_latest(AGAIN);
    }

    /// Begins a pass after that long, or when one is due before.
    fn at_latest(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.at = Some(self.at.map_or(at, |due| due.min(at)));
    }
}

/// Does it in a thread that ends with it: one that has been in other namespaces is of no other use.
fn begin<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Outcome<T> {
    let (done, outcome) = oneshot::channel();
    // Where there is no thread, or it fails, `done` is dropped.
    let _ = thread::Builder::new().name("stale-udp".to_owned()).spawn(move || {
        // Nobody waits any more when the agent ends.
        let _ = done.send(work());
    });
    outcome
}

async fn outcome<T>(outcome: &mut Outcome<T>) -> io::Result<T> {
    outcome.await.unwrap_or_else(|_| Err(io::Error::other("the thread for it has failed")))
}
