//! The seam between the core and its features: what a feature may see and do.

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use clap::{ArgMatches, Command};
use futures_util::{FutureExt as _, future::BoxFuture};
use mcs_kube::ApiAccess;

use super::{
    apply::ApplyError,
    clock,
    clusterset::{Actual, ClusterId, LostVip, ServiceName},
    control::{Planned, Settings, State, Update},
    leases::Statement,
    objects::{ClusterPeerStatus, PeerCondition},
    peers::{Peer, PeerName},
    plan::Write,
    server::Published,
};

/// A feature in the list.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Adds its flags to those of `run`.
    pub(crate) flags: fn(Command) -> Command,
    /// Starts it by the arguments of `run`. `None`: they turn it off.
    pub(crate) start: fn(&ArgMatches, &mut Wiring<'_>) -> Started,
    /// A command of the program that it adds.
    pub(crate) verb: Option<Verb>,
}

/// A feature that runs, unless it is off.
type Started = anyhow::Result<Option<Box<dyn Feature>>>;

/// A command of the program.
#[derive(Clone, Copy)]
pub(crate) struct Verb {
    pub(crate) command: fn() -> Command,
    pub(crate) run: fn(&ArgMatches) -> anyhow::Result<ExitCode>,
}

impl Entry {
    /// Nothing.
    pub(crate) const NONE: Self =
        Self { flags: |command| command, start: |_, _| Ok(None), verb: None };
}

/// What a feature gets at the start.
pub(crate) struct Wiring<'a> {
    pub(crate) settings: &'a mut Settings,
    /// Where health is served.
    pub(crate) health: Option<SocketAddr>,
    /// It registers its metrics there, and answers requests.
    pub(crate) published: &'a mut Published,
    /// Runs beside the control task, on another thread.
    pub(crate) beside: &'a mut Vec<BoxFuture<'static, ()>>,
}

/// What the core knows, and a feature may see and change.
pub(crate) struct Core {
    pub(crate) state: State,
    /// Of this cluster.
    pub(crate) access: Arc<ApiAccess>,
    pub(crate) published: Arc<Published>,
    /// Whether this replica leads: only then it writes.
    pub(crate) is_leader: bool,
    /// Whether everything of this cluster was read once.
    pub(crate) was_synced: bool,
    /// The status of each peer, a second old at most; `None`: not computed yet.
    pub(crate) peers: Option<Vec<(PeerName, ClusterPeerStatus)>>,
}

impl Core {
    /// Whether the leader may write ClusterProperties.
    pub(crate) fn may_tell_agents(&self) -> bool {
        self.is_leader && self.state.is_synced() && self.state.own.may_write_properties()
    }
}

/// Something that the controller could lack and still import every service.
pub(crate) trait Feature: Send {
    /// Starts what it needs this cluster for.
    fn begin(&mut self, _core: &mut Core) {}

