//! The knowledge about all clusters, and the plan for each service. Its only I/O is logging.

mod addresses;
mod namespaces;
mod notices;
mod planning;
mod publication;
mod refusals;
#[cfg(test)]
mod scale;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use mcs_kube::reasons::Rejection;

pub(crate) use self::planning::Planned;
use self::refusals::Refusals;
use super::{
    MailboxId, Settings, Update,
    queue::Queue,
    states::{ImportStates, States},
};
use crate::core::{
    apply::ApplyError,
    clusterset::{
        ClusterId, Condition, Export, ExportState, NamespaceRules, Publication, ServiceName,
        Timestamp, VipRanges, VipsInUse, well_known,
    },
    mailbox::{MailboxObject, MailboxView},
    objects::Membership,
    own_cluster::OwnCluster,
    peers::{Peer, PeerName, Peers},
    status::Notice,
};

/// How long the controller waits before it tries again to delete a derived Service without the right.
const KEPT_DERIVED: Duration = Duration::from_mins(10);

/// Everything that the controller knows about all clusters.
pub(crate) struct State {
    pub(crate) settings: Settings,
    /// The namespaces that can be exported.
    pub(crate) exports: NamespaceRules,
    pub(crate) own: OwnCluster,
    cluster: ClusterId,
    pub(crate) peers: Peers,
    /// The contents of the own mailbox, by its watches.
    pub(crate) own_mailbox: MailboxView,
    pub(crate) in_use: VipsInUse,
    /// The VIPs of each service, as far as they are in `in_use`.
    pub(crate) vips: HashMap<ServiceName, Vec<IpAddr>>,
    /// The VIPs of each import as last planned. An earlier event of the import must not free them.
    pub(crate) planned_vips: HashMap<ServiceName, Vec<IpAddr>>,
    /// Services that wait for a VIP: none of the range was free.
    without_vip: BTreeSet<ServiceName>,
    /// Services to import.
    pub(crate) imports: Queue,
    /// Services to publish.
    pub(crate) publications: Queue,
    /// The services that belong in the mailbox. The Lease counts them even if somebody else empties the mailbox, so that
    /// readers keep them.
    outgoing: BTreeSet<ServiceName>,
    /// Services whose last write the mailbox's API server refused.
    refused: BTreeSet<ServiceName>,
    /// The refused services that the mailbox lacks. Each event compares the Lease with them.
    missing: Arc<BTreeSet<ServiceName>>,
    /// Services that waited when the term as publisher began, and have been neither published nor refused since.
    unanswered: HashSet<ServiceName>,
    /// Services whose present writes were planned before the term began: their end is no answer.
    outdated: HashSet<ServiceName>,
    /// The epoch of what this cluster publishes.
    epoch: u64,
    /// Why nothing is published, if another publisher writes the mailbox.
    rival: Option<String>,
    /// Why a service could not be published.
    publication_errors: HashMap<ServiceName, Publication>,
    /// What the mailbox's API server refuses of each service, in its words.
    withheld: HashMap<ServiceName, BTreeMap<MailboxObject, String>>,
    /// What the API server of this cluster refuses.
    refusals: Refusals,
    /// The peers of whose services everything was written, or tried, in this term as leader.
    tried: BTreeSet<PeerName>,
    /// How many resources features still have to list.
    pub(crate) unread: usize,
    /// Exports that features hold back, with their conditions.
    held_back: HashMap<ServiceName, Vec<Condition>>,
    /// The services of this cluster whose objects events have changed since features were told.
    pub(super) changed: BTreeSet<ServiceName>,
    /// Why readers have no sign of life of this cluster, or hear nothing new.
    silence: Option<Publication>,
    /// The clusters that give no sign of life. Their imports say so.
    silent: BTreeSet<ClusterId>,
    /// The states of the imports.
    import_states: ImportStates,
    /// The states of the exports.
    export_states: States<ExportState>,
    /// The namespaces of exports of peers that this cluster lacks. `None`: as the Lease of its mailbox says.
    lacking: Option<Arc<BTreeSet<Arc<str>>>>,
    /// Whether ServiceImports have `status.endpointSliceObjects` (mcs-api v0.5.1). `None`: unknown.
    has_slice_objects: Option<bool>,
    /// Whether conditions of ServiceExports have no `observedGeneration`.
    lacks_generation: bool,
    /// Derived Services that the controller may not delete, each until it tries again.
    kept_derived: HashMap<ServiceName, Instant>,
    /// The number of rejected endpoints of each service, by source cluster and reason.
    rejected: HashMap<ServiceName, BTreeMap<(ClusterId, Rejection), usize>>,
    /// The events to write.
    pub(crate) notices: Vec<Notice>,
}

