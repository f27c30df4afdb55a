//! The loop of the control task: what it waits for, and what each event leads to.

mod connections;
mod property_writes;
mod reports;
mod results;
mod rounds;
mod settings;
#[cfg(test)]
mod tests;
mod tokens;
mod view;
mod watches;
mod writes;

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use mcs_kube::{
    ApiAccess, ObjectKey, Room,
    program::{self, Signals},
};
use tokio::{
    sync::{mpsc, watch},
    task::yield_now,
    time::{MissedTickBehavior, interval, sleep},
};

use self::{
    connections::Connections,
    property_writes::PropertyWrites,
    rounds::{Round, Rounds},
    watches::{cluster_uid, identify, spawn, watch_own},
    writes::PlanResult,
};
use super::{
    MailboxId, Settings, Update,
    acceptances::Acceptances,
    connection::Connection,
    contests::{Contested, Contests, OtherWriters},
    outbox::Outbox,
    propagation::Propagation,
    state::State,
};
use crate::{
    apply::{ApplyError, ImportPace, Sent, WriteBudgets},
    clusterset::{ImportState, Publication, ServiceName},
    leases::{Election, PublisherIdentity, PublisherTerm},
    mailbox::{MailboxWrite, Scope},
    names::{Answer, Question},
    own_cluster::OwnCluster,
    peers::{PeerName, peers_target, secrets_target, token::Renewals},
    rights::{Right, Rights},
    server::Published,
    status::{EventBudget, Failures, Liveness},
};

/// How many updates may wait while the control task is busy.
const WAITING_UPDATES: usize = 1024;
/// How long the control task takes updates, and plans services, before it handles results.
const ROUND: Duration = Duration::from_millis(10);
/// How often the control task looks at clocks.
const TICK: Duration = Duration::from_secs(1);
/// How often the event of a lasting fault is repeated. API servers keep events for an hour.
const EVENT_INTERVAL: Duration = Duration::from_mins(30);
/// The time limit of the shutdown.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(3);

/// A write or a probe that is under way.
type Task = Pin<Box<dyn Future<Output = TaskResult> + Send>>;

