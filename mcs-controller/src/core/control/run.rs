//! The loop of the control task: what it waits for, and what each event leads to.

mod connections;
mod reports;
mod results;
#[cfg(test)]
mod tests;
mod tokens;
mod watches;
mod writes;

use std::{
    collections::{BTreeSet, HashMap},
    future::{Future, poll_fn},
    mem,
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
    watches::{cluster_uid, identify, spawn, watch_own},
    writes::PlanResult,
};
use super::{MailboxId, Settings, Update, connection::Connection, outbox::Outbox, state::State};
use crate::core::{
    apply::{ApplyError, ImportPace, Sent},
    clock,
    clusterset::{Publication, ServiceName},
    feature::{Core, Features},
    leases::{Election, PublisherIdentity, PublisherTerm},
    mailbox::{MailboxWrite, Scope},
    own_cluster::OwnCluster,
    peers::{PeerName, peers_target, secrets_target, token::Renewals},
    server::Published,
    status::{EventBudget, Failures, Liveness},
};

/// How many updates may wait while the control task is busy.
const WAITING_UPDATES: usize = 1024;
/// How long the control task takes updates, and plans services, before it handles results.
const ROUND: Duration = Duration::from_millis(10);
/// How often the control task looks at clocks.
const TICK: Duration = Duration::from_secs(1);
/// How often a replica that does not lead computes the status of peers.
const PAGE_INTERVAL: Duration = Duration::from_secs(10);
/// How often the event of a lasting fault is repeated. API servers keep events for an hour.
const EVENT_INTERVAL: Duration = Duration::from_mins(30);
/// The time limit of the shutdown.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(3);

/// A write that is under way.
type Task = Pin<Box<dyn Future<Output = TaskResult> + Send>>;

/// How a task has ended.
enum TaskResult {
    Import(ServiceName, PlanResult),
    Publication(ServiceName, Sent<MailboxWrite>),
    Lease(Result<Option<String>, ApplyError>),
    PeerStatus(PeerName, Result<Option<String>, ApplyError>),
    Event(Result<Option<String>, ApplyError>),
    /// The token in the Secret of this name.
    Token(String, anyhow::Result<Timestamp>),
    /// The conditions of a ServiceExport with a name that no Service can have.
    Misnamed(ObjectKey, Result<Option<String>, ApplyError>),
}

struct Control {
    core: Core,
    features: Features,
    /// Leads to the own mailbox.
    outbox: Outbox,
    updates: mpsc::Sender<Update>,
    connections: Connections,
    tasks: FuturesUnordered<Task>,
    pace: ImportPace,
    events: EventBudget,
    /// The watches of this cluster's own mailbox.
    mailbox_watches: Connection,
    term: PublisherTerm,
    /// Whether this replica leads.
    leads: watch::Receiver<bool>,
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
    /// The ClusterPeers whose status the API server does not take now.
    status_failures: Failures<PeerName>,
    /// Those of the own mailbox's Lease.
    lease_renewals: Liveness,
    /// Whether what this cluster exports is read.
    own_reads: Liveness,
    /// When a replica that does not lead computes the status of peers again.
    page_at: Instant,
    /// When the events of lasting faults are repeated.
    tell_again_at: Instant,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) async fn run(
    settings: Settings,
    published: Arc<Published>,
    features: Features,
) -> anyhow::Result<()> {
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
        result = control(settings, Arc::clone(&published), features, stopped) => result,
        () = wait => Ok(()),
    }
}