impl State {
    /// The state of a cluster with this id. Some of `own` was read before the id was known.
    pub(crate) fn new(settings: Settings, cluster: ClusterId, own: OwnCluster) -> Self {
        let queue = || Queue::new(cluster.clone(), settings.peer_writes);
        let (imports, publications) = (queue(), queue());
        let mut state = Self {
            exports: settings.exports(),
            own,
            peers: Peers::default(),
            own_mailbox: MailboxView::own(cluster.clone()),
            cluster,
            in_use: VipsInUse::default(),
            vips: HashMap::new(),
            planned_vips: HashMap::new(),
            without_vip: BTreeSet::new(),
            imports,
            publications,
            outgoing: BTreeSet::new(),
            refused: BTreeSet::new(),
            missing: Arc::default(),
            unanswered: HashSet::new(),
            outdated: HashSet::new(),
            epoch: 0,
            rival: None,
            publication_errors: HashMap::new(),
            withheld: HashMap::new(),
            refusals: Refusals::default(),
            tried: BTreeSet::new(),
            unread: 0,
            held_back: HashMap::new(),
            changed: BTreeSet::new(),
            settings,
            silence: None,
            silent: BTreeSet::new(),
            import_states: ImportStates::default(),
            export_states: States::default(),
            lacking: None,
            has_slice_objects: None,
            lacks_generation: false,
            kept_derived: HashMap::new(),
            rejected: HashMap::new(),
            notices: vec![],
        };
        state.changed.extend(state.own.exported().cloned());
        state.update_own_pods();
        let imported: Vec<_> = state.own.imported().cloned().collect();
        for name in &imported {
            state.note_vips(name);
            state.note_slice_objects(name);
        }
        state
    }

    /// This cluster's id.
    pub(crate) const fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Whether everything of this cluster was read: nothing is written before.
    pub(crate) fn is_synced(&self) -> bool {
        self.own.is_synced() && self.peers.are_listed() && self.unread == 0
    }

