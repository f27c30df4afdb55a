//! What a reader sees in a mailbox, and what it believes of that.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use mcs_kube::{ResourceEvent, WatchedObject};

use crate::{
    clusterset::{ClusterId, Export, ServiceName, SourceSlice},
    objects::{
        Exported, ExportedServiceDecoder, MailboxSlice, MailboxSliceDecoder, PublisherLease,
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
    pub is_whole: bool,
}

/// Why a mailbox cannot be read, or is not believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MailboxProblem {
    /// A resource cannot be read now.
    Unreadable {
        /// Its plural.
        resource: &'static str,
        /// What the API server answered.
        reason: String,
    },
    /// No publisher has written its Lease.
    NoPublisher,
    /// The mailbox is another cluster's.
    OtherCluster(String),
    /// The Lease is that of a publisher which another one has followed.
    FormerPublisher,
    /// The publisher has not published everything yet.
    Incomplete,
    /// The mailbox has another number of services than the publisher says.
    Count {
        /// As many as the reader sees.
        seen: usize,
        /// As many as the Lease says.
        said: usize,
    },
}

impl fmt::Display for MailboxProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { resource, reason } => write!(f, "cannot read {resource}: {reason}"),
            Self::NoPublisher => f.write_str(
                "the mailbox has no Lease publisher: is a controller running in that cluster?",
            ),
            Self::OtherCluster(other) => write!(f, "the mailbox belongs to cluster {other:?}"),
            Self::FormerPublisher => f.write_str(
                "a publisher that was replaced still writes the Lease: do two controllers of that cluster publish?",
            ),
            Self::Incomplete => f.write_str("the publisher has not published everything yet"),
            Self::Count { seen, said } => {
                write!(f, "the mailbox has {seen} ExportedServices, and the publisher says {said}")
            }
        }
    }
}

/// What one watch of the mailbox says beside objects.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Feed {
    listed: bool,
    failure: Option<String>,
}

/// How many epochs are remembered.
const EPOCHS: usize = 16;

/// The publishers of a mailbox, one after the other. One that was replaced may not know it yet: what it says to be complete
/// is not.
#[derive(Default, Debug)]
struct Epochs {
    latest: String,
    former: VecDeque<String>,
}

impl Epochs {
    fn note(&mut self, epoch: &str) {
        if self.latest == epoch || self.is_former(epoch) {
            return;
        }
        let replaced = std::mem::replace(&mut self.latest, epoch.to_owned());
        self.former.push_back(replaced);
        if self.former.len() > EPOCHS {
            self.former.pop_front();
        }
    }

    fn is_former(&self, epoch: &str) -> bool {
        self.former.iter().any(|former| former == epoch)
    }
}

type Slices = HashMap<ServiceName, BTreeMap<Arc<str>, Arc<SourceSlice>>>;

/// The contents of a mailbox as a reader sees them, and what of that counts.
#[derive(Debug)]
pub struct MailboxView {
    cluster: ClusterId,
    services: BTreeMap<ServiceName, Exported>,
    slices: Slices,
    lease: Option<PublisherLease>,
    epochs: Epochs,
    feeds: [Feed; 3],
    /// Whether everything was published and read once.
    known: bool,
    believed: HashMap<ServiceName, Believed>,
    /// Services that changed while the Lease named another cluster.
    missed: BTreeSet<ServiceName>,
    /// The number of events of the Lease.
    beats: u64,
    /// Whether the cluster had another mailbox before: this one is not believed before its Lease is renewed.
    is_moved: bool,
}

