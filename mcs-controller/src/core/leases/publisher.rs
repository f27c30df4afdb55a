//! Which publisher writes a mailbox, and when it writes the Lease `publisher`.
//!
//! One publisher writes a mailbox. It takes over the Lease after the former publisher has ended or is silent. It writes the
//! Lease with `resourceVersion`, so that only one of two publishers succeeds. A publisher that sees another one renew the
//! Lease stops: the other belongs to a copy of this cluster, or to a cluster with the same id.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use mcs_kube::Drain;

use crate::core::{
    apply::{Action, Request},
    clock,
    clusterset::{ClusterId, Properties, ServiceName, Stamp, well_known},
    objects::{Membership, PublisherLease, SCHEMA, publisher_lease},
};

/// How often the Lease is renewed.
const RENEWAL: Duration = Duration::from_secs(10);
/// How long a change of the Lease's content may wait: readers of every cluster get it.
const PACE: Duration = Duration::from_secs(1);
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// How long a publisher may be silent before another one takes over.
const SILENCE: Duration = Duration::from_secs(20);

/// Whose publisher it is.
#[derive(Clone, Debug)]
pub struct PublisherIdentity {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The uid of the cluster.
    pub uid: String,
    /// The namespace of the mailbox.
    pub mailbox: String,
    /// Whether the mailbox is in this cluster: then the election of replicas is enough at the start.
    pub is_at_home: bool,
    /// Whether replicas elect the publisher. A second live publisher then belongs to another cluster.
    pub is_elected: bool,
}

/// The content of the Lease.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statement {
    /// Whether every service that waited when the term began was published or refused.
    pub complete: bool,
    /// The number of services that readers have to see before they delete any.
    pub services: usize,
    /// The services that the API server refuses and the mailbox lacks.
    pub refused: Arc<BTreeSet<ServiceName>>,
    /// The namespaces of exports of peers that this cluster lacks.
    pub lacking: Arc<BTreeSet<Arc<str>>>,
    /// Whether readers should prefer other clusters.
    pub drain: Option<Drain>,
    /// The ClusterProperties of this cluster that readers may know.
    pub properties: Arc<Properties>,
}

/// What the publisher may do.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Hold {
    /// It waits until the Lease is free.
    Waiting,
    /// It publishes.
    Held,
    /// Somebody else has written the Lease. The publisher waits until it was listed more often than this.
    Unsure(u64),
    /// Another publisher renews the Lease.
    Lost,
}

/// The change after a look at the Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementChange {
    /// Nothing.
    None,
    /// This publisher publishes everything again: the mailbox may be old.
    Began,
    /// This publisher stops.
    Lost,
}

/// The Lease as last seen, and the time of its last change.
#[derive(Debug)]
struct Seen {
    lease: Option<PublisherLease>,
    since: Instant,
    /// Whether it was renewed while it was watched.
    is_alive: bool,
}

/// A time during which this replica publishes.
#[derive(Debug)]
pub struct PublisherTerm {
    identity: PublisherIdentity,
    run: String,
    started: Instant,
    hold: Hold,
    has_held: bool,
    seen: Option<Seen>,
    /// The stamp of the last write.
    stamp: Stamp,
    /// `resourceVersion` of the Lease that this publisher wrote.
    version: Option<String>,
    /// What was last written, and when.
    written: Option<(Statement, Instant)>,
    /// What is being written.
    writing: Option<Statement>,
    failed: Option<Instant>,
}

impl PublisherTerm {
    /// The first term of this replica.
    pub fn new(identity: PublisherIdentity, now: Instant) -> Self {
        Self {
            identity,
            run: format!("{:016x}", fastrand::u64(..)),
            started: now,
            hold: Hold::Waiting,
            has_held: false,
            seen: None,
            stamp: Stamp::NONE,
            version: None,
            written: None,
            writing: None,
            failed: None,
        }
    }

    /// The next term of this replica, which has watched the Lease meanwhile.
    #[must_use]
    pub fn next_term(&mut self, now: Instant) -> Self {
        let seen = self.seen.take().map(|seen| Seen { is_alive: false, ..seen });
        Self { seen, ..Self::new(self.identity.clone(), now) }
    }