    /// Applies an update. Returns the peers whose connections have to change.
    pub(crate) fn update(&mut self, update: Update) -> BTreeSet<PeerName> {
        match update {
            Update::Own(event) => {
                let is_of_tenant = self.own.is_changed_by_tenant(&event);
                let changes = self.own.apply(event);
                if changes.all || !changes.addresses.is_empty() {
                    self.peers.reserve(&self.reserved());
                }
                let claims = changes.pod_ranges && self.update_own_pods();
                let has_addresses = !changes.addresses.is_empty() && self.peers.have_any_address();
                if changes.all {
                    self.changed.extend(self.own.exported().cloned());
                }
                if changes.all || claims || has_addresses {
                    self.queue_all();
                } else if !changes.namespaces.is_empty() {
                    self.queue_in(&changes.namespaces);
                }
                for name in changes.cluster_ips.iter().flat_map(|ip| self.in_use.owners(*ip)) {
                    self.imports.add(name.clone());
                }
                for name in changes.services {
                    self.note_vips(&name);
                    self.note_slice_objects(&name);
                    self.changed.insert(name.clone());
                    self.publications.add(name.clone());
                    // Otherwise each write for a peer would let its next change pass at the expense of this cluster.
                    if is_of_tenant || !self.imports.has(&name) {
                        self.imports.add(name);
                    }
                }
            }
            Update::Peers(event) => {
                let changes = self.peers.apply(event, &self.reserved());
                if changes.all {
                    self.queue_all();
                }
                return changes.connections;
            }
            Update::Secrets(event) => return self.peers.apply_secrets(event),
            Update::Mailbox(MailboxId::Own, event) => {
                let former = self.own_mailbox.identity_problem();
                let changed = self.own_mailbox.apply_to_own(event);
                let problem = self.own_mailbox.identity_problem();
                if problem != former {
                    self.queue_all();
                    if let Some(problem) = problem {
                        let mailbox = &self.settings.mailbox;
                        tracing::error!(
                            "nothing is published in namespace {mailbox}: {problem}. Give this cluster a mailbox \
                             of its own, or delete the Lease publisher there if the id of this cluster has changed"
                        );
                    }
                }
                for name in changed {
                    self.note_missing(&name);
                    self.publications.add(name.clone());
                    self.imports.add(name);
                }
            }
            Update::Mailbox(MailboxId::Peer(peer, number), event) => {
                let changes = self.peers.apply_mailbox(&peer, number, event);
                let cluster = self.peers.all().get(&peer).map(|peer| peer.object.cluster.clone());
                if changes.all {
                    self.queue_all();
                } else if let Some(cluster) = &changes.known {
                    self.queue_of(cluster, &changes.services);
                }
                if let Some(cluster) = &cluster {
                    self.queue_exports_in(cluster, &changes.namespaces);
                }
                for name in changes.services {
                    self.imports.add_of(cluster.clone(), name);
                }
            }
            Update::Access(MailboxId::Peer(peer, number), problem) => {
                self.peers.note_access(&peer, number, problem);
            }
            // Updates of a hub are already split among its peers, and the own mailbox is opened at the start.
            Update::Mailbox(MailboxId::Hub(..), _)
            | Update::Access(MailboxId::Own | MailboxId::Hub(..), _) => {}
        }
        BTreeSet::new()
    }

    /// Keeps an export from peers, with these conditions; `None`: no longer.
    pub(crate) fn hold_export(&mut self, name: &ServiceName, conditions: Option<Vec<Condition>>) {
        match conditions {
            Some(conditions) => self.held_back.insert(name.clone(), conditions),
            None => self.held_back.remove(name),
        };
    }

    /// Updates the VIPs in use: those of the present import, whoever writes it, and the planned ones.
    fn note_vips(&mut self, name: &ServiceName) {
        let mut vips = self.planned_vips.get(name).cloned().unwrap_or_default();
        let read = self.own.vips(name).iter().copied();
        let others: Vec<_> = read.filter(|ip| !vips.contains(ip)).collect();
        vips.extend(others);
        self.set_vips(name, vips);
    }

    /// An import with `status.endpointSliceObjects` proves that the definition has the field.
    fn note_slice_objects(&mut self, name: &ServiceName) {
        let status = self.own.import_object(name).map(|object| &object.actual.status);
        if self.has_slice_objects.is_none()
            && status.is_some_and(|status| status.endpoint_slice_objects.is_some())
        {
            self.has_slice_objects = Some(true);
            if self.settings.derived_services {
                self.queue_all();
            }
        }
    }

    fn set_vips(&mut self, name: &ServiceName, vips: Vec<IpAddr>) {
        if self.vips.get(name).map_or(&[][..], Vec::as_slice) == vips {
            return;
        }
        if let Some(former) = self.vips.remove(name) {
            self.queue_sharers(name, &former);
            self.in_use.remove(name, former);
            for name in &self.without_vip {
                self.imports.add(name.clone());
            }
        }
        self.queue_sharers(name, &vips);
        self.in_use.add(name, vips.iter().copied());
        if !vips.is_empty() {
            self.vips.insert(name.clone(), vips);
        }
    }