/// Runs until it is `stopped`, or its cluster gets another id.
pub(crate) async fn control(
    settings: Settings,
    published: Arc<Published>,
    features: Features,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let start = start(settings, Arc::clone(&published), features);
    let (mut control, election, waiting) = published.life.beat_during(start).await?;
    let result = tokio::select! {
        biased;
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
    features: Features,
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
    let state = State::new(settings, cluster, own);
    let term = PublisherTerm::new(identity, clock::now());
    let leads = election.leads();
    let core = Core { state, access, published, is_leader: false, was_synced: false, peers: None };
    let control = Control::new((core, features), term, outbox, updates, leads);
    Ok((control, election, waiting))
}

impl Control {
    fn new(
        (core, features): (Core, Features),
        term: PublisherTerm,
        outbox: Outbox,
        updates: mpsc::Sender<Update>,
        leads: watch::Receiver<bool>,
    ) -> Self {
        let now = clock::now();
        let mailbox_watches = watch_own_mailbox(&outbox, &core.state.settings, &updates);
        Self {
            core,
            features,
            outbox,
            updates,
            connections: Connections::default(),
            tasks: FuturesUnordered::new(),
            pace: ImportPace::default(),
            events: EventBudget::new(now),
            mailbox_watches,
            term,
            leads,
            reporting: BTreeSet::new(),
            judging: BTreeSet::new(),
            reported: HashMap::new(),
            renewals: Renewals::default(),
            token_failures: Failures::default(),
            measured_tokens: BTreeSet::new(),
            status_failures: Failures::default(),
            lease_renewals: Liveness::new(now),
            own_reads: Liveness::new(now),
            page_at: now,
            tell_again_at: now + EVENT_INTERVAL,
        }
    }

    async fn run(&mut self, mut waiting: mpsc::Receiver<Update>) -> anyhow::Result<()> {
        self.features.each().for_each(|one| one.begin(&mut self.core));
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_more = false;
        loop {
            tokio::select! {
                // What is rare comes first: updates can be there all the time. A fixed order makes a played history the same
                // each time.
                biased;
                _ = ticks.tick() => self.tick(),
                changed = self.leads.changed() => {
                    if changed.is_err() {
                        bail!("the election has ended");
                    }
                }
                Some(done) = self.tasks.next() => self.finish(done),
                () = program::until(self.core.state.imports.next_deferred(clock::now()).map(Into::into)) => {
                    self.core.state.imports.retry(clock::now());
                }
                place = poll_fn(|cx| self.features.poll(cx)) => self.act(place),
                update = waiting.recv() => {
                    let Some(update) = update else { bail!("every watch has ended") };
                    self.take(update);
                }
                () = yield_now(), if has_more => {}
            }
            let end = clock::now() + ROUND;
            while clock::now() < end
                && let Ok(update) = waiting.try_recv()
            {
                self.take(update);
            }
            while let Some(Some(done)) = self.tasks.next().now_or_never() {
                self.finish(done);
            }
            while clock::now() < end
                && let Some(place) = poll_fn(|cx| self.features.poll(cx)).now_or_never()
            {
                self.act(place);
            }
            self.tell_notices();
            self.connect_hubs(clock::now());
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
        let (cluster, said) = (self.core.state.cluster(), self.core.state.own.cluster_id());
        if self.core.state.settings.cluster.is_none()
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
        self.features.each().for_each(|one| one.observe(&update));
        match &update {
            Update::Mailbox(MailboxId::Own, _) | Update::Access(MailboxId::Own, _) => {
                self.mailbox_watches.note_taken();
            }
            Update::Mailbox(id, _) | Update::Access(id, _) => self.connections.note_taken(id),
            _ => {}
        }
        for update in self.connections.shared_out(update) {
            for peer in self.core.state.update(update) {
                self.connect(&peer);
            }
        }
        for name in mem::take(&mut self.core.state.changed) {
            self.features.each().for_each(|one| one.note_changed(&name, &mut self.core.state));
        }
        if let Some(secret) = self.outbox.secret().filter(|_| is_secret)
            && let Some(kubeconfig) = self.core.state.peers.kubeconfig(secret)
        {
            self.outbox.replace(kubeconfig);
        }
        self.note_synced();
    }

    /// Begins to serve once everything of this cluster was read, the last part perhaps by a feature.
    fn note_synced(&mut self) {
        if !self.core.was_synced && self.core.state.is_synced() {
            self.core.was_synced = true;
            self.core.published.set_synced();
            self.core.state.queue_all();
            tracing::info!("everything of this cluster was read");
        }
    }

    fn lead(&mut self, leads: bool) {
        if leads == self.core.is_leader {
            return;
        }
        self.core.is_leader = leads;
        self.term = self.term.next_term(clock::now());
        self.core.published.metrics.leader.set(leads.into());
        if leads {
            tracing::info!("this replica leads");
            self.lease_renewals = Liveness::new(clock::now());
            self.core.state.lead();
            self.note_silence(clock::now());
        } else {
            self.core.published.metrics.stand_by();
            self.measured_tokens.clear();
            tracing::info!("another replica leads");
        }
        self.features.each().for_each(|one| one.lead(leads, &mut self.core.state, clock::now()));
    }

    fn note_silence(&mut self, now: Instant) {
        let unread = self.own_reads.silence(now);
        let unread = unread.map(|reason| Publication::Unread(reason.to_owned()));
        let silent = self.lease_renewals.silence(now);
        let silent = silent.map(|reason| Publication::Silent(reason.to_owned()));
        self.core.state.note_silence(unread.or(silent));
    }

    fn watch_own_mailbox(&self) -> Connection {
        watch_own_mailbox(&self.outbox, &self.core.state.settings, &self.updates)
    }

    /// Lets a feature act that is ready.
    fn act(&mut self, place: usize) {
        self.features.act(place, &mut self.core);
        self.note_synced();
    }

    fn tick(&mut self) {
        let now = clock::now();
        self.core.published.life.beat();
        self.core.state.imports.retry(now);
        self.core.state.publications.retry(now);
        self.core.state.forget(now);
        self.pace.forget(now);
        self.read_again(now);
        self.own_reads.note(self.core.state.own.exports_problem().as_deref(), now);
        if self.core.is_leader {
            self.tick_as_leader(now);
        }
        self.features.each().for_each(|one| one.act(&mut self.core, now));
        // A replica that waits tells them on its page alone.
        if self.core.is_leader || now >= self.page_at {
            self.page_at = now + PAGE_INTERVAL;
            self.core.peers = Some(self.statuses(now));
        }
        if self.core.is_leader {
            self.report(now);
            self.measure_state(now);
        }
        self.tell_notices();
    }

    fn tick_as_leader(&mut self, now: Instant) {
        self.core.state.note_lacking();
        self.core.state.note_silent(now);
        self.core.state.note_tried();
        if now >= self.tell_again_at {
            self.tell_again_at = now + EVENT_INTERVAL;
            self.features.each().for_each(|one| one.tell_again(&mut self.core.state));
        }
        self.note_silence(now);
        self.judge_misnamed();
        self.renew_tokens(now);
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
