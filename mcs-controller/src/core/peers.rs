//! The other clusters of the clusterset: their ClusterPeers and their mailboxes.

mod ranges;
pub mod token;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use jiff::Timestamp;
use mcs_kube::{ResourceEvent, WatchTarget};
use sha2::{Digest as _, Sha256};

use self::token::TokenClaims;
use crate::core::{
    clock,
    clusterset::{ClusterId, EndpointRules, Reserved, ServiceName, SourceRules, well_known},
    feed::{Change, Feed, changes},
    mailbox::{MailboxEvent, MailboxView},
    objects::{
        BrokenPeer, ClusterPeerStatus, OWN_VERSION, PeerDecoder, PeerObject, PeerVersion,
        SecretDecoder, SecretObject, SecretReference,
    },
};

/// The name of a ClusterPeer.
pub type PeerName = Arc<str>;

/// The grace time: endpoints of a peer outlive its ClusterPeer. When the type is deleted, the API server deletes all
/// ClusterPeers first.
const GRACE: Duration = Duration::from_secs(10);

/// The ClusterPeers.
pub fn peers_target() -> WatchTarget {
    WatchTarget::all(well_known::GROUP, &[OWN_VERSION], "ClusterPeer", "clusterpeers")
}

/// The Secrets in the controller's namespace. Records of helm, up to 1 MiB each, are no kubeconfigs.
pub fn secrets_target(namespace: &str) -> WatchTarget {
    WatchTarget {
        namespace: Some(namespace.to_owned()),
        fields: Some("type!=helm.sh/release.v1".to_owned()),
        ..WatchTarget::all("", &["v1"], "Secret", "secrets")
    }
}

/// The mailbox of a peer, and the Secret that leads to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MailboxAddress {
    /// The namespace.
    pub mailbox: String,
    /// The Secret that leads to its API server.
    pub secret: SecretReference,
}

/// One peer.
#[derive(Debug)]
pub struct Peer {
    /// Its ClusterPeer.
    pub object: PeerObject,
    /// What this cluster accepts from it.
    pub rules: SourceRules,
    /// A range of the peer that overlaps with one of another cluster, and a peer of that cluster.
    pub overlap: Option<(IpNet, PeerName)>,
    /// Its mailbox.
    pub view: MailboxView,
    /// Identifies its mailbox, also after a restart.
    pub mailbox: u32,
    /// Numbers the peer's mailboxes, to recognise late events of a former one.
    pub number: u64,
    /// The claims of the token in its kubeconfig.
    pub token: Option<TokenClaims>,
    /// Why the present ClusterPeer is not used. The peer keeps its former version.
    pub rejected: Option<String>,
    /// Why its credentials are not used.
    pub access_problem: Option<AccessProblem>,
    /// Whether a connection reads its mailbox, perhaps with former credentials.
    pub is_connected: bool,
    /// When its publisher last renewed the Lease.
    pub last_renewal: Instant,
    /// When its API server last sent an event.
    pub last_contact: Option<Timestamp>,
    renewals: u64,
    /// Whether its mailbox was ever read.
    was_known: bool,
}

/// Why the credentials of a peer are unusable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessProblem {
    /// There are none.
    NoSecret(String),
    /// They are invalid.
    Unusable(String),
}

/// All peers.
#[derive(Debug)]
pub struct Peers {
    by_name: BTreeMap<PeerName, Peer>,
    /// ClusterPeers that were never usable.
    broken: BTreeMap<PeerName, BrokenPeer>,
    /// The clusters whose ClusterPeers were deleted, and since when.
    removed: BTreeMap<ClusterId, Instant>,
    secrets: BTreeMap<Arc<str>, SecretObject>,
    /// Of the ClusterPeers.
    feed: Feed,
    secrets_feed: Feed,
    number: u64,
    /// Whether a cluster has several peers.
    has_choice: bool,
    /// The ranges of this cluster's pods.
    own_pods: Vec<IpNet>,
}

/// Clusters whose present imports may be more than is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// These.
    pub clusters: BTreeSet<ClusterId>,
    /// Also every cluster that is not a peer.
    pub others: bool,
}

/// The effects of an event of peers.
#[derive(Default, Debug)]
pub struct PeerChanges {
    /// Affected services.
    pub services: BTreeSet<ServiceName>,
    /// Everything is affected.
    pub all: bool,
    /// Slices of this cluster may be deletable now: everything was read for the first time, or its publisher is alive.
    pub known: Option<ClusterId>,
    /// The connections of these peers.
    pub connections: BTreeSet<PeerName>,
    /// Namespaces for which the cluster of a peer has changed whether it lacks them.
    pub namespaces: BTreeSet<Arc<str>>,
}