    /// Handles the Lease as it is, and how often it was listed.
    pub fn observe(
        &mut self,
        lease: Option<&PublisherLease>,
        lists: u64,
        now: Instant,
    ) -> StatementChange {
        if self.seen.as_ref().is_none_or(|seen| seen.lease.as_ref() != lease) {
            let was_there = self.seen.as_ref().is_some_and(|seen| seen.lease.is_some());
            let is_alive = was_there && lease.is_some_and(|lease| !lease.released);
            self.seen = Some(Seen { lease: lease.cloned(), since: now, is_alive });
        }
        let is_followed =
            lease.is_some_and(|lease| lease.run != self.run && lease.stamp > self.stamp);
        let is_listed = matches!(self.hold, Hold::Unsure(before) if lists > before);
        match self.hold {
            Hold::Held | Hold::Unsure(_) if is_followed && (is_listed || self.holds()) => {
                self.hold = Hold::Waiting;
                StatementChange::Lost
            }
            Hold::Unsure(_) if is_listed => {
                self.version = lease.and_then(|lease| lease.version.clone());
                self.hold = Hold::Held;
                self.written = None;
                StatementChange::Began
            }
            Hold::Waiting if self.identity.is_elected && self.is_rivalled(now) => {
                self.hold = Hold::Lost;
                StatementChange::Lost
            }
            _ => StatementChange::None,
        }
    }

    /// Whether somebody renews the Lease although this replica has led for a while.
    fn is_rivalled(&self, now: Instant) -> bool {
        let lives = |seen: &Seen| {
            let lease = seen.lease.as_ref().filter(|lease| lease.run != self.run);
            lease.is_some() && seen.is_alive && seen.since >= self.started + SILENCE
        };
        now >= self.started + SILENCE && self.seen.as_ref().is_some_and(lives)
    }

    /// Whether this publisher may write to the mailbox.
    pub fn holds(&self) -> bool {
        self.hold == Hold::Held
    }

    /// The epoch of what this publisher writes.
    pub const fn epoch(&self) -> u64 {
        self.stamp.epoch
    }

    /// The stamp of the next write.
    pub fn next_stamp(&mut self) -> Stamp {
        let clock = u64::try_from(clock::time_of_day().as_millisecond()).unwrap_or_default();
        self.stamp.sequence = clock.max(self.stamp.sequence + 1);
        self.stamp
    }

    /// The mailbox has objects with this stamp; later writes get greater ones.
    pub fn follow(&mut self, stamp: Stamp) {
        if stamp.epoch == self.stamp.epoch {
            self.stamp = self.stamp.max(stamp);
        } else if stamp.epoch > self.stamp.epoch {
            // The clock was ahead when the objects were written, and somebody has deleted the Lease. Readers would believe
            // nothing of an earlier epoch.
            self.stamp.epoch = stamp.epoch.saturating_add(1);
            self.written = None;
        }
    }

    /// Why this publisher does not publish, if it is for another one.
    pub fn problem(&self, now: Instant) -> Option<String> {
        let lease = self.seen.as_ref()?.lease.as_ref()?;
        let (id, mailbox) = (&self.identity.cluster, &self.identity.mailbox);
        match self.hold {
            Hold::Lost | Hold::Waiting if self.hold == Hold::Lost || self.is_rivalled(now) => {
                Some(format!(
                    "another publisher of cluster {id} renews the Lease publisher in namespace {mailbox}: a copy of this \
                 cluster, or another one with the same id (uid {}, this one has {}). Nothing is published here. Give this \
                 cluster another id and mailbox, or end the other publisher and restart this controller",
                    lease.uid.as_deref().unwrap_or("unknown"),
                    self.identity.uid,
                ))
            }
            Hold::Waiting if lease.run != self.run && self.has_held => Some(format!(
                "another publisher of cluster {id} has taken over the Lease publisher in namespace {mailbox}"
            )),
            _ => None,
        }
    }

    /// Whether the Lease can be taken over now.
    fn is_free(&self, seen: &Seen, now: Instant) -> bool {
        let Some(lease) = &seen.lease else { return true };
        let is_start = self.identity.is_at_home && !self.has_held;
        let is_silent = now.saturating_duration_since(seen.since) >= SILENCE;
        lease.released || is_start || is_silent || lease.run == self.run
    }

