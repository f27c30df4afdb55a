//! The other clusters of the clusterset: what their ClusterPeers say, and what their mailboxes hold.

pub mod connection;
pub mod token;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use ipnet::IpNet;
use mcs_kube::{ResourceEvent, WatchTarget};

use self::token::TokenClaims;
use crate::{
    clusterset::{ClusterId, EndpointRules, ServiceName, SourceRules, well_known},
    exports::{Change, changes},
    mailbox::{MailboxEvent, MailboxView},
    objects::{OWN_VERSION, PeerDecoder, PeerObject, SecretDecoder, SecretObject, SecretReference},
};

/// The name of a ClusterPeer.
pub type PeerName = Arc<str>;

/// The ClusterPeers.
pub fn peers_target() -> WatchTarget {
    WatchTarget::all(well_known::GROUP, &[OWN_VERSION], "ClusterPeer", "clusterpeers")
}

/// The Secrets in the controller's namespace.
pub fn secrets_target(namespace: &str) -> WatchTarget {
    WatchTarget {
        namespace: Some(namespace.to_owned()),
        ..WatchTarget::all("", &["v1"], "Secret", "secrets")
    }
}

/// Which mailbox a peer has, and how it is reached.
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
    /// What its ClusterPeer says.
    pub object: PeerObject,
    /// What is accepted from it.
    pub rules: SourceRules,
    /// Its mailbox.
    pub view: MailboxView,
    /// Counts the mailboxes that the peer had: events of a former one are late.
    pub number: u64,
    /// Why there is no connection.
    pub access_problem: Option<String>,
    /// When its publisher last gave a sign of life.
    pub last_beat: Instant,
    beats: u64,
}

/// All peers.
#[derive(Debug, Default)]
pub struct Peers {
    by_name: BTreeMap<PeerName, Peer>,
    secrets: BTreeMap<Arc<str>, SecretObject>,
    listed: bool,
    secrets_listed: bool,
    number: u64,
}

/// What an event of peers changes.
#[derive(Default, Debug)]
pub struct PeerChanges {
    /// These services.
    pub services: BTreeSet<ServiceName>,
    /// Everything.
    pub all: bool,
    /// The connections of these peers.
    pub connections: BTreeSet<PeerName>,
}