impl Peer {
    /// Whether the publisher is alive. `None`: this replica has not watched it for long enough.
    pub fn is_fresh(&self, now: Instant) -> Option<bool> {
        let silence = now.saturating_duration_since(self.last_renewal);
        let is_stale = silence > self.object.stale_after;
        // The first Lease may be of a publisher that died long ago.
        if is_stale { Some(false) } else { self.view.is_renewed().then_some(true) }
    }
}

impl Peers {
    /// Applies an event of the ClusterPeers. `reserved`: addresses that no endpoint of a peer can have.
    pub fn apply(&mut self, event: ResourceEvent<PeerDecoder>, reserved: &Reserved) -> PeerChanges {
        let was_failing = self.feed.failure.is_some();
        self.feed.record_and_log(&event);
        if was_failing && self.feed.failure.is_none() {
            // ClusterPeers deleted with their type may return now.
            let now = clock::now();
            self.removed.values_mut().for_each(|since| *since = now);
        }
        let mut changed = PeerChanges::default();
        let is_list = matches!(event, ResourceEvent::Listed { .. });
        let mut named = BTreeSet::new();
        for change in changes(event) {
            match change {
                Change::Clear => {}
                Change::Remove(object) => changed.add(self.remove(&object.key().name)),
                Change::Set(object) => {
                    let name = object.key().name;
                    named.insert(Arc::clone(&name));
                    match object.decoded {
                        Ok(Ok(peer)) => changed.add(self.set(name, peer, reserved)),
                        Ok(Err(broken)) => changed.add(self.set_broken(name, broken)),
                        Err(error) => tracing::warn!("ClusterPeer {name} stays as it was: {error}"),
                    }
                }
            }
        }
        if is_list {
            let known = self.by_name.keys().chain(self.broken.keys());
            let gone: Vec<_> = known.filter(|name| !named.contains(*name)).cloned().collect();
            for name in gone {
                changed.add(self.remove(&name));
            }
        }
        self.note_choice();
        if changed.all {
            self.share_out();
        }
        changed
    }

    fn remove(&mut self, name: &PeerName) -> PeerChanges {
        let peer = self.by_name.remove(name);
        let broken = self.broken.remove(name);
        let of_broken = broken.as_ref().and_then(|broken| broken.cluster.clone());
        let cluster = peer.as_ref().map(|peer| peer.object.cluster.clone()).or(of_broken);
        self.removed.extend(cluster.map(|cluster| (cluster, clock::now())));
        PeerChanges {
            all: peer.is_some() || broken.is_some(),
            connections: peer.map(|_| Arc::clone(name)).into_iter().collect(),
            ..PeerChanges::default()
        }
    }

    /// A formerly usable peer keeps its former version.
    fn set_broken(&mut self, name: PeerName, broken: BrokenPeer) -> PeerChanges {
        let said = |error: Option<&String>| error == Some(&broken.error);
        let is_said = match self.by_name.get_mut(&name) {
            Some(peer) => {
                (peer.object.version, peer.object.status) =
                    (broken.version.clone(), broken.status.clone());
                let is_said = said(peer.rejected.as_ref());
                peer.rejected = Some(broken.error.clone());
                is_said
            }
            None => said(self.broken.get(&name).map(|former| &former.error)),
        };
        if !is_said {
            tracing::warn!("ClusterPeer {name} cannot be used: {}", broken.error);
        }
        let is_new = !self.by_name.contains_key(&name);
        if is_new {
            self.broken.insert(name, broken);
        }
        PeerChanges { all: is_new, ..PeerChanges::default() }
    }

    /// Forgets clusters without ClusterPeer after the grace time. Returns whether there were any.
    pub fn forget(&mut self, now: Instant) -> bool {
        if self.feed.failure.is_some() {
            return false;
        }
        let before = self.removed.len();
        self.removed.retain(|_, since| now.saturating_duration_since(*since) < GRACE);
        before != self.removed.len()
    }

    /// The clusters without a usable peer of which nothing is deleted now.
    pub fn unread(&self) -> Unread {
        let broken = self.broken.values().filter_map(|broken| broken.cluster.clone());
        Unread {
            clusters: broken.chain(self.removed.keys().cloned()).collect(),
            others: self.broken.values().any(|broken| broken.cluster.is_none()),
        }
    }

