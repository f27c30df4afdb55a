//! When passes run: after each change that removes a backend of their protocol, and when clients have stayed long enough
//! after a frontend was deleted.

use std::{future::pending, io, path::PathBuf, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    StalePass, StaleReport, Unmatched, destroy,
    report::NOT_FOUND,
    select::{DeletedFrontends, stale_connections},
    thread::{self, Work, begin},
};
use crate::core::{
    engine::pace::Throttle,
    kernel::sockets::{Connection, Connections, NetNamespaces},
    model::{DesiredState, Protocol},
    tables::Realized,
};

/// A pass begins this long after a removal: more removals may follow, and connects to the backend that have begun
/// reach it.
const DELAY: Duration = Duration::from_millis(50);
/// The agent searches again for a socket that it did not find, and repeats a failed pass, after this long.
const AGAIN: Duration = Duration::from_secs(1);
/// After a pass the next one waits for this many times as long as it took, but not longer than [`LONGEST_REST`].
const RESTS: u32 = 50;
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Destroys a protocol's stale sockets, on threads of its own.
pub struct StaleSockets {
    protocol: Protocol,
    state: PathBuf,
    report: StaleReport,
    at: Option<Instant>,
    /// When the latest pass began.
    began: Instant,
    throttle: Throttle,
    running: Option<PassWork>,
    unmatched: Unmatched,
    deleted: DeletedFrontends,
}

/// What the thread does.
enum PassWork {
    /// It reads the list of connections.
    Listing(Work<Vec<Connection>>),
    /// It destroys sockets in all namespaces.
    Destroying(Work<StalePass>),
}

/// What [`StaleSockets::next`] waited for.
pub enum StaleEvent {
    /// The list of connections was read. The caller passes it to [`StaleSockets::destroy_stale`].
    Connections(Vec<Connection>),
    /// The report has changed.
    ReportChanged,
}

impl StaleSockets {
    /// Tries whether the agent can destroy sockets, if that is wanted.
    pub fn new(protocol: Protocol, state: PathBuf, is_wanted: bool) -> Self {
        let mut report = StaleReport { wanted: is_wanted, ..StaleReport::default() };
        if is_wanted {
            match thread::probe(protocol) {
                Ok(()) => {
                    let found = NetNamespaces::find();
                    report.namespaces = found.namespaces.len();
                    report.closed = found.unseen_processes;
                    tracing::info!(
                        namespaces = report.namespaces,
                        "{protocol} sockets that are connected to removed backends: destroyed"
                    );
                }
                Err(obstacle) => {
                    tracing::warn!(
                        "{protocol} sockets that are connected to removed backends stay so: {obstacle}"
                    );
                    report.obstacle = Some(obstacle.to_string());
                }
            }
        }
        Self {
            protocol,
            state,
            report,
            at: None,
            began: Instant::now(),
            throttle: Throttle::new(RESTS, LONGEST_REST),
            running: None,
            unmatched: Unmatched::default(),
            deleted: DeletedFrontends::default(),
        }
    }

    /// The report for `status`.
    pub const fn report(&self) -> &StaleReport {
        &self.report
    }

    /// Schedules a pass, since backends may have been removed. `is_bounded`: there are bounded frontends, whose sockets end
    /// whether or not those of others do.
    pub fn removed(&mut self, is_bounded: bool) {
        if self.report.is_done() || is_bounded {
            self.at_latest(DELAY);
        }
    }

    /// Waits for the next result of a thread. If the future is dropped before, the next call waits for the same
    /// thread.
    pub async fn next(&mut self) -> StaleEvent {
        loop {
            match &mut self.running {
                None => {
                    match self.due() {
                        Some(due) => sleep_until(due).await,
                        None => pending().await,
                    }
                    self.list();
                }
                Some(PassWork::Listing(list)) => {
                    let list = list.result().await;
                    self.running = None;
                    match list {
                        Ok(connections) => return StaleEvent::Connections(connections),
                        Err(error) => self.fail("list the connected", &error),
                    }
                }
                Some(PassWork::Destroying(pass)) => {
                    let pass = pass.result().await;
                    self.running = None;
                    match pass {
                        Ok(pass) => self.note(pass),
                        Err(error) => self.fail("look for connected", &error),
                    }
                    return StaleEvent::ReportChanged;
                }
            }
        }
    }

    fn list(&mut self) {
        self.at = None;
        self.began = Instant::now();
        let (state, protocol) = (self.state.clone(), self.protocol);
        let list = move || Connections::open(&state)?.all(protocol);
        self.running = Some(PassWork::Listing(begin("stale-sockets", list)));
    }

    /// When the next pass begins.
    fn due(&self) -> Option<Instant> {
        let next = self.throttle.next().map(Instant::from_std);
        self.at.map(|at| next.map_or(at, |next| at.max(next)))
    }

    /// Begins to destroy the sockets of those connections that are stale.
    pub fn destroy_stale(
        &mut self,
        connections: Vec<Connection>,
        desired: &DesiredState,
        realized: &Realized,
    ) {
        let (now, of_bounded) = (std::time::Instant::now(), !self.report.is_done());
        let (protocol, deleted) = (self.protocol, &mut self.deleted);
        let stale =
            stale_connections(protocol, connections, desired, realized, deleted, of_bounded, now);
        if let Some(due) = self.deleted.due(now) {
            self.at_latest(due.duration_since(now));
        }
        self.destroy(stale);
    }

    fn destroy(&mut self, connections: Vec<Connection>) {
        let unmatched = std::mem::take(&mut self.unmatched);
        if connections.is_empty() {
            self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
            return;
        }
        let (state, protocol) = (self.state.clone(), self.protocol);
        let pass = move || destroy(&state, protocol, &connections, &unmatched);
        self.running = Some(PassWork::Destroying(begin("stale-sockets", pass)));
    }

    fn note(&mut self, pass: StalePass) {
        self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
        if pass.destroyed > 0 {
            tracing::info!(
                sockets = pass.destroyed,
                micros = pass.took.as_micros(),
                "destroyed {} sockets that were connected to removed backends",
                self.protocol
            );
        }
        for failure in &pass.failures {
            tracing::warn!("{failure}");
        }
        if pass.out_of_reach > self.report.out_of_reach {
            let (left, protocol) = (pass.out_of_reach, self.protocol);
            tracing::warn!(
                "{left} {protocol} sockets stay connected to removed backends: {NOT_FOUND}"
            );
        }
        self.report.add(&pass);
        self.unmatched = pass.unmatched;
        if !self.unmatched.is_empty() {
            self.at_latest(AGAIN);
        }
    }

    fn fail(&mut self, what: &str, error: &io::Error) {
        tracing::warn!("cannot {what} {} sockets: {error}; trying again", self.protocol);
        self.throttle.worked(std::time::Instant::now(), self.began.elapsed());
        self.at_latest(AGAIN);
    }

    /// Schedules a pass after this long, unless one is due before.
    fn at_latest(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.at = Some(self.at.map_or(at, |due| due.min(at)));
    }
}