/// How a task has ended.
enum TaskResult {
    Import(ServiceName, PlanResult),
    Publication(ServiceName, Sent<MailboxWrite>),
    Lease(Result<Option<String>, ApplyError>),
    PeerStatus(PeerName, Result<Option<String>, ApplyError>),
    /// The write of a ClusterProperty that agents read.
    Property(&'static str, String, Result<Option<String>, ApplyError>),
    Event(Result<Option<String>, ApplyError>),
    /// Connections to pods of peers.
    Round(Round),
    /// What cluster DNS says of the names of some imports.
    Names(Vec<(Question, Answer)>),
    /// The rights that this controller needs and does not have; `None` if the API server did not say.
    Rights(Option<Vec<Right>>),
    /// The token in the Secret of this name.
    Token(String, anyhow::Result<Timestamp>),
    /// The conditions of a ServiceExport with a name that no Service can have.
    Misnamed(ObjectKey, Result<Option<String>, ApplyError>),
    /// Who else writes this object of a service.
    Writer(ServiceName, Contested, Result<Option<String>, ApplyError>),
}

struct Control {
    state: State,
    access: Arc<ApiAccess>,
    /// Leads to the own mailbox.
    outbox: Outbox,
    settings: Settings,
    updates: mpsc::Sender<Update>,
    connections: Connections,
    tasks: FuturesUnordered<Task>,
    budgets: WriteBudgets,
    /// Of writes to this cluster's mailbox.
    publication_budget: WriteBudgets,
    pace: ImportPace,
    events: EventBudget,
    propagation: Propagation,
    /// The watches of this cluster's own mailbox.
    mailbox_watches: Connection,
    term: PublisherTerm,
    /// Whether this replica leads.
    leads: watch::Receiver<bool>,
    /// Whether the control task acts as leader: it follows `leads`.
    is_leader: bool,
    /// Peers whose status is being written.
    reporting: BTreeSet<PeerName>,
    /// ServiceExports with a name that no Service can have, whose conditions are being written.
    judging: BTreeSet<ObjectKey>,
    /// When the status of a peer was last written.
    reported: HashMap<PeerName, Instant>,
    renewals: Renewals,
    /// The Secrets whose tokens cannot be renewed now.
    token_failures: Failures<String>,
    /// The Secrets whose tokens are in metrics.
    measured_tokens: BTreeSet<String>,
    /// The services that metrics name.
    measured_services: BTreeSet<(ServiceName, ImportState)>,
    /// The ClusterPeers whose status the API server does not take now.
    status_failures: Failures<PeerName>,
    /// Those of the own mailbox's Lease.
    lease_renewals: Liveness,
    /// Whether what this cluster exports is read.
    own_reads: Liveness,
    rounds: Rounds,
    rights: Rights,
    /// The ClusterProperties for agents that are being written.
    property_writes: PropertyWrites,
    /// Why one of these values cannot be computed or written.
    untold: Failures<(&'static str, &'static str)>,
    contests: Contests,
    acceptances: Acceptances,
    writers: OtherWriters,
    /// When the events of lasting faults are repeated.
    tell_again_at: Instant,
    said_synced: bool,
    /// When the page is next updated.
    show_at: Instant,
    published: Arc<Published>,
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(settings: Settings, published: Arc<Published>) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let (stop, stopped) = watch::channel(false);
    let wait = async {
        signals.next().await;
        published.life.stop();
        stop.send_replace(true);
        // The leader gives its Lease away, so that another replica need not wait for its end.
        sleep(SHUTDOWN_LIMIT).await;
    };
    tokio::select! {
        result = control(settings, Arc::clone(&published), stopped) => result,
        () = wait => Ok(()),
    }
}

async fn control(
    settings: Settings,
    published: Arc<Published>,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let start = start(settings, Arc::clone(&published));
    let (mut control, election, waiting) = published.life.beat_during(start).await?;
    let result = tokio::select! {
        result = control.run(waiting) => result,
        _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
    };
    control.release_lease().await;
    election.end().await;
    result
}

/// Waits until this cluster's id, its uid and the API server of its mailbox are known.
async fn start(
    settings: Settings,
    published: Arc<Published>,
) -> anyhow::Result<(Control, Election, mpsc::Receiver<Update>)> {
    let (access, url) = ApiAccess::new(settings.kubeconfig()).await?;
    tracing::info!("following the API server at {url}");
    let access = Arc::new(access);
    let outbox = Outbox::open(&settings, &access).await?;
    let (updates, mut waiting) = mpsc::channel(WAITING_UPDATES);
    watch_own(&access, &settings, &updates);
    let mut own = OwnCluster::new(settings.service_ranges.clone());
    let cluster = identify(&settings, &mut own, &mut waiting).await?;
    tracing::info!("this is cluster {cluster}");
    spawn(&access, peers_target(), &updates, Update::Peers);
    spawn(&access, secrets_target(&settings.namespace), &updates, Update::Secrets);
    let election =
        Election::start(settings.identity.clone(), &settings.namespace, Arc::clone(&access));
    let identity = PublisherIdentity {
        cluster: cluster.clone(),
        uid: cluster_uid(&access).await,
        mailbox: settings.mailbox.clone(),
        is_at_home: outbox.is_at_home(),
        is_elected: settings.identity.is_some(),
    };
    let state = State::new(settings.clone(), cluster, own);
    let term = PublisherTerm::new(identity, Instant::now());
    let leads = election.leads();
    let control = Control::new((settings, state, term), access, outbox, updates, leads, published);
    Ok((control, election, waiting))
}

impl Control {
    fn new(
        (settings, state, term): (Settings, State, PublisherTerm),
        access: Arc<ApiAccess>,
        outbox: Outbox,
        updates: mpsc::Sender<Update>,
        leads: watch::Receiver<bool>,
        published: Arc<Published>,
    ) -> Self {
        let now = Instant::now();
        let mailbox_watches = watch_own_mailbox(&outbox, &settings, &updates);
        let budgets = || WriteBudgets::new(settings.peer_writes, state.cluster().clone());
        let (budgets, publication_budget) = (budgets(), budgets());
        Self {
            state,
            access,
            outbox,
            updates,
            connections: Connections::default(),
            tasks: FuturesUnordered::new(),
            budgets,
            publication_budget,
            settings,
            pace: ImportPace::default(),
            events: EventBudget::new(now),
            propagation: Propagation::since(Timestamp::now()),
            mailbox_watches,
            term,
            leads,
            is_leader: false,
            reporting: BTreeSet::new(),
            judging: BTreeSet::new(),
            reported: HashMap::new(),
            renewals: Renewals::default(),
            token_failures: Failures::default(),
            measured_tokens: BTreeSet::new(),
            measured_services: BTreeSet::new(),
            status_failures: Failures::default(),
            lease_renewals: Liveness::new(now),
            own_reads: Liveness::new(now),
            rounds: Rounds::since(now),
            rights: Rights::since(now),
            property_writes: PropertyWrites::default(),
            untold: Failures::default(),
            contests: Contests::default(),
            acceptances: Acceptances::default(),
            writers: OtherWriters::default(),
            said_synced: false,
            show_at: now,
            tell_again_at: now + EVENT_INTERVAL,
            published,
        }
    }

