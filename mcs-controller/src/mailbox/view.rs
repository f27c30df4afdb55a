//! What a reader sees in a mailbox, and what it believes of that.
//!
//! | what a reader does | what allows it |
//! |---|---|
//! | it adds or changes a service, its slices and endpoints | the mailbox [`counts`](MailboxView::counts), and the object is of the publisher's epoch and no older than what is believed |
//! | it takes a service away whose ExportedService is withdrawn | the same |
//! | it takes a service away that the mailbox lacks | no [`removal_problem`](MailboxView::removal_problem), and a Lease that was renewed since and does not refuse the service |
//! | it takes a slice away that a believed service no longer names | [`allows_removal`](MailboxView::allows_removal): all slices that it names were seen ([`has_all_slices`](Believed::has_all_slices)), and the Lease [`is_renewed`](MailboxView::is_renewed) |
//! | it takes away what it has of a service that is not believed | [`allows_removal`](MailboxView::allows_removal): the mailbox [`was_complete`](MailboxView::was_complete) once, is within its limits, and holds no unreadable ExportedService of that name |
//!
//! What another replica, or this one before a restart, has imported is in none of this: it stays until the last two rows take
//! it away.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use mcs_kube::{Drain, ResourceEvent};

use super::{contents::Contents, problem::MailboxProblem};
use crate::{
    clusterset::{ClusterId, Export, Properties, ServiceName, SourceSlice, Stamp},
    feed::Feed,
    objects::{
        ExportedObject, ExportedServiceDecoder, Limits, MailboxSliceDecoder, PublisherLease,
        PublisherLeaseDecoder,
    },
};

/// An event of one of the watches of a mailbox.
#[derive(Clone, PartialEq, Debug)]
pub enum MailboxEvent {
    /// Of the ExportedServices.
    Services(ResourceEvent<ExportedServiceDecoder>),
    /// Of the copies of slices.
    Slices(ResourceEvent<MailboxSliceDecoder>),
    /// Of the Lease.
    Lease(ResourceEvent<PublisherLeaseDecoder>),
}

impl MailboxEvent {
    /// Whether the API server has answered.
    pub const fn is_answer(&self) -> bool {
        !matches!(
            self,
            Self::Services(ResourceEvent::Failing { .. })
                | Self::Slices(ResourceEvent::Failing { .. })
                | Self::Lease(ResourceEvent::Failing { .. })
        )
    }
}

/// An export that counts.
#[derive(Clone, PartialEq, Debug)]
pub struct Believed {
    /// The export.
    pub export: Export,
    /// Its slices.
    pub slices: Vec<Arc<SourceSlice>>,
    /// Whether every slice that it names was seen. Until then no slice goes.
    pub has_all_slices: bool,
    /// When it was written.
    pub stamp: Stamp,
}

impl Believed {
    fn endpoints(&self) -> usize {
        self.slices.iter().map(|slice| slice.endpoints.len()).sum()
    }
}

/// The contents of a mailbox as a reader sees them, and what of that counts.
#[derive(Debug)]
pub struct MailboxView {
    cluster: ClusterId,
    /// The uid that the cluster has to have.
    uid: Option<String>,
    contents: Contents,
    lease: Option<PublisherLease>,
    /// The greatest stamp of the Lease so far.
    latest: Stamp,
    /// The namespaces that the cluster lacks, as its latest Lease has said. `None`: none has.
    lacking: Option<Arc<BTreeSet<Arc<str>>>>,
    /// Whether its peers are to prefer other clusters, as that Lease has said.
    drain: Option<Drain>,
    /// Its ClusterProperties, likewise.
    properties: Option<Arc<Properties>>,
    services_feed: Feed,
    slices_feed: Feed,
    lease_feed: Feed,
    /// The epoch in which everything was judged last. Events since then name what has to be judged again.
    judged: Option<u64>,
    /// Whether once everything that the publisher counts was there, and the publisher was alive. From then on, what is not
    /// believed is not exported.
    was_complete: bool,
    believed: HashMap<ServiceName, Believed>,
    /// The number of endpoints in `believed`: the status of the peer says it, every second.
    endpoints: usize,
    /// The services that are believed although the mailbox lacks them, each with the renewals of the Lease until then: they
    /// are gone when a later one does not count them. The mailbox may be that of a backup.
    absent: BTreeMap<ServiceName, u64>,
    /// The number of events of the Lease.
    renewals: u64,
    /// The number of times that the Lease was listed.
    lists: u64,
    /// Nothing is believed before the Lease had more events: the mailbox may be one that the cluster has left, or that of
    /// a backup.
    counts_after: u64,
    /// The number of events of the Lease when the mailbox last had as many services as it said. `None`: never.
    agreed_at: Option<u64>,
}