    /// The next write, if it is time for one.
    pub fn next(
        &mut self,
        statement: Statement,
        membership: &Membership,
        now: Instant,
    ) -> Option<Request> {
        let recently = |at: Instant, limit| now.saturating_duration_since(at) < limit;
        if self.writing.is_some() || self.failed.is_some_and(|at| recently(at, RETRY)) {
            return None;
        }
        let statement = match self.hold {
            Hold::Held => statement,
            Hold::Waiting if self.is_free(self.seen.as_ref()?, now) => {
                self.begin();
                let Statement { lacking, drain, properties, .. } = statement;
                Statement { lacking, drain, properties, ..Statement::default() }
            }
            _ => return None,
        };
        if let Some((last, at)) = &self.written
            && self.holds()
            && (recently(*at, PACE) || *last == statement && recently(*at, RENEWAL))
        {
            return None;
        }
        self.writing = Some(statement.clone());
        Some(self.request(&statement, membership, false))
    }

    /// Continues after the stamp of the Lease, in the same epoch if the Lease is of the same cluster.
    fn begin(&mut self) {
        let former = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        let same = former.filter(|former| former.uid.as_ref() == Some(&self.identity.uid));
        self.version = former.and_then(|former| former.version.clone());
        self.stamp = match (same, former) {
            (Some(same), _) if !same.stamp.is_none() => self.stamp.max(same.stamp),
            (_, former) => {
                // The clock makes the epoch greater than that of a deleted Lease.
                let clock = u64::try_from(clock::time_of_day().as_second()).unwrap_or_default();
                let after = former.map_or(0, |former| former.stamp.epoch + 1);
                Stamp { mailbox: 0, epoch: clock.max(after).max(self.stamp.epoch), sequence: 0 }
            }
        };
    }

    fn request(
        &mut self,
        statement: &Statement,
        membership: &Membership,
        released: bool,
    ) -> Request {
        let Statement { complete, services, refused, lacking, drain, properties } =
            statement.clone();
        let lease = PublisherLease {
            cluster: self.identity.cluster.to_string(),
            stamp: self.next_stamp(),
            run: self.run.clone(),
            uid: Some(self.identity.uid.clone()),
            complete,
            services,
            failed: refused.len(),
            refused: Arc::unwrap_or_clone(refused),
            lacking,
            schema: SCHEMA,
            drain,
            properties: Some(properties),
            released,
            renewed: String::new(),
            version: self.version.clone(),
            membership: Some(membership.clone()),
        };
        let object = publisher_lease(&self.identity.mailbox, &lease, clock::time_of_day());
        let api = ("coordination.k8s.io", "v1", "Lease", "leases");
        let (mailbox, name) = (&self.identity.mailbox, well_known::PUBLISHER_LEASE);
        Request::new(api, Some(mailbox), name, Action::Update(object))
    }

    /// The last write, which releases the Lease.
    pub fn release(&mut self, membership: &Membership) -> Option<Request> {
        let (last, _) = self.written.clone().filter(|_| self.holds())?;
        self.hold = Hold::Waiting;
        Some(self.request(&last, membership, true))
    }

    /// The write has succeeded, and made this `resourceVersion`. Returns whether a term begins with it.
    pub fn written(&mut self, version: Option<String>, now: Instant) -> bool {
        self.failed = None;
        self.version = version;
        let begins = self.hold == Hold::Waiting;
        self.hold = Hold::Held;
        self.has_held = true;
        self.written = self.writing.take().map(|statement| (statement, now));
        begins
    }

    /// The write has failed. `lists`: how often the Lease was listed. Returns whether it has to be listed again.
    pub fn failed(&mut self, is_conflict: bool, lists: u64, now: Instant) -> bool {
        self.writing = None;
        self.failed = Some(now);
        if !is_conflict {
            return false;
        }
        let held = self.holds();
        self.hold = if held { Hold::Unsure(lists) } else { Hold::Waiting };
        true
    }
}

#[cfg(test)]
mod tests;
