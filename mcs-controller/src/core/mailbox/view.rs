//! What a reader sees in a mailbox, and what it believes of it.
//!
//! | what a reader does | what allows it |
//! |---|---|
//! | it adds or changes a service, its slices and endpoints | the mailbox [`counts`](MailboxView::counts), and the object is of the publisher's epoch and no older than what is believed; after the mailbox was one of a backup, no [`removal_problem`](MailboxView::removal_problem) |
//! | it takes a service away whose ExportedService is withdrawn | the same |
//! | it takes a service away that the mailbox lacks | no [`removal_problem`](MailboxView::removal_problem), and a Lease that was renewed since and does not refuse the service |
//! | it takes a slice away that a believed service no longer names | [`allows_removal`](MailboxView::allows_removal): all slices that it names were seen ([`has_all_slices`](Believed::has_all_slices)), and the Lease [`is_renewed`](MailboxView::is_renewed) |
//! | it takes away what it has of a service that is not believed | [`allows_removal`](MailboxView::allows_removal): the mailbox [`was_complete`](MailboxView::was_complete) once, is within its limits, and holds no unreadable ExportedService of that name |
//!
//! The view does not know what another replica, or this replica before a restart, has imported: that stays until one of the
//! last two rows allows its deletion.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use mcs_kube::{Drain, ResourceEvent};