impl MailboxView {
    /// A mailbox of this cluster, of which nothing is known.
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            contents: Contents::new(cluster.clone(), true),
            cluster,
            uid: None,
            lease: None,
            latest: Stamp::NONE,
            lacking: None,
            drain: None,
            properties: None,
            services_feed: Feed::default(),
            slices_feed: Feed::default(),
            lease_feed: Feed::default(),
            judged: None,
            was_complete: false,
            believed: HashMap::new(),
            endpoints: 0,
            absent: BTreeMap::new(),
            renewals: 0,
            lists: 0,
            counts_after: 0,
            agreed_at: None,
        }
    }

    /// The mailbox that this cluster itself writes.
    pub fn own(cluster: ClusterId) -> Self {
        Self { contents: Contents::new(cluster.clone(), false), ..Self::new(cluster) }
    }

    /// Another mailbox of a cluster. It may be one that the cluster has left: it counts once its Lease is renewed.
    pub fn moved(cluster: ClusterId) -> Self {
        Self { counts_after: 1, ..Self::new(cluster) }
    }

    /// How much of the mailbox is kept, from the next list on. Without limits it is this cluster's own.
    pub fn set_limits(&mut self, limits: Limits) {
        self.contents.set_limits(limits);
    }

    /// Applies an event. Returns the services of which something else is believed now.
    pub fn apply(&mut self, event: MailboxEvent) -> BTreeSet<ServiceName> {
        let touched = self.apply_to_own(event);
        if self.removal_problem().is_none() {
            self.agreed_at = Some(self.renewals);
        }
        self.believe(touched)
    }

    /// As [`MailboxView::apply`], for the mailbox that this cluster itself writes. Returns the services whose objects
    /// are other ones now.
    pub fn apply_to_own(&mut self, event: MailboxEvent) -> BTreeSet<ServiceName> {
        match event {
            MailboxEvent::Services(event) => {
                self.services_feed.record(&event);
                self.contents.take_services(event)
            }
            MailboxEvent::Slices(event) => {
                self.slices_feed.record(&event);
                self.contents.take_slices(event)
            }
            MailboxEvent::Lease(event) => {
                self.take_lease(event);
                BTreeSet::new()
            }
        }
    }

    fn take_lease(&mut self, event: ResourceEvent<PublisherLeaseDecoder>) {
        self.lease_feed.record(&event);
        let lease = match event {
            ResourceEvent::Listed { objects, .. } => {
                self.lists += 1;
                objects.into_iter().next()
            }
            ResourceEvent::Changed(object) => Some(object),
            ResourceEvent::Deleted(_) => None,
            _ => return,
        };
        let lease = lease.and_then(|object| object.decoded.ok());
        let renewed =
            |lease: &Option<PublisherLease>| lease.as_ref().map(|lease| lease.renewed.clone());
        if lease.is_none() && self.lease.is_some() {
            self.counts_after = self.renewals + 1;
            self.absent.clear();
        }
        if lease.is_some() && renewed(&lease) != renewed(&self.lease) {
            self.renewals += 1;
        }
        self.lease = lease;
        if let Some(lease) = self.lease.as_ref().filter(|_| self.identity_problem().is_none()) {
            // A publisher of an earlier version has no stamps, and can follow one that has them.
            self.latest =
                if lease.stamp.is_none() { Stamp::NONE } else { self.latest.max(lease.stamp) };
            if !lease.stamp.is_before(self.latest) {
                self.lacking = Some(Arc::clone(&lease.lacking));
                self.drain = lease.drain;
                if lease.properties.is_some() && lease.properties != self.properties {
                    self.properties.clone_from(&lease.properties);
                }
            }
        }
    }

    /// Believes what can be believed, service by service. Returns the services of which something else is believed now.
    fn believe(&mut self, touched: BTreeSet<ServiceName>) -> BTreeSet<ServiceName> {
        if !self.counts() {
            self.judged = None;
            return BTreeSet::new();
        }
        let epoch = self.latest.epoch;
        let was_judged = self.judged.replace(epoch) == Some(epoch);
        let mut changed = BTreeSet::new();
        let candidates = if was_judged {
            touched
        } else {
            let all = self.contents.services().keys().chain(self.believed.keys());
            all.cloned().collect()
        };
        for name in candidates {
            if self.judge(&name) {
                changed.insert(name);
            }
        }
        if self.removal_problem().is_none() {
            self.was_complete |= self.is_renewed();
            let (renewals, lease) = (self.renewals, self.lease.as_ref());
            let is_gone = |name: &ServiceName, since: &mut u64| {
                renewals > *since && lease.is_some_and(|lease| !lease.refuses(name))
            };
            let gone: Vec<_> = self.absent.extract_if(.., is_gone).collect();
            for (name, _) in gone {
                self.set_believed(&name, None);
                changed.insert(name);
            }
        }
        changed
    }

    /// Believes what the mailbox says of a service. Returns whether that is something else than before.
    fn judge(&mut self, name: &ServiceName) -> bool {
        let Some(object) = self.contents.services().get(name) else {
            if self.believed.contains_key(name) && !self.contents.unread().contains_key(name) {
                self.absent.entry(name.clone()).or_insert(self.renewals);
            }
            return false;
        };
        self.absent.remove(name);
        let former = self.believed.get(name).map_or(Stamp::NONE, |believed| believed.stamp);
        if !self.is_current(object.stamp) || object.stamp.is_before(former) {
            return false;
        }
        if !object.is_usable() {
            return self.set_believed(name, None);
        }
        let believed = self.believed_of(object);
        let differs = self.believed.get(name) != Some(&believed);
        if differs {
            self.set_believed(name, Some(believed));
        }
        differs
    }

    /// Returns whether something was believed before.
    fn set_believed(&mut self, name: &ServiceName, believed: Option<Believed>) -> bool {
        self.endpoints += believed.as_ref().map_or(0, Believed::endpoints);
        let former = match believed {
            Some(believed) => self.believed.insert(name.clone(), believed),
            None => self.believed.remove(name),
        };
        self.endpoints -= former.as_ref().map_or(0, Believed::endpoints);
        former.is_some()
    }

    /// Whether what is there counts: everything was listed, and the Lease is of the expected cluster, no older than one
    /// before, and renewed if the mailbox may be one that the cluster has left.
    pub fn counts(&self) -> bool {
        let is_of_publisher = |lease| !self.is_past(lease) && self.identity_problem().is_none();
        self.is_listed()
            && self.lease.as_ref().is_some_and(is_of_publisher)
            && self.renewals > self.counts_after
    }

    /// Whether a later Lease was there before.
    fn is_past(&self, lease: &PublisherLease) -> bool {
        lease.stamp.is_before(self.latest)
    }

    /// Whether the publisher, or one of the same epoch before it, wrote an object with this stamp.
    const fn is_current(&self, stamp: Stamp) -> bool {
        self.latest.epoch == 0 || stamp.epoch == self.latest.epoch
    }

    /// Whether it is known which slices of a service the cluster exports, none or these: others can go.
    pub fn allows_removal(&self, service: &ServiceName) -> bool {
        if let Some(believed) = self.believed.get(service) {
            return believed.has_all_slices && self.is_renewed();
        }
        let is_refused = self.lease.as_ref().is_some_and(|lease| lease.refuses(service));
        self.was_complete
            && self.over_limit().is_none()
            && !is_refused
            && !self.contents.unread().contains_key(service)
    }

    /// The slices that the ExportedService names: as they are, else as they were. New ones come before it, but by
    /// another watch. Until they are seen, the former ones stay.
    fn believed_of(&self, object: &ExportedObject) -> Believed {
        let exported = &object.exported;
        let name = &exported.export.name;
        let seen = self.contents.slices().get(name);
        let former = self.believed.get(name).map_or(&[][..], |believed| &believed.slices);
        let former_of = |name: &Arc<str>| {
            let place = former.binary_search_by(|slice| slice.name.cmp(name));
            place.ok().map(|place| &former[place])
        };
        let slice = |name: &Arc<str>| {
            let former = former_of(name);
            let is_later = |slice: &&Arc<SourceSlice>| {
                let is_before = former.is_some_and(|former| slice.stamp.is_before(former.stamp));
                self.is_current(slice.stamp) && !is_before
            };
            seen.and_then(|seen| seen.get(name)).filter(is_later).or(former).cloned()
        };
        let mut slices: Vec<_> = exported.slices.iter().filter_map(slice).collect();
        let has_all_slices = slices.len() == exported.slices.len();
        if !has_all_slices {
            let is_other =
                |former: &&Arc<SourceSlice>| exported.slices.binary_search(&former.name).is_err();
            slices.extend(former.iter().filter(is_other).cloned());
            slices.sort_by(|one, other| one.name.cmp(&other.name));
        }
        Believed { export: exported.export.clone(), slices, has_all_slices, stamp: object.stamp }
    }

    /// Why no service may be taken away because the mailbox lacks it.
    pub fn removal_problem(&self) -> Option<MailboxProblem> {
        if let Some(problem) = self.unreadable() {
            return Some(problem);
        }
        if !self.is_listed() {
            return Some(MailboxProblem::Incomplete);
        }
        if let Some(problem) = self.over_limit() {
            return Some(problem);
        }
        if let Some(problem) = self.identity_problem() {
            return Some(problem);
        }
        let Some(lease) = &self.lease else { return Some(MailboxProblem::NoPublisher) };
        if self.is_past(lease) {
            return Some(MailboxProblem::Past);
        }
        if !lease.complete || self.renewals <= self.counts_after {
            return Some(MailboxProblem::Incomplete);
        }
        let (seen, said) = (self.contents.count(), lease.services);
        (seen != said).then_some(MailboxProblem::Count { seen, said })
    }

    /// Why it is not known what the cluster exports. A service that has just come or gone is no reason: the Lease counts it
    /// when it is renewed, at the latest when it is renewed once more.
    pub fn problem(&self) -> Option<MailboxProblem> {
        let is_new = self.agreed_at.is_some_and(|agreed_at| self.renewals <= agreed_at + 1);
        let is_count = |problem: &MailboxProblem| matches!(problem, MailboxProblem::Count { .. });
        self.removal_problem().filter(|problem| !(is_new && is_count(problem)))
    }

    /// Why a resource cannot be read now.
    pub fn unreadable(&self) -> Option<MailboxProblem> {
        let feeds = [
            (&self.services_feed, "exportedservices"),
            (&self.slices_feed, "endpointslices"),
            (&self.lease_feed, "leases"),
        ];
        feeds.into_iter().find_map(|(feed, resource)| {
            let reason = feed.failure.clone()?;
            Some(MailboxProblem::Unreadable { resource, reason })
        })
    }

    /// Why not everything is kept.
    pub fn over_limit(&self) -> Option<MailboxProblem> {
        self.contents.over_limit()
    }

    /// How many ExportedServices and slices are beyond the limits.
    pub fn left_out(&self) -> [usize; 2] {
        self.contents.left_out()
    }

    /// How many objects were ignored.
    pub const fn ignored(&self) -> u64 {
        self.contents.ignored()
    }

    /// Whether the mailbox is another cluster's.
    pub fn identity_problem(&self) -> Option<MailboxProblem> {
        let lease = self.lease.as_ref()?;
        if lease.cluster != self.cluster.as_str() {
            return Some(MailboxProblem::OtherCluster(lease.cluster.clone()));
        }
        let (expected, said) = (self.uid.as_ref()?, lease.uid.as_ref()?);
        (expected != said).then(|| MailboxProblem::OtherUid(said.clone()))
    }

    /// The cluster has to have this uid, if it says one.
    pub fn expect_uid(&mut self, uid: Option<&String>) {
        self.uid = uid.cloned();
        self.believe(BTreeSet::new());
    }

    /// Whether every resource was listed once.
    pub fn is_listed(&self) -> bool {
        self.services_feed.synced && self.slices_feed.synced && self.lease_feed.synced
    }

    /// Whether there was no [`MailboxView::removal_problem`] once, while a publisher renewed the Lease.
    pub const fn was_complete(&self) -> bool {
        self.was_complete
    }

    /// Whether somebody renews the Lease. Until then the mailbox may be one that its cluster has left: what it lacks may
    /// be exported elsewhere.
    pub const fn is_renewed(&self) -> bool {
        self.renewals > 1
    }

    /// The exports that count.
    pub const fn believed(&self) -> &HashMap<ServiceName, Believed> {
        &self.believed
    }

    /// The number of endpoints of the exports that count.
    pub const fn endpoints(&self) -> usize {
        self.endpoints
    }

    /// The Lease.
    pub const fn lease(&self) -> Option<&PublisherLease> {
        self.lease.as_ref()
    }

    /// Whether the cluster wants to be drained. `former` is what it wanted before this reader began.
    pub fn drain_or(&self, former: Option<Drain>) -> Option<Drain> {
        // Both are read from one Lease.
        if self.lacking.is_some() { self.drain } else { former }
    }

    /// The ClusterProperties of the cluster. `None`: nobody has heard them yet.
    pub const fn properties(&self) -> Option<&Arc<Properties>> {
        self.properties.as_ref()
    }

    /// The namespaces of exports of its peers that the cluster lacks. `None`: it has not said so.
    pub const fn lacking(&self) -> Option<&Arc<BTreeSet<Arc<str>>>> {
        self.lacking.as_ref()
    }

    /// Changes with each renewal of the Lease.
    pub const fn renewals(&self) -> u64 {
        self.renewals
    }

    /// The number of times that the Lease was listed.
    pub const fn lists(&self) -> u64 {
        self.lists
    }

    /// The ExportedServices that are there and can be read.
    pub const fn seen(&self) -> &BTreeMap<ServiceName, ExportedObject> {
        self.contents.services()
    }

    /// The ExportedServices that are there and cannot be read, with their versions.
    pub const fn unread(&self) -> &BTreeMap<ServiceName, Option<Arc<str>>> {
        self.contents.unread()
    }

    /// The latest stamp of what is there.
    pub fn latest_stamp(&self) -> Stamp {
        let services = self.contents.services().values().map(|object| object.stamp);
        let slices = self.contents.slices().values().flat_map(|slices| slices.values());
        services.chain(slices.map(|slice| slice.stamp)).max().unwrap_or_default()
    }

    /// The slices of a service that are there.
    pub fn seen_slices(
        &self,
        service: &ServiceName,
    ) -> Option<&BTreeMap<Arc<str>, Arc<SourceSlice>>> {
        self.contents.slices().get(service)
    }

    /// The services that have slices there.
    pub fn with_slices(&self) -> impl Iterator<Item = &ServiceName> {
        self.contents.slices().keys()
    }
}