    async fn run(&mut self, mut waiting: mpsc::Receiver<Update>) -> anyhow::Result<()> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_more = false;
        loop {
            tokio::select! {
                update = waiting.recv() => {
                    let Some(update) = update else { bail!("every watch has ended") };
                    self.take(update);
                }
                Some(done) = self.tasks.next() => self.finish(done),
                changed = self.leads.changed() => {
                    if changed.is_err() {
                        bail!("the election has ended");
                    }
                }
                () = program::until(self.state.imports.next_deferred().map(Into::into)) => {
                    self.state.imports.retry(Instant::now());
                }
                _ = ticks.tick() => self.tick(),
                () = yield_now(), if has_more => {}
            }
            let end = Instant::now() + ROUND;
            while Instant::now() < end
                && let Ok(update) = waiting.try_recv()
            {
                self.take(update);
            }
            while let Some(Some(done)) = self.tasks.next().now_or_never() {
                self.finish(done);
            }
            self.connect_hubs(Instant::now());
            self.ensure_id()?;
            let leads = *self.leads.borrow();
            self.lead(leads);
            self.observe_lease();
            has_more = self.start_writes();
            // The connections of the watches and of the Lease run on the same thread.
            yield_now().await;
        }
    }

    /// Plans are valid for one cluster id. The program restarts to use another.
    fn ensure_id(&self) -> anyhow::Result<()> {
        let (cluster, said) = (self.state.cluster(), self.state.own.cluster_id());
        if self.settings.cluster.is_none()
            && let Some(said) = said
            && said != cluster.as_str()
        {
            bail!(
                "the ClusterProperty cluster.clusterset.k8s.io has changed from {cluster} to {said}: start again"
            );
        }
        Ok(())
    }

    fn take(&mut self, update: Update) {
        let is_secret = matches!(update, Update::Secrets(_));
        if let Update::Own(event) = &update {
            self.contests.observe(event);
        }
        match &update {
            Update::Mailbox(MailboxId::Own, _) | Update::Access(MailboxId::Own, _) => {
                self.mailbox_watches.note_taken();
            }
            Update::Mailbox(id, _) | Update::Access(id, _) => self.connections.note_taken(id),
            _ => {}
        }
        for update in self.connections.shared_out(update) {
            for peer in self.state.update(update) {
                self.connect(&peer);
            }
        }
        if let Some(secret) = self.outbox.secret().filter(|_| is_secret)
            && let Some(kubeconfig) = self.state.peers.kubeconfig(secret)
        {
            self.outbox.replace(kubeconfig);
        }
        if !self.said_synced && self.state.is_synced() {
            self.said_synced = true;
            self.published.set_synced();
            self.state.queue_all();
            tracing::info!("everything of this cluster was read");
        }
    }

    fn lead(&mut self, leads: bool) {
        if leads == self.is_leader {
            return;
        }
        self.is_leader = leads;
        self.term = self.term.next_term(Instant::now());
        self.published.metrics.leader.set(leads.into());
        if leads {
            tracing::info!("this replica leads");
            self.lease_renewals = Liveness::new(Instant::now());
            self.propagation = Propagation::since(Timestamp::now());
            self.rounds.lead(Instant::now());
            self.published.metrics.set_names(self.rounds.names.is_answered());
            self.rights = Rights::since(Instant::now());
            self.state.lead();
            self.note_silence(Instant::now());
        } else {
            self.published.metrics.stand_by();
            self.measured_tokens.clear();
            self.measured_services.clear();
            tracing::info!("another replica leads");
        }
    }

    fn note_silence(&mut self, now: Instant) {
        let unread = self.own_reads.silence(now);
        let unread = unread.map(|reason| Publication::Unread(reason.to_owned()));
        let silent = self.lease_renewals.silence(now);
        let silent = silent.map(|reason| Publication::Silent(reason.to_owned()));
        self.state.note_silence(unread.or(silent));
    }

    fn watch_own_mailbox(&self) -> Connection {
        watch_own_mailbox(&self.outbox, &self.settings, &self.updates)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.published.life.beat();
        self.state.imports.retry(now);
        self.state.publications.retry(now);
        self.state.forget(now);
        self.pace.forget(now);
        self.read_again(now);
        if self.said_synced {
            self.state.tell_overlaps();
        }
        self.show(now);
        self.ask_for_names(now);
        self.own_reads.note(self.state.own.exports_problem().as_deref(), now);
        if !self.is_leader {
            return;
        }
        self.acceptances.forget(now);
        for name in self.contests.due(now) {
            self.state.imports.add(name);
        }
        for name in self.pace.due(now) {
            self.state.imports.add(name.clone());
        }
        self.state.note_lacking();
        self.state.note_silent(now);
        self.state.note_tried();
        if now >= self.tell_again_at {
            self.tell_again_at = now + EVENT_INTERVAL;
            self.tell_settings_again();
            self.state.tell_rejected_again();
            let notices = self.state.take_notices();
            self.tell(notices);
        }
        self.note_silence(now);
        self.judge_misnamed();
        self.renew_tokens(now);
        self.probe_peers(now);
        self.ask_for_rights(now);
        self.write_properties();
        self.report(now);
        self.measure_state(now);
    }
}

fn watch_own_mailbox(
    outbox: &Outbox,
    settings: &Settings,
    updates: &mpsc::Sender<Update>,
) -> Connection {
    let (access, mailbox) = (Arc::clone(&outbox.access), settings.mailbox.clone());
    let scope = Scope::One(mailbox, Room::Endless);
    Connection::with_access(access, scope, MailboxId::Own, updates.clone())
}
