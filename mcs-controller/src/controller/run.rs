//! The loop of the control task, with everything that waits or writes.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use mcs_kube::{ApiAccess, Decoder, ResourceEvent, ResourceWatch, WatchTarget};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    time::{MissedTickBehavior, interval, sleep, sleep_until, timeout},
};

use super::{MailboxId, Settings, Update, outbox::Outbox, propagation::Propagation, state::State};
use crate::{
    apply::{ApplyError, Request, WriteBudgets, mailbox_request, own_request},
    clusterset::{ClusterId, ServiceName, well_known},
    exports::{self, OwnCluster, OwnEvent},
    leases::{Election, PublisherTerm},
    objects::{ClusterPeerStatus, SecretReference},
    peers::{
        PeerName,
        connection::Connection,
        peers_target, secrets_target,
        token::{self, Renewals, TokenClaims},
    },
    plan::Write,
    server::Published,
    status::{
        EventBudget, Notice, event, has_turned, peer_notices, peer_status_request, peer_statuses,
    },
};

/// How many updates may wait while the control task is busy.
const WAITING_UPDATES: usize = 1024;
/// How many services are written at a time, in this cluster and in the mailbox each.
const AT_A_TIME: usize = 16;
/// How often the control task looks at clocks.
const TICK: Duration = Duration::from_secs(1);

/// How often the status of a peer is written while no condition turns.
const REPORTS: Duration = Duration::from_secs(10);

/// How long the end may take.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Stands for the Secret of this cluster's own mailbox among the peers. No ClusterPeer has such a name.
const MAILBOX: &str = "(mailbox)";

/// A write that is under way.
type Task = Pin<Box<dyn Future<Output = Done> + Send>>;

/// How a write has ended.
enum Done {
    Import(ServiceName, Vec<Write>, Result<(), ApplyError>),
    Publication(ServiceName, Result<(), ApplyError>),
    Lease(Result<(), ApplyError>),
    PeerStatus(PeerName, Result<(), ApplyError>),
    Event(Result<(), ApplyError>),
    Token(PeerName, anyhow::Result<Timestamp>),
}