use super::{
    contents::{Contents, Touched},
    problem::MailboxProblem,
};
use crate::core::{
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

/// What a reader uses of an export.
#[derive(Clone, PartialEq, Debug)]
pub struct Believed {
    /// The export.
    pub export: Export,
    /// Its slices, by their names.
    pub slices: BTreeMap<Arc<str>, Arc<SourceSlice>>,
    /// How many slices the ExportedService names that were never seen. Until there are none, no slice is deleted.
    pub missing: usize,
    /// When it was written.
    pub stamp: Stamp,
}

impl Believed {
    fn endpoints(&self) -> usize {
        self.slices.values().map(|slice| slice.endpoints.len()).sum()
    }

    /// Whether every slice that the ExportedService names was seen.
    pub const fn has_all_slices(&self) -> bool {
        self.missing == 0
    }
}

/// The contents of a mailbox as a reader sees them, and the exports that it believes.
#[derive(Debug)]
pub struct MailboxView {
    cluster: ClusterId,
    /// The expected uid of the cluster.
    uid: Option<String>,
    contents: Contents,
    lease: Option<PublisherLease>,
    /// The greatest stamp of the Lease so far.
    latest: Stamp,
    /// The namespaces that the cluster lacks, by its latest Lease. `None`: no Lease has said it.
    lacking: Option<Arc<BTreeSet<Arc<str>>>>,
    /// Whether its peers should prefer other clusters, by that Lease.
    drain: Option<Drain>,
    /// Its ClusterProperties, by that Lease.
    properties: Option<Arc<Properties>>,
    services_feed: Feed,
    slices_feed: Feed,
    lease_feed: Feed,
    /// The epoch in which everything was last judged. Later events name the services to judge again.
    judged: Option<u64>,
    /// Whether the mailbox was complete once while the publisher renewed the Lease. From then on, a service that is not
    /// believed is not exported.
    was_complete: bool,
    believed: HashMap<ServiceName, Believed>,
    /// The number of endpoints in `believed`, which the status of the peer needs every second.
    endpoints: usize,
    /// The believed services that the mailbox lacks, each with the renewals of the Lease at that time. A later renewal that
    /// does not count a service removes it. Until then the mailbox may be a restored backup.
    absent: BTreeMap<ServiceName, u64>,
    /// The number of renewals of the Lease.
    renewals: u64,
    /// The number of times that the Lease was listed.
    lists: u64,
    /// Nothing is believed before the Lease has more renewals: the cluster may have left the mailbox, or the mailbox may be
    /// a restored backup.
    counts_after: u64,
    /// The mailbox was older than the Lease with this stamp, or had none. What was written before may be of a restored
    /// backup: a service that is not believed waits until the publisher has looked at everything.
    doubted: Stamp,
    /// The renewals of the Lease when the mailbox last had as many services as the Lease counts. `None`: never.
    agreed_at: Option<u64>,
}

impl MailboxView {
    /// An empty view of a mailbox of this cluster.
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
            doubted: Stamp::NONE,
            agreed_at: None,
        }
    }

    /// The view of this cluster's own mailbox.
    pub fn own(cluster: ClusterId) -> Self {
        Self { contents: Contents::new(cluster.clone(), false), ..Self::new(cluster) }
    }

    /// The view of another mailbox of a cluster. The cluster may have left it, so it counts once its Lease is renewed.
    pub fn moved(cluster: ClusterId) -> Self {
        Self { counts_after: 1, ..Self::new(cluster) }
    }

    /// Sets the limits, from the next list on. This cluster's own mailbox has none.
    pub fn set_limits(&mut self, limits: Limits) {
        self.contents.ledger.set_limits(limits);
    }

    /// Applies an event. Returns the services for which the believed export has changed.
    pub fn apply(&mut self, event: MailboxEvent) -> BTreeSet<ServiceName> {
        let touched = self.take(event);
        if self.removal_problem().is_none() {
            self.agreed_at = Some(self.renewals);
        }
        self.believe(touched)
    }

    /// As [`MailboxView::apply`], for this cluster's own mailbox. Returns the services whose objects have changed.
    pub fn apply_to_own(&mut self, event: MailboxEvent) -> BTreeSet<ServiceName> {
        self.take(event).services()
    }

    fn take(&mut self, event: MailboxEvent) -> Touched {
        match event {
            MailboxEvent::Services(event) => {
                self.services_feed.record(&event);
                let is_list = matches!(event, ResourceEvent::Listed { .. });
                let mut services = self.contents.take_services(event);
                if is_list {
                    // What gave way before can be deleted.
                    services.extend(self.believed.keys().cloned());
                }
                Touched::Services(services)
            }
            MailboxEvent::Slices(event) => {
                self.slices_feed.record(&event);
                self.contents.take_slices(event)
            }
            MailboxEvent::Lease(event) => {
                self.take_lease(event);
                Touched::NOTHING
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
            self.doubted = self.latest;
            self.absent.clear();
        }
        if lease.is_some() && renewed(&lease) != renewed(&self.lease) {
            self.renewals += 1;
        }
        self.lease = lease;
        if let Some(lease) = self.lease.as_ref().filter(|_| self.identity_problem().is_none()) {
            if lease.stamp.is_before(self.latest) {
                self.doubted = self.latest;
            }
            self.latest = self.latest.max(lease.stamp);
            if !lease.stamp.is_before(self.latest) {
                self.lacking = Some(Arc::clone(&lease.lacking));
                self.drain = lease.drain;
                if lease.properties.is_some() && lease.properties != self.properties {
                    self.properties.clone_from(&lease.properties);
                }
            }
        }
    }

    /// Judges these services, or all in a new epoch. Returns the services for which the believed export has changed.
    fn believe(&mut self, touched: Touched) -> BTreeSet<ServiceName> {
        if !self.counts() {
            self.judged = None;
            return BTreeSet::new();
        }
        if !self.doubted.is_none() && self.removal_problem().is_none() {
            self.doubted = Stamp::NONE;
            self.judged = None;
        }
        let epoch = self.latest.epoch;
        let was_judged = self.judged.replace(epoch) == Some(epoch);
        let mut changed = BTreeSet::new();
        let candidates = match touched {
            Touched::Slice(name, slice) if was_judged => {
                changed.extend(self.judge_slice(&name, &slice).then_some(name));
                BTreeSet::new()
            }
            touched if was_judged => touched.services(),
            _ => self.contents.services.keys().chain(self.believed.keys()).cloned().collect(),
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

    /// Judges what the mailbox says of a service. Returns whether the believed export has changed.
    fn judge(&mut self, name: &ServiceName) -> bool {
        let Some(object) = self.contents.services.get(name) else {
            if self.believed.contains_key(name) && !self.contents.unread.contains_key(name) {
                self.absent.entry(name.clone()).or_insert(self.renewals);
            }
            return false;
        };
        self.absent.remove(name);
        let former = self.believed.get(name).map_or(Stamp::NONE, |believed| believed.stamp);
        let is_doubted =
            !self.doubted.is_none() && former.is_none() && !self.doubted.is_before(object.stamp);
        if !self.is_current(object.stamp) || object.stamp.is_before(former) || is_doubted {
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

    /// The same after a change of one slice. Its cost does not depend on the other slices of the service.
    fn judge_slice(&mut self, name: &ServiceName, slice: &Arc<str>) -> bool {
        let current = self.latest.epoch;
        let (Some(object), Some(believed)) =
            (self.contents.services.get(name), self.believed.get_mut(name))
        else {
            // The service is judged when it comes.
            return false;
        };
        let is_judged = current == 0 || object.stamp.epoch == current;
        if !is_judged || object.stamp.is_before(believed.stamp) || !object.is_usable() {
            return false;
        }
        let named = &object.exported.slices;
        let seen = self.contents.slices.get(name).and_then(|seen| seen.get(slice));
        let former = believed.slices.get(slice);
        let is_later = |seen: &&Arc<SourceSlice>| {
            let is_before = former.is_some_and(|former| seen.stamp.is_before(former.stamp));
            (current == 0 || seen.stamp.epoch == current) && !is_before
        };
        let Some(seen) = seen.filter(is_later).filter(|seen| former != Some(*seen)) else {
            return false;
        };
        let Ok(_) = named.binary_search(slice) else { return false };
        self.endpoints += seen.endpoints.len();
        let former = believed.slices.insert(Arc::clone(slice), Arc::clone(seen));
        self.endpoints -= former.as_ref().map_or(0, |former| former.endpoints.len());
        if former.is_none() {
            believed.missing = believed.missing.saturating_sub(1);
        }
        if believed.missing == 0 && believed.slices.len() > named.len() {
            // The slices that it named before have waited for this one.
            for (_, gone) in
                believed.slices.extract_if(.., |slice, _| named.binary_search(slice).is_err())
            {
                self.endpoints -= gone.endpoints.len();
            }
        }
        true
    }

    /// Returns whether there was a believed export before.
    fn set_believed(&mut self, name: &ServiceName, believed: Option<Believed>) -> bool {
        self.endpoints += believed.as_ref().map_or(0, Believed::endpoints);
        let former = match believed {
            Some(believed) => self.believed.insert(name.clone(), believed),
            None => self.believed.remove(name),
        };
        self.endpoints -= former.as_ref().map_or(0, Believed::endpoints);
        former.is_some()
    }

    /// Whether the contents count: everything was listed, the Lease is of the expected cluster and not older than a former
    /// one, and it is renewed if the cluster may have left the mailbox.
    pub fn counts(&self) -> bool {
        let is_of_publisher = |lease| !self.is_past(lease) && self.identity_problem().is_none();
        self.is_listed()
            && self.lease.as_ref().is_some_and(is_of_publisher)
            && self.renewals > self.counts_after
    }

    /// Whether a newer Lease was seen before.
    fn is_past(&self, lease: &PublisherLease) -> bool {
        lease.stamp.is_before(self.latest)
    }

    /// Whether a publisher of the present epoch wrote an object with this stamp.
    const fn is_current(&self, stamp: Stamp) -> bool {
        self.latest.epoch == 0 || stamp.epoch == self.latest.epoch
    }

    /// Whether the exported slices of a service are known, even if there are none: other slices can be deleted.
    pub fn allows_removal(&self, service: &ServiceName) -> bool {
        if let Some(believed) = self.believed.get(service) {
            return believed.has_all_slices() && self.is_renewed();
        }
        let is_refused = self.lease.as_ref().is_some_and(|lease| lease.refuses(service));
        self.was_complete
            && self.over_limit().is_none()
            && !is_refused
            && !self.contents.unread.contains_key(service)
    }

    /// The slices that the ExportedService names, in the present or else the former version. New slices are written first
    /// but arrive by another watch; until they are seen, the former slices stay.
    fn believed_of(&self, object: &ExportedObject) -> Believed {
        let exported = &object.exported;
        let name = &exported.export.name;
        let seen = self.contents.slices.get(name);
        let former = self.believed.get(name).map(|believed| &believed.slices);
        let slice = |name: &Arc<str>| {
            let former = former.and_then(|former| former.get(name));
            let is_later = |slice: &&Arc<SourceSlice>| {
                let is_before = former.is_some_and(|former| slice.stamp.is_before(former.stamp));
                self.is_current(slice.stamp) && !is_before
            };
            let slice = seen.and_then(|seen| seen.get(name)).filter(is_later).or(former)?;
            Some((Arc::clone(&slice.name), Arc::clone(slice)))
        };
        let mut slices: BTreeMap<_, _> = exported.slices.iter().filter_map(slice).collect();
        let missing = exported.slices.len() - slices.len();
        if missing > 0 {
            for (name, former) in former.into_iter().flatten() {
                slices.entry(Arc::clone(name)).or_insert_with(|| Arc::clone(former));
            }
        }
        Believed { export: exported.export.clone(), slices, missing, stamp: object.stamp }
    }

    /// Why the absence of a service from the mailbox is no reason to delete it.
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

    /// Why the exports of the cluster are unknown. A wrong count after a new or deleted service is no reason until the
    /// Lease is renewed twice.
    pub fn problem(&self) -> Option<MailboxProblem> {
        let is_new = self.agreed_at.is_some_and(|agreed_at| self.renewals <= agreed_at + 1);
        let is_count = |problem: &MailboxProblem| matches!(problem, MailboxProblem::Count { .. });
        self.removal_problem().filter(|problem| !(is_new && is_count(problem)))
    }

    /// The resource that cannot be read now, and why.
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

    /// The exceeded limit, if objects are left out.
    pub fn over_limit(&self) -> Option<MailboxProblem> {
        self.contents.ledger.problem()
    }

    /// Whether so much has become free since the last list that what was left out may fit.
    pub fn may_fit(&self) -> bool {
        self.contents.ledger.has_freed()
    }

    /// How many ExportedServices and slices are beyond the limits.
    pub fn left_out(&self) -> [usize; 2] {
        self.contents.ledger.left_out()
    }

    /// The number of ignored objects.
    pub const fn ignored(&self) -> u64 {
        self.contents.ignored.count()
    }

    /// Whether the mailbox belongs to another cluster.
    pub fn identity_problem(&self) -> Option<MailboxProblem> {
        let lease = self.lease.as_ref()?;
        if lease.cluster != self.cluster.as_str() {
            return Some(MailboxProblem::OtherCluster(lease.cluster.clone()));
        }
        let (expected, said) = (self.uid.as_ref()?, lease.uid.as_ref()?);
        (expected != said).then(|| MailboxProblem::OtherUid(said.clone()))
    }

    /// Sets the expected uid. It counts if the cluster publishes its uid.
    pub fn expect_uid(&mut self, uid: Option<&String>) {
        self.uid = uid.cloned();
        self.believe(Touched::NOTHING);
    }

    /// Whether every resource was listed once.
    pub fn is_listed(&self) -> bool {
        self.services_feed.synced && self.slices_feed.synced && self.lease_feed.synced
    }

    /// Whether the view once had no [`MailboxView::removal_problem`] while a publisher renewed the Lease.
    pub const fn was_complete(&self) -> bool {
        self.was_complete
    }

    /// Whether somebody renews the Lease. Until then the cluster may have left the mailbox, and export in another one.
    pub const fn is_renewed(&self) -> bool {
        self.renewals > 1
    }

    /// The believed exports.
    pub const fn believed(&self) -> &HashMap<ServiceName, Believed> {
        &self.believed
    }

    /// The number of endpoints of the believed exports.
    pub const fn endpoints(&self) -> usize {
        self.endpoints
    }

    /// The Lease.
    pub const fn lease(&self) -> Option<&PublisherLease> {
        self.lease.as_ref()
    }

    /// Whether the cluster asks to be drained. `former`: the value before this reader began.
    pub fn drain_or(&self, former: Option<Drain>) -> Option<Drain> {
        // A Lease sets both fields.
        if self.lacking.is_some() { self.drain } else { former }
    }

    /// The ClusterProperties of the cluster. `None`: unknown.
    pub const fn properties(&self) -> Option<&Arc<Properties>> {
        self.properties.as_ref()
    }

    /// The namespaces of exports of its peers that the cluster lacks. `None`: unknown.
    pub const fn lacking(&self) -> Option<&Arc<BTreeSet<Arc<str>>>> {
        self.lacking.as_ref()
    }

    /// The number of renewals of the Lease.
    pub const fn renewals(&self) -> u64 {
        self.renewals
    }

    /// The number of times that the Lease was listed.
    pub const fn lists(&self) -> u64 {
        self.lists
    }

    /// The readable ExportedServices of the mailbox.
    pub const fn seen(&self) -> &BTreeMap<ServiceName, ExportedObject> {
        &self.contents.services
    }

    /// The unreadable ExportedServices of the mailbox, with their versions.
    pub const fn unread(&self) -> &BTreeMap<ServiceName, Option<Arc<str>>> {
        &self.contents.unread
    }

    /// The latest stamp in the mailbox.
    pub fn latest_stamp(&self) -> Stamp {
        let services = self.contents.services.values().map(|object| object.stamp);
        let slices = self.contents.slices.values().flat_map(|slices| slices.values());
        services.chain(slices.map(|slice| slice.stamp)).max().unwrap_or_default()
    }

    /// The slices of a service in the mailbox.
    pub fn seen_slices(
        &self,
        service: &ServiceName,
    ) -> Option<&BTreeMap<Arc<str>, Arc<SourceSlice>>> {
        self.contents.slices.get(service)
    }

    /// The services with slices in the mailbox.
    pub fn with_slices(&self) -> impl Iterator<Item = &ServiceName> {
        self.contents.slices.keys()
    }
}