    /// Queues the other services that have one of these VIPs: their conditions say so.
    fn queue_sharers(&mut self, name: &ServiceName, vips: &[IpAddr]) {
        for other in vips.iter().filter_map(|vip| self.in_use.other_owner(name, *vip)) {
            self.imports.add(other.clone());
        }
    }

    /// Queues every service, those with the oldest exports first: they get their VIPs in the same order in every cluster.
    pub(crate) fn queue_all(&mut self) {
        self.queue(None, |_| true);
    }

    /// Queues the services of these namespaces.
    pub(crate) fn queue_in(&mut self, namespaces: &BTreeSet<Arc<str>>) {
        self.queue(None, |name| namespaces.contains(name.namespace()));
    }

    /// Queues the services that a cluster exports, and the services imported from it.
    fn queue_of(&mut self, cluster: &ClusterId, services: &BTreeSet<ServiceName>) {
        let imported = self.own.imported().filter(|name| self.own.is_imported_from(name, cluster));
        let names: HashSet<_> = imported.chain(services).cloned().collect();
        self.queue(Some(cluster), |name| names.contains(name));
    }

    /// Queues the services that `is_meant`, because of a peer or not.
    fn queue(&mut self, cause: Option<&ClusterId>, is_meant: impl Fn(&ServiceName) -> bool) {
        let mut ordered: Vec<_> =
            self.ages(&is_meant).into_iter().map(|(name, age)| (age, name)).collect();
        ordered.sort();
        for (_, name) in ordered {
            self.imports.add_of(cause.cloned(), name);
        }
        let there = self.own_mailbox.seen().keys().chain(self.own_mailbox.unread().keys());
        let published = self.own.exported().chain(there);
        let published = published.chain(self.own_mailbox.with_slices());
        let published: BTreeSet<_> = published.filter(|name| is_meant(name)).cloned().collect();
        for name in published {
            self.publications.add(name);
        }
    }

    /// The services that `is_meant`, each with the creation of its oldest export and its cluster.
    fn ages(
        &self,
        is_meant: impl Fn(&ServiceName) -> bool,
    ) -> HashMap<ServiceName, Option<(Timestamp, ClusterId)>> {
        let mut ages: HashMap<ServiceName, Option<(Timestamp, ClusterId)>> = HashMap::new();
        let age = |export: &Export| {
            let (created, cluster) = export.precedence();
            (created, cluster.clone())
        };
        let own = self.own.exported().filter(|name| is_meant(name)).map(|name| {
            let export = self.own.export(name, &self.cluster);
            (name, export.as_ref().map(age))
        });
        let unknown = self.own.imported().chain(self.own.followed());
        let unknown = unknown.filter(|name| is_meant(name)).map(|name| (name, None));
        let of_peers = self.peers.all().values().flat_map(|peer| peer.view.believed());
        let of_peers = of_peers.filter(|(name, _)| is_meant(name));
        let of_peers = of_peers.map(|(name, believed)| (name, Some(age(&believed.export))));
        for (name, age) in own.chain(unknown).chain(of_peers) {
            let oldest = ages.entry(name.clone()).or_default();
            *oldest = oldest.take().into_iter().chain(age).min();
        }
        ages
    }

    /// Records that the controller lacks the right to delete the derived Service of this import.
    pub(super) fn note_derived_stays(&mut self, name: ServiceName, now: Instant) {
        self.kept_derived.insert(name, now + KEPT_DERIVED);
    }