impl Peers {
    /// Applies an event of the ClusterPeers. `reserved` are addresses that no endpoint of a peer can have.
    pub fn apply(&mut self, event: ResourceEvent<PeerDecoder>, reserved: &[IpNet]) -> PeerChanges {
        self.listed |= matches!(event, ResourceEvent::Listed { .. });
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
                        Ok(peer) => changed.add(self.set(name, peer, reserved)),
                        Err(error) => tracing::warn!("ClusterPeer {name} stays as it was: {error}"),
                    }
                }
            }
        }
        if is_list {
            let gone: Vec<_> =
                self.by_name.keys().filter(|name| !named.contains(*name)).cloned().collect();
            for name in gone {
                changed.add(self.remove(&name));
            }
        }
        changed
    }

    fn remove(&mut self, name: &PeerName) -> PeerChanges {
        let removed = self.by_name.remove(name).is_some();
        PeerChanges {
            all: removed,
            connections: removed.then(|| Arc::clone(name)).into_iter().collect(),
            ..PeerChanges::default()
        }
    }

    fn set(&mut self, name: PeerName, object: PeerObject, reserved: &[IpNet]) -> PeerChanges {
        let rules = SourceRules {
            namespaces: object.namespaces.clone(),
            endpoints: EndpointRules {
                pod_ranges: object.pod_ranges.clone(),
                reserved: reserved.to_owned(),
            },
        };
        if let Some(peer) = self.by_name.get_mut(&name)
            && peer.object.address() == object.address()
            && peer.object.cluster == object.cluster
        {
            let all = peer.rules != rules;
            peer.rules = rules;
            peer.object = object;
            return PeerChanges { all, ..PeerChanges::default() };
        }
        self.number += 1;
        let peer = Peer {
            view: MailboxView::new(object.cluster.clone()),
            object,
            rules,
            number: self.number,
            access_problem: None,
            last_beat: Instant::now(),
            beats: 0,
        };
        self.by_name.insert(Arc::clone(&name), peer);
        PeerChanges { all: true, connections: [name].into(), ..PeerChanges::default() }
    }

    /// Applies an event of the Secrets. Returns the peers whose connections have to change.
    pub fn apply_secrets(&mut self, event: ResourceEvent<SecretDecoder>) -> BTreeSet<PeerName> {
        let is_first = !self.secrets_listed;
        self.secrets_listed |= matches!(event, ResourceEvent::Listed { .. });
        let before = self.secrets.clone();
        for change in changes(event) {
            match change {
                Change::Clear => self.secrets.clear(),
                Change::Remove(object) => {
                    self.secrets.remove(&object.key().name);
                }
                Change::Set(object) => {
                    let name = object.key().name;
                    match object.decoded {
                        Ok(secret) => self.secrets.insert(name, secret),
                        Err(_) => self.secrets.remove(&name),
                    };
                }
            }
        }
        let has_other = |peer: &Peer| {
            let name = &*peer.object.secret.name;
            is_first || before.get(name) != self.secrets.get(name)
        };
        self.by_name
            .iter()
            .filter(|(_, peer)| has_other(peer))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Applies an event of a peer's mailbox. Returns the services that it changes, and whether the peer is now known.
    pub fn apply_mailbox(
        &mut self,
        name: &PeerName,
        number: u64,
        event: MailboxEvent,
    ) -> PeerChanges {
        let Some(peer) = self.by_name.get_mut(name).filter(|peer| peer.number == number) else {
            return PeerChanges::default();
        };
        let was_known = peer.view.is_known();
        let services = peer.view.apply(event);
        if peer.beats != peer.view.beats() {
            peer.beats = peer.view.beats();
            peer.last_beat = Instant::now();
        }
        let all = peer.view.is_known() && !was_known;
        if all {
            tracing::info!(
                "peer {name} is known: cluster {} exports {} services",
                peer.object.cluster,
                peer.view.believed().len()
            );
        }
        PeerChanges { services, all, ..PeerChanges::default() }
    }

    /// Notes whether a peer's API server can be asked.
    pub fn note_access(&mut self, name: &PeerName, number: u64, problem: Option<String>) {
        if let Some(peer) = self.by_name.get_mut(name).filter(|peer| peer.number == number) {
            if let Some(problem) = &problem
                && peer.access_problem.as_ref() != Some(problem)
            {
                tracing::warn!("peer {name} cannot be reached: {problem}");
            }
            peer.access_problem = problem;
        }
    }

    /// Whether the ClusterPeers and the Secrets were listed.
    pub const fn are_listed(&self) -> bool {
        self.listed && self.secrets_listed
    }

    /// The peers by name.
    pub const fn all(&self) -> &BTreeMap<PeerName, Peer> {
        &self.by_name
    }

    /// The kubeconfig in a Secret.
    pub fn kubeconfig(&self, secret: &SecretReference) -> Option<&Arc<str>> {
        self.secrets.get(&*secret.name)?.texts.get(&secret.key)
    }

    /// What the token of a peer's kubeconfig says of itself.
    pub fn token(&self, peer: &Peer) -> Option<TokenClaims> {
        TokenClaims::of(self.kubeconfig(&peer.object.secret)?)
    }

    /// One peer for each cluster other than `own`: one that is known, if there is one.
    pub fn by_cluster(&self, own: &ClusterId) -> BTreeMap<&ClusterId, &Peer> {
        let mut chosen: BTreeMap<&ClusterId, &Peer> = BTreeMap::new();
        for peer in self.by_name.values().filter(|peer| peer.object.cluster != *own) {
            let entry = chosen.entry(&peer.object.cluster).or_insert(peer);
            if !entry.view.is_known() && peer.view.is_known() {
                *entry = peer;
            }
        }
        chosen
    }
}

impl PeerChanges {
    fn add(&mut self, other: Self) {
        self.services.extend(other.services);
        self.all |= other.all;
        self.connections.extend(other.connections);
    }
}

impl PeerObject {
    /// Which mailbox it has.
    pub fn address(&self) -> MailboxAddress {
        MailboxAddress { mailbox: self.mailbox.clone(), secret: self.secret.clone() }
    }
}