    /// Ready when something that it waits for has happened: then it acts.
    fn poll(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Acts: once a second, and when it is ready.
    fn act(&mut self, _core: &mut Core, _now: Instant) {}

    /// This replica begins or ends to lead.
    fn lead(&mut self, _is_leader: bool, _state: &mut State, _now: Instant) {}

    /// Sees an event before the core takes it.
    fn observe(&mut self, _update: &Update) {}

    /// Objects of this cluster that belong to a service have changed.
    fn note_changed(&mut self, _name: &ServiceName, _state: &mut State) {}

    /// The leader plans services next, with everything of this cluster read.
    fn before_plans(&mut self, _state: &mut State, _now: Instant) {}

    /// The VIPs of an import that it cannot rely on.
    fn lost_vips(&self, _: &ServiceName, _: &Actual, _: &State) -> Vec<LostVip> {
        vec![]
    }

    /// Changes what this cluster should have of a service, before the writes are planned.
    fn shape(&self, _plan: &mut Planned, _state: &State) {}

    /// The writes of a service are planned.
    fn note_planned(&mut self, _plan: &Planned, _writes: &mut Vec<Write>, _state: &mut State) {}

    /// The API server has refused the write of a service. Returns whether it does not know a field that the feature can do
    /// without.
    fn does_without(&mut self, _error: &ApplyError) -> bool {
        false
    }

    /// Takes away what waits of the writes of a service.
    fn hold(&mut self, _name: &ServiceName, _writes: &mut Vec<Write>, _core: &Core, _now: Instant) {
    }

    /// The API server has accepted this write.
    fn note_written(&mut self, _write: &Write, _now: Instant) {}

    /// A condition of the status of a peer.
    fn peer_condition(&self, _name: &PeerName, _peer: &Peer) -> Option<PeerCondition> {
        None
    }

    /// What of a cluster it could not write, for the condition `ImportsWritten` of the peer.
    fn unwritten(&self, _cluster: &ClusterId, _state: &State) -> Option<String> {
        None
    }

    /// Adds what it says to readers of this cluster's mailbox.
    fn publish(&self, _statement: &mut Statement, _state: &State) {}

    /// Repeats the events of lasting faults: events live an hour.
    fn tell_again(&mut self, _state: &mut State) {}

    /// Gives each of its metrics a value.
    #[cfg(test)]
    fn fill_metrics(&self) {}
}

/// The features that run, in the order of the list.
#[derive(Default)]
pub(crate) struct Features {
    all: Vec<Box<dyn Feature>>,
    /// Behind the one that was ready last.
    next: usize,
}

impl Features {
    /// Starts what the arguments of `run` do not turn off.
    pub(crate) fn start(
        list: &[Entry],
        matches: &ArgMatches,
        wiring: &mut Wiring<'_>,
    ) -> anyhow::Result<Self> {
        let started = list.iter().filter_map(|entry| (entry.start)(matches, wiring).transpose());
        Ok(Self { all: started.collect::<anyhow::Result<_>>()?, next: 0 })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &dyn Feature> {
        self.all.iter().map(|feature| &**feature)
    }

    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut Box<dyn Feature>> {
        self.all.iter_mut()
    }

    /// Plans the writes for one service.
    pub(crate) fn plan(&mut self, name: &ServiceName, state: &mut State) -> Vec<Write> {
        let actual = state.own.actual(name);
        let lost = self.all().flat_map(|one| one.lost_vips(name, &actual, state)).collect();
        let mut plan = state.plan(name, actual, lost);
        self.all().for_each(|one| one.shape(&mut plan, state));
        let mut writes = state.note_planned(&plan);
        self.each().for_each(|one| one.note_planned(&plan, &mut writes, state));
        state.note_planned_objects(name, &writes);
        writes
    }

    #[cfg(test)]
    pub(crate) fn of(feature: impl Feature + 'static) -> Self {
        Self { all: vec![Box::new(feature)], next: 0 }
    }

    /// The next that is ready. A busy one does not keep the others waiting.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let count = self.all.len();
        for place in (self.next..count).chain(0..self.next) {
            if self.all[place].poll(cx).is_ready() {
                self.next = place + 1;
                return Poll::Ready(place);
            }
        }
        Poll::Pending
    }

    /// Lets one act.
    pub(crate) fn act(&mut self, place: usize, core: &mut Core) {
        if let Some(feature) = self.all.get_mut(place) {
            feature.act(core, clock::now());
        }
    }
}

/// A question that a feature asks, one at a time.
pub(crate) struct Question<T>(Option<BoxFuture<'static, T>>);

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Question<T> {
    pub(crate) fn ask(&mut self, answer: impl Future<Output = T> + Send + 'static) {
        self.0 = Some(answer.boxed());
    }

    pub(crate) const fn is_asked(&self) -> bool {
        self.0.is_some()
    }

    /// The answer.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let Some(question) = &mut self.0 else { return Poll::Pending };
        let answer = ready!(question.poll_unpin(cx));
        self.0 = None;
        Poll::Ready(answer)
    }
}