impl MailboxView {
    /// A mailbox of this cluster, of which nothing is known.
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            services: BTreeMap::new(),
            slices: HashMap::new(),
            lease: None,
            epochs: Epochs::default(),
            feeds: Default::default(),
            known: false,
            believed: HashMap::new(),
            missed: BTreeSet::new(),
            beats: 0,
            is_moved: false,
        }
    }

    /// Another mailbox of a cluster. It may be one that the cluster has left: it counts once its Lease is renewed.
    pub fn moved(cluster: ClusterId) -> Self {
        Self { is_moved: true, ..Self::new(cluster) }
    }

    /// Applies an event. Returns the services of which something else is believed now.
    pub fn apply(&mut self, event: MailboxEvent) -> BTreeSet<ServiceName> {
        let touched = match event {
            MailboxEvent::Services(event) => self.take_services(event),
            MailboxEvent::Slices(event) => self.take_slices(event),
            MailboxEvent::Lease(event) => {
                self.take_lease(event);
                BTreeSet::new()
            }
        };
        self.believe(touched)
    }

    /// As [`MailboxView::apply`], for the mailbox that this cluster itself writes. Returns the services whose objects
    /// are other ones now.
    pub fn apply_to_own(&mut self, event: MailboxEvent) -> BTreeSet<ServiceName> {
        match event {
            MailboxEvent::Services(event) => self.take_services(event),
            MailboxEvent::Slices(event) => self.take_slices(event),
            MailboxEvent::Lease(event) => {
                self.take_lease(event);
                BTreeSet::new()
            }
        }
    }

    fn take_services(
        &mut self,
        event: ResourceEvent<ExportedServiceDecoder>,
    ) -> BTreeSet<ServiceName> {
        self.feeds[0].record(&event);
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let before = std::mem::take(&mut self.services);
                let exported = objects.into_iter().filter_map(|object| self.exported(object));
                self.services = exported.map(|one| (one.export.name.clone(), one)).collect();
                before.into_keys().chain(self.services.keys().cloned()).collect()
            }
            ResourceEvent::Changed(object) => {
                let Some(exported) = self.exported(object) else { return BTreeSet::new() };
                let name = exported.export.name.clone();
                self.services.insert(name.clone(), exported);
                BTreeSet::from([name])
            }
            ResourceEvent::Deleted(object) => {
                let Some(exported) = self.exported(object) else { return BTreeSet::new() };
                self.services.remove(&exported.export.name);
                BTreeSet::from([exported.export.name])
            }
            _ => BTreeSet::new(),
        }
    }

    /// An ExportedService of another cluster does not count.
    fn exported(&self, object: WatchedObject<ExportedServiceDecoder>) -> Option<Exported> {
        let key = object.key();
        match object.decoded {
            Ok(exported) if exported.export.cluster == self.cluster => Some(exported),
            Ok(exported) => {
                let other = exported.export.cluster;
                tracing::warn!("ExportedService {key} is ignored: it is of cluster {other}");
                None
            }
            Err(error) => {
                tracing::warn!("ExportedService {key} is ignored: {error}");
                None
            }
        }
    }

    fn take_slices(&mut self, event: ResourceEvent<MailboxSliceDecoder>) -> BTreeSet<ServiceName> {
        self.feeds[1].record(&event);
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let before = std::mem::take(&mut self.slices);
                let slices = objects.into_iter().filter_map(|object| self.mailbox_slice(object));
                let slices: Vec<_> = slices.collect();
                for (service, slice) in slices {
                    let slices = self.slices.entry(service).or_default();
                    slices.insert(Arc::clone(&slice.name), slice);
                }
                before.into_keys().chain(self.slices.keys().cloned()).collect()
            }
            ResourceEvent::Changed(object) => {
                let Some((service, slice)) = self.mailbox_slice(object) else {
                    return BTreeSet::new();
                };
                let slices = self.slices.entry(service.clone()).or_default();
                slices.insert(Arc::clone(&slice.name), slice);
                BTreeSet::from([service])
            }
            ResourceEvent::Deleted(object) => {
                let Some((service, slice)) = self.mailbox_slice(object) else {
                    return BTreeSet::new();
                };
                if let Some(slices) = self.slices.get_mut(&service) {
                    slices.remove(&slice.name);
                    if slices.is_empty() {
                        self.slices.remove(&service);
                    }
                }
                BTreeSet::from([service])
            }
            _ => BTreeSet::new(),
        }
    }

    /// A slice of another cluster does not count.
    fn mailbox_slice(
        &self,
        object: WatchedObject<MailboxSliceDecoder>,
    ) -> Option<(ServiceName, Arc<SourceSlice>)> {
        let key = object.key();
        let MailboxSlice { cluster, service, slice } = object.decoded.unwrap_or_else(|error| {
            tracing::warn!("EndpointSlice {key} of a mailbox is ignored: {error}");
            None
        })?;
        if let Some(other) = cluster.filter(|cluster| *cluster != self.cluster) {
            tracing::warn!("EndpointSlice {key} of a mailbox is ignored: it is of cluster {other}");
            return None;
        }
        Some((service, slice))
    }

    fn take_lease(&mut self, event: ResourceEvent<PublisherLeaseDecoder>) {
        self.feeds[2].record(&event);
        let lease = match event {
            ResourceEvent::Listed { objects, .. } => objects.into_iter().next(),
            ResourceEvent::Changed(object) => Some(object),
            ResourceEvent::Deleted(_) => None,
            _ => return,
        };
        let lease = lease.and_then(|object| object.decoded.ok());
        let renewed =
            |lease: &Option<PublisherLease>| lease.as_ref().map(|lease| lease.renewed.clone());
        if lease.is_some() && renewed(&lease) != renewed(&self.lease) {
            self.beats += 1;
        }
        if let Some(lease) = lease.as_ref().filter(|lease| lease.cluster == self.cluster.as_str()) {
            self.epochs.note(&lease.epoch);
        }
        self.lease = lease;
    }

    /// Believes what can be believed. Returns the services of which something else is believed now.
    fn believe(&mut self, mut touched: BTreeSet<ServiceName>) -> BTreeSet<ServiceName> {
        let is_complete = self.doubt().is_none();
        if !is_complete && !self.known {
            return BTreeSet::new();
        }
        if self.identity_problem().is_some() {
            self.missed.extend(touched);
            return BTreeSet::new();
        }
        touched.append(&mut self.missed);
        let was_known = std::mem::replace(&mut self.known, true);
        let mut changed = BTreeSet::new();
        let candidates = if was_known { touched } else { self.services.keys().cloned().collect() };
        for name in candidates {
            let Some(exported) = self.services.get(&name) else { continue };
            let believed = self.believed_of(exported);
            if self.believed.get(&name) != Some(&believed) {
                self.believed.insert(name.clone(), believed);
                changed.insert(name);
            }
        }
        if is_complete && self.believed.len() > self.services.len() {
            self.believed.retain(|name, _| {
                let stays = self.services.contains_key(name);
                if !stays {
                    changed.insert(name.clone());
                }
                stays
            });
        }
        changed
    }

    /// The slices that the ExportedService names: as they are, else as they were. New ones come before it, but by
    /// another watch. Until they are seen, the former ones stay.
    fn believed_of(&self, exported: &Exported) -> Believed {
        let name = &exported.export.name;
        let seen = self.slices.get(name);
        let former = self.believed.get(name).map_or(&[][..], |believed| &believed.slices);
        let is_seen = |slice: &Arc<str>| seen.is_some_and(|seen| seen.contains_key(slice));
        // A peer can name thousands of slices that are not there.
        let former_by_name: HashMap<_, _> = if exported.slices.iter().all(is_seen) {
            HashMap::new()
        } else {
            former.iter().map(|former| (&former.name, former)).collect()
        };
        let slice = |slice: &Arc<str>| {
            let seen = seen.and_then(|seen| seen.get(slice));
            seen.or_else(|| former_by_name.get(slice).copied()).cloned()
        };
        let mut slices: Vec<_> = exported.slices.iter().filter_map(slice).collect();
        let is_whole = slices.len() == exported.slices.len();
        if !is_whole {
            let is_other =
                |former: &&Arc<SourceSlice>| exported.slices.binary_search(&former.name).is_err();
            slices.extend(former.iter().filter(is_other).cloned());
        }
        Believed { export: exported.export.clone(), slices, is_whole }
    }

    /// Why nothing may be taken away now.
    pub fn doubt(&self) -> Option<MailboxProblem> {
        if let Some(problem) = self.unreadable() {
            return Some(problem);
        }
        if !self.feeds.iter().all(|feed| feed.listed) {
            return Some(MailboxProblem::Incomplete);
        }
        if let Some(problem) = self.identity_problem() {
            return Some(problem);
        }
        let Some(lease) = &self.lease else { return Some(MailboxProblem::NoPublisher) };
        if self.epochs.is_former(&lease.epoch) {
            return Some(MailboxProblem::FormerPublisher);
        }
        if !lease.complete || self.is_moved && !self.is_renewed() {
            return Some(MailboxProblem::Incomplete);
        }
        let (seen, said) = (self.services.len(), lease.services);
        (seen != said).then_some(MailboxProblem::Count { seen, said })
    }

    /// Why a resource cannot be read now.
    pub fn unreadable(&self) -> Option<MailboxProblem> {
        let resources = ["exportedservices", "endpointslices", "leases"];
        let mut feeds = self.feeds.iter().zip(resources);
        feeds.find_map(|(feed, resource)| {
            let reason = feed.failure.clone()?;
            Some(MailboxProblem::Unreadable { resource, reason })
        })
    }

    /// Whether the mailbox is another cluster's.
    pub fn identity_problem(&self) -> Option<MailboxProblem> {
        let lease = self.lease.as_ref()?;
        (lease.cluster != self.cluster.as_str())
            .then(|| MailboxProblem::OtherCluster(lease.cluster.clone()))
    }

    /// Whether every resource was listed once.
    pub fn is_listed(&self) -> bool {
        self.feeds.iter().all(|feed| feed.listed)
    }

    /// Whether everything was published and read once.
    pub const fn is_known(&self) -> bool {
        self.known
    }

    /// Whether somebody renews the Lease. Until then the mailbox may be one that its cluster has left: what it lacks may
    /// be exported elsewhere.
    pub const fn is_renewed(&self) -> bool {
        self.beats > 1
    }

    /// The exports that count.
    pub const fn believed(&self) -> &HashMap<ServiceName, Believed> {
        &self.believed
    }

    /// The Lease.
    pub const fn lease(&self) -> Option<&PublisherLease> {
        self.lease.as_ref()
    }

    /// Changes with each renewal of the Lease.
    pub const fn beats(&self) -> u64 {
        self.beats
    }

    /// The ExportedServices that are there.
    pub const fn seen(&self) -> &BTreeMap<ServiceName, Exported> {
        &self.services
    }

    /// The slices of a service that are there.
    pub fn seen_slices(
        &self,
        service: &ServiceName,
    ) -> Option<&BTreeMap<Arc<str>, Arc<SourceSlice>>> {
        self.slices.get(service)
    }

    /// The services that have slices there.
    pub fn with_slices(&self) -> impl Iterator<Item = &ServiceName> {
        self.slices.keys()
    }
}

impl Feed {
    fn record<D: mcs_kube::Decoder>(&mut self, event: &ResourceEvent<D>) {
        match event {
            ResourceEvent::Listed { .. } => {
                self.listed = true;
                self.failure = None;
            }
            ResourceEvent::Recovered => self.failure = None,
            ResourceEvent::NotServed { .. } => {
                self.failure = Some("the API server does not serve it: install its CRD".to_owned());
            }
            ResourceEvent::Failing { reason, .. } => self.failure = Some(reason.clone()),
            ResourceEvent::Changed(_) | ResourceEvent::Deleted(_) => {}
        }
    }
}