    /// The identity of the ClusterPeer with this name.
    pub fn version(&self, name: &PeerName) -> Option<&PeerVersion> {
        let of_broken = || self.broken.get(name).map(|broken| &broken.version);
        self.by_name.get(name).map(|peer| &peer.object.version).or_else(of_broken)
    }

    /// Whether a peer has no pod ranges, so that its endpoints can have any address.
    pub fn have_any_address(&self) -> bool {
        self.by_name.values().any(|peer| peer.object.pod_ranges.is_none())
    }

    /// The present status of a ClusterPeer.
    pub fn written_status(&self, name: &PeerName) -> Option<&ClusterPeerStatus> {
        let of_broken = || self.broken.get(name).map(|broken| &broken.status);
        self.by_name.get(name).map(|peer| &peer.object.status).or_else(of_broken)
    }

    /// The unusable ClusterPeers.
    pub const fn broken(&self) -> &BTreeMap<PeerName, BrokenPeer> {
        &self.broken
    }

    fn set(&mut self, name: PeerName, object: PeerObject, reserved: &Reserved) -> PeerChanges {
        let former = self.by_name.get(&name).map(|peer| &*peer.rules.endpoints);
        let rules = SourceRules {
            namespaces: object.namespaces.clone(),
            endpoints: Arc::new(EndpointRules {
                pod_ranges: object.pod_ranges.clone(),
                reserved: reserved.clone(),
                ..former.cloned().unwrap_or_default()
            }),
        };
        self.broken.remove(&name);
        self.removed.remove(&object.cluster);
        if let Some(peer) = self.by_name.get_mut(&name)
            && peer.object.address() == object.address()
            && peer.object.cluster == object.cluster
        {
            let all = peer.rules != rules || peer.object.uid != object.uid;
            peer.rules = rules;
            peer.view.set_limits(object.limits);
            peer.view.expect_uid(object.uid.as_ref());
            peer.object = object;
            peer.rejected = None;
            return PeerChanges { all, ..PeerChanges::default() };
        }
        self.number += 1;
        let former = self.by_name.get(&name).map(|former| &former.object.cluster);
        let cluster = object.cluster.clone();
        let mut view = if former == Some(&cluster) {
            MailboxView::moved(cluster)
        } else {
            MailboxView::new(cluster)
        };
        view.set_limits(object.limits);
        view.expect_uid(object.uid.as_ref());
        let peer = Peer {
            view,
            token: self.token(&object.secret),
            mailbox: object.address().number(),
            object,
            rules,
            overlap: None,
            number: self.number,
            rejected: None,
            access_problem: None,
            is_connected: false,
            last_renewal: clock::now(),
            last_contact: None,
            renewals: 0,
            was_known: false,
        };
        let cluster = peer.object.cluster.clone();
        if let Some(former) = self.by_name.insert(Arc::clone(&name), peer)
            && former.object.cluster != cluster
        {
            self.removed.insert(former.object.cluster, clock::now());
        }
        PeerChanges { all: true, connections: [name].into(), ..PeerChanges::default() }
    }

    /// Sets the addresses that no endpoint of a peer can have.
    pub fn reserve(&mut self, reserved: &Reserved) {
        for peer in self.by_name.values_mut() {
            Arc::make_mut(&mut peer.rules.endpoints).reserved.clone_from(reserved);
        }
    }

    /// Applies an event of the Secrets. Returns the peers whose connections have to change.
    pub fn apply_secrets(&mut self, event: ResourceEvent<SecretDecoder>) -> BTreeSet<PeerName> {
        let is_first = !self.secrets_feed.synced;
        self.secrets_feed.record_and_log(&event);
        let mut former: BTreeMap<Arc<str>, Option<SecretObject>> = BTreeMap::new();
        for change in changes(event) {
            match change {
                Change::Clear => {
                    let all = std::mem::take(&mut self.secrets).into_iter();
                    former.extend(all.map(|(name, secret)| (name, Some(secret))));
                }
                Change::Remove(object) => {
                    let name = object.key().name;
                    let secret = self.secrets.remove(&name);
                    former.entry(name).or_insert(secret);
                }
                Change::Set(object) => {
                    let name = object.key().name;
                    let before = match object.decoded {
                        Ok(secret) => self.secrets.insert(Arc::clone(&name), secret),
                        Err(_) => self.secrets.remove(&name),
                    };
                    former.entry(name).or_insert(before);
                }
            }
        }
        let has_other = |peer: &Peer| {
            let name = &*peer.object.secret.name;
            let texts = |secret: Option<&SecretObject>| secret.map(|secret| secret.texts.clone());
            let differs = |former: &Option<SecretObject>| {
                texts(former.as_ref()) != texts(self.secrets.get(name))
            };
            is_first || former.get(name).is_some_and(differs)
        };
        let changed = self.by_name.iter().filter(|(_, peer)| has_other(peer));
        let changed: BTreeSet<_> = changed.map(|(name, _)| name.clone()).collect();
        for name in &changed {
            let secret = self.by_name.get(name).map(|peer| &peer.object.secret);
            let token = secret.and_then(|secret| self.token(secret));
            if let Some(peer) = self.by_name.get_mut(name) {
                peer.token = token;
            }
        }
        changed
    }