    /// Records which clusters give no sign of life, and queues what is imported from those that begin or end to.
    pub(super) fn note_silent(&mut self, now: Instant) {
        let peers = self.peers.by_cluster(&self.cluster).into_iter();
        // A replica that starts does not know: what the ClusterPeer says counts.
        let was_silent = |peer: &Peer| {
            let mut said = peer.object.status.conditions.iter();
            self.silent.contains(&peer.object.cluster)
                || said.any(|one| one.condition_type == "Fresh" && one.status == "False")
        };
        let is_silent =
            |peer: &&Peer| peer.is_fresh(now).map_or_else(|| was_silent(peer), |fresh| !fresh);
        let silent: BTreeSet<_> =
            peers.filter(is_silent).map(|peer| peer.object.cluster.clone()).collect();
        let former = std::mem::replace(&mut self.silent, silent);
        for cluster in former.symmetric_difference(&self.silent).cloned().collect::<Vec<_>>() {
            let of_cluster = |name: &&ServiceName| self.own.is_imported_from(name, &cluster);
            let imported: Vec<_> = self.own.imported().filter(of_cluster).cloned().collect();
            for name in imported {
                self.imports.add_of(Some(cluster.clone()), name);
            }
        }
    }

    /// Ends what waits for a time: retries of derived Services, and the grace times of deleted peers.
    pub(super) fn forget(&mut self, now: Instant) {
        for (name, _) in self.kept_derived.extract_if(|_, until| *until <= now) {
            self.imports.add(name);
        }
        if self.peers.forget(now) {
            self.queue_all();
        }
    }

    /// The number of rejected endpoints of each cluster, by reason.
    pub(crate) fn rejected(&self) -> BTreeMap<&ClusterId, BTreeMap<Rejection, usize>> {
        let mut counts: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for ((cluster, reason), count) in self.rejected.values().flatten() {
            *counts.entry(cluster).or_default().entry(*reason).or_default() += count;
        }
        counts
    }

    /// Whether an error says that definitions of ServiceImport or ServiceExport lack a field, which is then left out.
    pub(super) fn does_without(&mut self, error: &ApplyError) -> bool {
        let fields = ["endpointSliceObjects", "observedGeneration"];
        let [objects, generation] = fields.map(|field| error.is_unknown_field(field));
        if objects {
            self.leave_out_slice_objects();
        }
        if generation {
            self.leave_out_generation();
        }
        objects || generation
    }

    /// The definition of ServiceImport has no `status.endpointSliceObjects`.
    pub(super) fn leave_out_slice_objects(&mut self) {
        if self.has_slice_objects != Some(false) {
            self.has_slice_objects = Some(false);
            tracing::warn!(
                "ServiceImports of this cluster have no status.endpointSliceObjects: install the CRDs of \
                 sigs.k8s.io/mcs-api v0.5.1 or newer"
            );
        }
    }

    /// The definition of ServiceExport has no `observedGeneration` of conditions: nobody sees which spec they are about.
    pub(super) fn leave_out_generation(&mut self) {
        if !std::mem::replace(&mut self.lacks_generation, true) {
            tracing::info!(
                "conditions of ServiceExports of this cluster have no observedGeneration"
            );
        }
    }

    /// What this cluster should have in common with all others.
    pub(crate) fn membership(&self) -> Membership {
        let VipRanges { v4, v6 } = self.vip_ranges();
        Membership {
            clusterset: self.clusterset().to_owned(),
            vip_ranges: format!("{v4},{v6}"),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            controllers: self.settings.controllers.clone(),
        }
    }

    fn clusterset(&self) -> &str {
        let name = self.settings.clusterset.as_deref().or(self.own.clusterset());
        name.unwrap_or(well_known::UNNAMED_CLUSTERSET)
    }

    /// Begins a term as leader. The knowledge about imports can be old.
    pub(super) fn lead(&mut self) {
        self.silence = None;
        self.import_states = ImportStates::default();
        self.export_states = States::default();
        self.lacking = None;
        self.tried.clear();
        self.queue_all();
    }

    /// The states of the imports.
    pub(crate) const fn import_states(&self) -> &ImportStates {
        &self.import_states
    }

    /// The states of the exports.
    pub(crate) const fn export_states(&self) -> &States<ExportState> {
        &self.export_states
    }
}