struct Control {
    state: State,
    access: Arc<ApiAccess>,
    outbox: Outbox,
    settings: Settings,
    updates: mpsc::Sender<Update>,
    connections: HashMap<PeerName, (u64, Connection)>,
    tasks: FuturesUnordered<Task>,
    budgets: WriteBudgets,
    events: EventBudget,
    propagation: Propagation,
    term: PublisherTerm,
    is_leader: bool,
    /// Peers whose status is being written.
    reporting: BTreeSet<PeerName>,
    /// When the status of a peer was last written.
    reported: HashMap<PeerName, Instant>,
    renewals: Renewals,
    said_synced: bool,
    published: Arc<Published>,
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(settings: Settings, published: Arc<Published>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let (stop, stopped) = watch::channel(false);
    let wait = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        published.stop();
        stop.send_replace(true);
        // The leader gives its Lease away, so that another replica need not wait for its end.
        sleep(LAST_WORDS).await;
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
    let (access, url) = ApiAccess::new(settings.kubeconfig.clone()).await?;
    tracing::info!("following the API server at {url}");
    let access = Arc::new(access);
    let outbox = Outbox::open(&settings, &access, &published).await?;
    let (updates, mut waiting) = mpsc::channel(WAITING_UPDATES);
    watch_own(&access, &updates);
    let mut own = OwnCluster::new();
    let cluster = identify(&settings, &mut own, &mut waiting, &published).await?;
    tracing::info!("this is cluster {cluster}");
    spawn(&access, peers_target(), &updates, Update::Peers);
    spawn(&access, secrets_target(&settings.namespace), &updates, Update::Secrets);
    let election = Election::start(&settings, Arc::clone(&access));
    let own_mailbox = Connection::with_access(
        Arc::clone(&outbox.access),
        settings.mailbox.clone(),
        MailboxId::Own,
        updates.clone(),
    );
    let budgets = WriteBudgets::new(settings.peer_writes);
    let control = Control {
        state: State::new(settings.clone(), cluster, own),
        access,
        outbox,
        settings,
        updates,
        connections: HashMap::new(),
        tasks: FuturesUnordered::new(),
        budgets,
        events: EventBudget::new(Instant::now()),
        propagation: Propagation::since(Timestamp::now()),
        term: PublisherTerm::new(),
        is_leader: false,
        reporting: BTreeSet::new(),
        reported: HashMap::new(),
        renewals: Renewals::default(),
        said_synced: false,
        published,
    };
    let result = tokio::select! {
        result = control.run(waiting, election.leads()) => result,
        _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
    };
    drop(own_mailbox);
    election.end().await;
    result
}

/// Waits until the cluster's id is known.
async fn identify(
    settings: &Settings,
    own: &mut OwnCluster,
    updates: &mut mpsc::Receiver<Update>,
    published: &Published,
) -> anyhow::Result<ClusterId> {
    while !own.has_properties() {
        published.beat();
        if let Ok(Some(Update::Own(event))) = timeout(TICK, updates.recv()).await {
            own.apply(event);
        }
    }
    let said = own.cluster_id();
    match (&settings.cluster, said) {
        (Some(given), Some(said)) if given.as_str() != said => bail!(
            "--cluster-id is {given}, and the ClusterProperty cluster.clusterset.k8s.io says {said}: \
             give one of them, or make them agree"
        ),
        (Some(given), _) => Ok(given.clone()),
        (None, Some(said)) => said
            .parse()
            .context("the ClusterProperty cluster.clusterset.k8s.io cannot be used as cluster id"),
        (None, None) => bail!(
            "this cluster has no id: create the ClusterProperty cluster.clusterset.k8s.io \
             (about.k8s.io), or give --cluster-id"
        ),
    }
}

fn watch_own(access: &Arc<ApiAccess>, updates: &mpsc::Sender<Update>) {
    let [
        exports,
        services,
        slices,
        namespaces,
        properties,
        imports,
        imported,
        ranges,
        rules,
        nodes,
    ] = exports::targets();
    spawn(access, exports, updates, |event| Update::Own(OwnEvent::Exports(event)));
    spawn(access, services, updates, |event| Update::Own(OwnEvent::Services(event)));
    spawn(access, slices, updates, |event| Update::Own(OwnEvent::Slices(event)));
    spawn(access, namespaces, updates, |event| Update::Own(OwnEvent::Namespaces(event)));
    spawn(access, properties, updates, |event| Update::Own(OwnEvent::Properties(event)));
    spawn(access, imports, updates, |event| Update::Own(OwnEvent::Imports(event)));
    spawn(access, imported, updates, |event| Update::Own(OwnEvent::ImportedSlices(event)));
    spawn(access, ranges, updates, |event| Update::Own(OwnEvent::Ranges(event)));
    spawn(access, rules, updates, |event| Update::Own(OwnEvent::Rules(event)));
    spawn(access, nodes, updates, |event| Update::Own(OwnEvent::Nodes(event)));
}

/// Watches a resource as long as the control task runs.
fn spawn<D: Decoder + Sync>(
    access: &Arc<ApiAccess>,
    target: WatchTarget,
    updates: &mpsc::Sender<Update>,
    update: fn(ResourceEvent<D>) -> Update,
) where
    D::Value: Sync,
{
    let (access, updates) = (Arc::clone(access), updates.clone());
    tokio::spawn(async move { ResourceWatch::new(&access, target, updates, update).run().await });
}

impl Control {
    async fn run(
        mut self,
        mut waiting: mpsc::Receiver<Update>,
        mut leads: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                update = waiting.recv() => {
                    let Some(update) = update else { bail!("every watch has ended") };
                    self.take(update);
                    while let Ok(update) = waiting.try_recv() {
                        self.take(update);
                    }
                }
                Some(done) = self.tasks.next() => self.finish(done),
                changed = leads.changed() => {
                    if changed.is_err() {
                        bail!("the election has ended");
                    }
                }
                () = until(self.state.imports.next_deferred()) => {
                    self.state.imports.retry(Instant::now());
                }
                _ = ticks.tick() => self.tick(),
            }
            self.lead(*leads.borrow());
            self.start_writes();
        }
    }

    fn take(&mut self, update: Update) {
        let is_secret = matches!(update, Update::Secrets(_));
        for peer in self.state.update(update) {
            self.connect(&peer);
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

    /// Makes, changes or ends the connection to a peer.
    fn connect(&mut self, name: &PeerName) {
        let Some(peer) = self.state.peers.all().get(name) else {
            self.connections.remove(name);
            return;
        };
        let number = peer.number;
        let mailbox = peer.object.mailbox.clone();
        let secret = &peer.object.secret;
        let namespace = &self.settings.namespace;
        let is_elsewhere = secret.namespace.as_ref().is_some_and(|other| other != namespace);
        let kubeconfig = self.state.peers.kubeconfig(secret).filter(|_| !is_elsewhere).cloned();
        let Some(kubeconfig) = kubeconfig else {
            if !self.state.peers.are_listed() {
                return;
            }
            let (name_of_secret, key) = (&secret.name, &secret.key);
            let problem = if is_elsewhere {
                format!("kubeconfigSecretRef.namespace has to be {namespace}, or absent")
            } else {
                format!("Secret {namespace}/{name_of_secret} has no key {key}, or is not there")
            };
            self.state.peers.note_access(name, number, Some(problem));
            return;
        };
        if let Some((used, connection)) = self.connections.get(name)
            && *used == number
            && connection.replace(&kubeconfig)
        {
            tracing::info!("peer {name} has other credentials");
            self.state.peers.note_access(name, number, None);
            return;
        }
        let id = (Arc::clone(name), number);
        let (secret, updates) = (secret.name.clone(), self.updates.clone());
        let connection = Connection::with_kubeconfig(kubeconfig, secret, mailbox, id, updates);
        self.connections.insert(Arc::clone(name), (number, connection));
    }

    fn lead(&mut self, leads: bool) {
        if leads == self.is_leader {
            return;
        }
        self.is_leader = leads;
        self.published.metrics.leader.set(leads.into());
        if leads {
            tracing::info!("this replica leads");
            self.term = PublisherTerm::new();
            self.propagation = Propagation::since(Timestamp::now());
            self.state.begin_term();
        } else {
            self.published.metrics.forget_peers();
            tracing::info!("another replica leads");
        }
    }

    fn start_writes(&mut self) {
        if !self.is_leader || !self.state.is_synced() {
            return;
        }
        while self.state.imports.busy() < AT_A_TIME
            && let Some(name) = self.state.imports.next()
        {
            self.import(name);
        }
        while self.state.is_own_mailbox()
            && self.state.publications.busy() < AT_A_TIME
            && let Some(name) = self.state.publications.next()
        {
            self.publish(name);
        }
        self.renew_lease();
    }

    fn import(&mut self, name: ServiceName) {
        let now = Instant::now();
        let mut writes = self.state.plan(&name);
        let notices = self.state.take_notices();
        self.tell(notices);
        let cluster = self.state.cluster();
        if let Some(until) = self.budgets.take(&name, &mut writes, cluster, now) {
            self.state.imports.defer(name.clone(), until);
        }
        if writes.is_empty() {
            self.state.imports.end(&name, false, now);
            return;
        }
        let adopts = self.settings.adopt;
        let requests: Vec<_> =
            writes.iter().map(|write| own_request(write, &self.state.own, adopts)).collect();
        self.state.imports.begin(name.clone());
        let access = Arc::clone(&self.access);
        self.tasks.push(Box::pin(async move {
            let result = send_plan(&access, &writes, &requests).await;
            Done::Import(name, writes, result)
        }));
    }

    /// Writes events. One that cannot be written is lost.
    fn tell(&mut self, notices: Vec<Notice>) {
        let now = Instant::now();
        for notice in notices {
            if !self.events.take(&notice, now) {
                continue;
            }
            let replica = self.settings.identity.as_deref().unwrap_or(well_known::CONTROLLER);
            let request = event(&notice, replica, Timestamp::now());
            let access = Arc::clone(&self.access);
            self.tasks.push(Box::pin(async move { Done::Event(request.send(&access).await) }));
        }
    }

    fn publish(&mut self, name: ServiceName) {
        let writes = self.state.plan_publication(&name);
        let mailbox = &self.settings.mailbox;
        let cluster = self.state.cluster();
        let view = &self.state.outbox;
        let request = |write| mailbox_request(write, mailbox, cluster, view);
        let requests: Vec<_> = writes.iter().filter_map(request).collect();
        if requests.is_empty() {
            self.state.publications.end(&name, false, Instant::now());
            self.state.note_publication(&name, None);
            return;
        }
        self.state.publications.begin(name.clone());
        let access = Arc::clone(&self.outbox.access);
        self.tasks.push(Box::pin(async move {
            let result = send_all(&access, &requests).await;
            Done::Publication(name, result)
        }));
    }

    /// Tells readers that the mailbox is complete, and that this publisher lives.
    fn renew_lease(&mut self) {
        if self.state.outbox.identity_problem().is_some() {
            return;
        }
        let is_settled = self.state.is_published();
        let services = self.state.to_be_published();
        let cluster = self.state.cluster();
        let mailbox = &self.settings.mailbox;
        if let Some(request) = self.term.next(mailbox, cluster, services, is_settled) {
            let access = Arc::clone(&self.outbox.access);
            self.tasks.push(Box::pin(async move { Done::Lease(request.send(&access).await) }));
        }
    }

    fn finish(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Import(name, writes, result) => {
                self.count("cluster", &result);
                if let Err(error) = &result {
                    if error.is_unknown_field("endpointSliceObjects") {
                        self.state.leave_out_slice_objects();
                    }
                    tracing::warn!("cannot import {name}: {error}; trying again");
                } else {
                    self.measure(&writes);
                    for write in &writes {
                        if let Write::ApplyImport(import) = write {
                            self.state.own.note_applied(import);
                        }
                    }
                }
                self.state.imports.end(&name, result.is_err(), now);
            }
            Done::Publication(name, result) => {
                self.count("mailbox", &result);
                let error = result.err();
                if let Some(error) = &error {
                    tracing::warn!("cannot publish {name}: {error}; trying again");
                }
                self.state.note_publication(&name, error.as_ref());
                self.state.publications.end(&name, error.is_some(), now);
            }
            Done::Lease(result) => {
                if let Err(error) = &result {
                    let mailbox = &self.settings.mailbox;
                    tracing::warn!(
                        "cannot renew the Lease publisher of mailbox {mailbox}: {error}"
                    );
                }
                self.term.written(result.is_ok());
            }
            Done::Token(peer, Ok(expires)) => {
                tracing::info!("the token of peer {peer} is renewed, and expires at {expires}");
            }
            Done::Token(peer, Err(error)) => {
                tracing::warn!("cannot renew the token of peer {peer}: {error:#}; trying again");
            }
            Done::Event(result) => {
                if let Err(error) = result {
                    tracing::debug!("cannot write an event: {error}");
                }
            }
            Done::PeerStatus(peer, result) => {
                self.reporting.remove(&peer);
                if let Err(error) = result {
                    tracing::debug!("cannot write the status of ClusterPeer {peer}: {error}");
                }
            }
        }
    }

    fn measure(&mut self, writes: &[Write]) {
        for (cluster, took) in self.propagation.measure(writes, Timestamp::now()) {
            let propagation = &self.published.metrics.propagation;
            propagation.with_label_values(&[cluster.as_str()]).observe(took.as_secs_f64());
        }
    }

    /// Renews the tokens of which half the life is over.
    fn renew_tokens(&mut self, now: Instant) {
        let clock = Timestamp::now();
        let peers = self.state.peers.all().iter();
        let of_peers = peers.filter_map(|(name, peer)| {
            Some((Arc::clone(name), peer.object.secret.clone(), peer.token.as_ref()?))
        });
        let of_mailbox = self.outbox.token();
        let of_mailbox = of_mailbox.map(|(secret, token)| (MAILBOX.into(), secret.clone(), token));
        let renewals = &mut self.renewals;
        let is_due = |(name, _, token): &(PeerName, SecretReference, &TokenClaims)| {
            renewals.is_due(name, token, clock, now)
        };
        let due: Vec<_> = of_peers.chain(of_mailbox).filter(is_due).collect();
        for (name, secret, _) in due {
            let Some(kubeconfig) = self.state.peers.kubeconfig(&secret).cloned() else { continue };
            let version = self.state.peers.secret_version(&secret).unwrap_or_default().to_owned();
            let (access, namespace) = (Arc::clone(&self.access), self.settings.namespace.clone());
            self.tasks.push(Box::pin(async move {
                let renewal = token::renew(&access, &namespace, &secret, &version, kubeconfig);
                Done::Token(name, renewal.await)
            }));
        }
    }

    fn statuses(&self, now: Instant) -> Vec<(PeerName, ClusterPeerStatus)> {
        let state = &self.state;
        let refused = state.refused();
        let refused = |cluster: &ClusterId| refused.get(cluster).copied().unwrap_or_default();
        peer_statuses(&state.peers, state.cluster(), &state.pod_ranges(), refused, now)
    }

    fn count(&self, target: &str, result: &Result<(), ApplyError>) {
        let result = if result.is_ok() { "ok" } else { "error" };
        self.published.metrics.writes.with_label_values(&[target, result]).inc();
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.published.beat();
        self.state.imports.retry(now);
        self.state.publications.retry(now);
        self.state.forget(now);
        let waiting = &self.published.metrics.waiting;
        for (target, queue) in
            [("cluster", &self.state.imports), ("mailbox", &self.state.publications)]
        {
            waiting.with_label_values(&[target]).set(queue.waiting());
        }
        if !self.is_leader {
            return;
        }
        let peers = self.state.peers.all();
        self.renewals.retain(|name| peers.contains_key(name) || **name == *MAILBOX);
        let is_gone =
            |name: &PeerName, _: &mut Instant| self.state.peers.written_status(name).is_none();
        for (name, _) in self.reported.extract_if(is_gone) {
            self.published.metrics.remove_peer(&name);
        }
        self.renew_tokens(now);
        for (name, status) in self.statuses(now) {
            self.published.metrics.set_peer(&name, &status);
            let Some(written) = self.state.peers.written_status(&name) else { continue };
            let was_reported = self.reported.get(&name).is_some_and(|at| now < *at + REPORTS);
            if was_reported && !has_turned(&status, written) {
                continue;
            }
            let Some(request) = peer_status_request(&name, &status, written) else { continue };
            if !self.reporting.insert(Arc::clone(&name)) {
                continue;
            }
            let version = self.state.peers.version(&name).cloned().unwrap_or_default();
            let notices = peer_notices(&name, &version, &status, written);
            self.tell(notices);
            self.reported.insert(Arc::clone(&name), now);
            let access = Arc::clone(&self.access);
            self.tasks.push(Box::pin(async move {
                let result = request.send(&access).await;
                Done::PeerStatus(name, result)
            }));
        }
    }
}

/// Waits until then, or for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// Sends the writes of a plan one after the other. After the first failure, which it returns, it sends those that are
/// right all the same.
async fn send_plan(
    access: &ApiAccess,
    writes: &[Write],
    requests: &[Request],
) -> Result<(), ApplyError> {
    let mut failed: Option<(&Write, ApplyError)> = None;
    for (write, request) in writes.iter().zip(requests) {
        if failed.as_ref().is_some_and(|(failed, _)| !write.is_right_without(failed)) {
            continue;
        }
        if let Err(error) = request.send(access).await {
            if let (Write::DeleteDerivedService(import), true) = (write, error.is_forbidden()) {
                tracing::warn!(
                    "the derived Service of {import} stays: {error}. Let the chart remove them (derivedServices=remove), \
                     or delete it"
                );
                continue;
            }
            failed = Some((write, failed.map_or(error, |(_, first)| first)));
        }
    }
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

/// Sends them one after the other, because their order matters. The first failure ends it.
async fn send_all(access: &ApiAccess, requests: &[Request]) -> Result<(), ApplyError> {
    for request in requests {
        request.send(access).await?;
    }
    Ok(())
}