    /// Applies an event of a peer's mailbox. Returns its effects.
    pub fn apply_mailbox(
        &mut self,
        name: &PeerName,
        number: u64,
        event: MailboxEvent,
    ) -> PeerChanges {
        let before = self.choice();
        let Some(peer) = self.by_name.get_mut(name).filter(|peer| peer.number == number) else {
            return PeerChanges::default();
        };
        let says =
            |peer: &Peer| (peer.view.counts(), peer.view.is_renewed(), peer.view.was_complete());
        let before_event = says(peer);
        let lacked = peer.view.lacking().cloned().unwrap_or_default();
        let properties = peer.view.properties().cloned();
        if event.is_answer() {
            peer.last_contact = Some(clock::time_of_day());
        }
        let mut services = peer.view.apply(event);
        let namespaces = peer.view.lacking().filter(|lacks| !Arc::ptr_eq(lacks, &lacked));
        let namespaces =
            namespaces.map(|lacks| lacked.symmetric_difference(lacks).cloned().collect());
        if peer.renewals != peer.view.renewals() {
            peer.renewals = peer.view.renewals();
            peer.last_renewal = clock::now();
        }
        let is_new = peer.view.counts() && !before_event.0 && !peer.was_known;
        peer.was_known |= is_new;
        if is_new {
            tracing::info!(
                "peer {name} is known: cluster {} exports {} services",
                peer.object.cluster,
                peer.view.believed().len()
            );
        }
        let has_more_say = peer.view.counts() && before_event != says(peer);
        // Cluster selectors can be about each of its properties.
        let is_other = peer.view.properties() != properties.as_ref();
        if is_other {
            services.extend(peer.view.believed().keys().cloned());
        }
        let known = (has_more_say || is_other).then(|| peer.object.cluster.clone());
        let all = before != self.choice() || is_new && self.are_known();
        let namespaces = namespaces.unwrap_or_default();
        PeerChanges { services, all, known, namespaces, ..PeerChanges::default() }
    }

    /// Records whether the kubeconfig of a peer is usable. If not, a connection keeps the former one.
    pub fn note_access(&mut self, name: &PeerName, number: u64, problem: Option<String>) {
        self.note_problem(name, number, problem.map(AccessProblem::Unusable));
    }

    /// Records that a peer has no kubeconfig, and no connection.
    pub fn note_no_secret(&mut self, name: &PeerName, number: u64, problem: String) {
        self.note_problem(name, number, Some(AccessProblem::NoSecret(problem)));
        if let Some(peer) = self.by_name.get_mut(name).filter(|peer| peer.number == number) {
            peer.is_connected = false;
        }
    }

    fn note_problem(&mut self, name: &PeerName, number: u64, problem: Option<AccessProblem>) {
        let Some(peer) = self.by_name.get_mut(name).filter(|peer| peer.number == number) else {
            return;
        };
        peer.is_connected |= problem.is_none();
        if let Some(AccessProblem::NoSecret(text) | AccessProblem::Unusable(text)) = &problem
            && peer.access_problem != problem
        {
            tracing::warn!("the credentials of peer {name} cannot be used: {text}");
        }
        peer.access_problem = problem;
    }

    /// Whether the ClusterPeers and the Secrets were listed.
    pub fn are_listed(&self) -> bool {
        self.feed.synced && self.secrets_feed.synced
    }

    /// The peers by name.
    pub const fn all(&self) -> &BTreeMap<PeerName, Peer> {
        &self.by_name
    }

    /// The version of a Secret.
    pub fn secret_version(&self, secret: &SecretReference) -> Option<&str> {
        Some(&self.secrets.get(&*secret.name)?.version)
    }

    /// The kubeconfig in a Secret.
    pub fn kubeconfig(&self, secret: &SecretReference) -> Option<&Arc<str>> {
        self.secrets.get(&*secret.name)?.texts.get(&secret.key)
    }

    /// Whether the kubeconfig in a Secret leads to all mailboxes of a hub.
    pub fn reads_all(&self, secret: &SecretReference) -> bool {
        let texts = self.secrets.get(&*secret.name).map(|secret| &secret.texts);
        let said = texts.and_then(|texts| texts.get(well_known::MAILBOXES));
        said.is_some_and(|said| said.trim() == well_known::ALL_MAILBOXES)
    }

    /// The claims of the token in a Secret.
    fn token(&self, secret: &SecretReference) -> Option<TokenClaims> {
        TokenClaims::of(self.kubeconfig(secret)?)
    }

    /// Whether everything of every peer was read.
    pub fn are_known(&self) -> bool {
        self.by_name.values().all(|peer| peer.view.counts())
    }

    /// One peer for each cluster other than `own`. A cluster has two peers while its mailbox moves.
    pub fn by_cluster(&self, own: &ClusterId) -> Vec<&Peer> {
        let peers: Vec<_> = if self.has_choice {
            self.chosen().into_values().collect()
        } else {
            self.by_name.values().collect()
        };
        peers.into_iter().filter(|peer| peer.object.cluster != *own).collect()
    }

    fn chosen(&self) -> BTreeMap<&ClusterId, &Peer> {
        let mut chosen: BTreeMap<&ClusterId, &Peer> = BTreeMap::new();
        for peer in self.by_name.values() {
            let entry = chosen.entry(&peer.object.cluster).or_insert(peer);
            if peer.number != entry.number && peer.is_better_than(entry) {
                *entry = peer;
            }
        }
        chosen
    }

    /// The numbers of the chosen peers, if a cluster has several.
    fn choice(&self) -> Vec<u64> {
        if !self.has_choice {
            return Vec::new();
        }
        self.chosen().values().map(|peer| peer.number).collect()
    }

    /// Caches whether a cluster has several peers: every event of every mailbox needs it.
    fn note_choice(&mut self) {
        let clusters: BTreeSet<_> =
            self.by_name.values().map(|peer| &peer.object.cluster).collect();
        self.has_choice = clusters.len() < self.by_name.len();
    }
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            broken: BTreeMap::new(),
            removed: BTreeMap::new(),
            secrets: BTreeMap::new(),
            feed: Feed::new(&peers_target()),
            // Messages omit the namespace of the Secrets.
            secrets_feed: Feed::new(&secrets_target("")),
            number: 0,
            has_choice: false,
            own_pods: vec![],
        }
    }
}

impl PeerChanges {
    fn add(&mut self, other: Self) {
        self.services.extend(other.services);
        self.all |= other.all;
        self.connections.extend(other.connections);
    }
}

impl Peer {
    /// The services among these that the peer exports.
    pub fn exports_of<'a>(&self, services: &'a BTreeSet<ServiceName>) -> Vec<&'a ServiceName> {
        services.iter().filter(|name| self.view.believed().contains_key(*name)).collect()
    }

    /// Whether its mailbox is the better of two mailboxes of one cluster: the publisher renews it.
    fn is_better_than(&self, other: &Self) -> bool {
        let rank = |peer: &Self| (peer.view.counts(), peer.view.identity_problem().is_none());
        let renewed = |peer: &Self| peer.view.lease()?.renewed.parse::<Timestamp>().ok();
        match rank(self).cmp(&rank(other)) {
            Ordering::Greater => true,
            Ordering::Less => false,
            // One publisher has written both times. With two publishers, the choice must not alternate.
            Ordering::Equal => match (renewed(self), renewed(other)) {
                (Some(one), Some(two)) => {
                    one.duration_since(two).unsigned_abs() > other.object.stale_after && one > two
                }
                _ => false,
            },
        }
    }
}

impl MailboxAddress {
    /// A number for the mailbox, equal in every version of the controller.
    fn number(&self) -> u32 {
        let SecretReference { name, key } = &self.secret;
        let hash = Sha256::digest(format!("{}/{name}/{key}", self.mailbox).as_bytes());
        hash.iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte))
    }
}

impl PeerObject {
    /// Its mailbox.
    pub fn address(&self) -> MailboxAddress {
        MailboxAddress { mailbox: self.mailbox.clone(), secret: self.secret.clone() }
    }
}

#[cfg(test)]
mod tests;
