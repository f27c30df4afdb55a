//! The connections to the mailboxes of peers. Peers share one connection if their Secret leads to all mailboxes of a hub.

use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use mcs_kube::Room;

use super::{
    super::{MailboxId, Update, connection::Connection, read_again::ReadAgain},
    Control,
};
use crate::core::{
    mailbox::Scope,
    objects::{Limits, SecretReference},
    peers::{Peer, PeerName},
};

/// The pause before a hub is listed again for another peer: `link` creates many, one after the other.
const PAUSE: Duration = Duration::from_secs(1);

/// All of them.
#[derive(Default)]
pub(super) struct Connections {
    /// To one mailbox each.
    peers: HashMap<PeerName, Connected>,
    hubs: HashMap<SecretReference, Hub>,
    /// The peers on hubs that have exceeded these limits. Each has a connection of its own, because its mailbox is listed
    /// repeatedly.
    apart: HashMap<PeerName, Part>,
    /// Numbers the connections to hubs, to recognise late events of a former connection.
    number: u64,
    /// When mailboxes beyond their limits are read.
    again: ReadAgain,
    /// Whether the connections to hubs may have to change.
    is_hub_change_due: bool,
}

/// The connection to the mailbox of a peer.
struct Connected {
    number: u64,
    connection: Connection,
    limits: Limits,
}

/// The connection to a hub.
struct Hub {
    number: u64,
    connection: Connection,
    /// The peers that are read.
    parts: BTreeMap<PeerName, Part>,
    since: Instant,
}

/// A mailbox of a hub.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    /// [`Peer::number`].
    number: u64,
    mailbox: String,
    limits: Limits,
}

impl Part {
    fn of(peer: &Peer) -> Self {
        let (mailbox, limits) = (peer.object.mailbox.clone(), peer.object.limits);
        Self { number: peer.number, mailbox, limits }
    }
}

impl Connections {
    /// Splits an update of a hub into updates of its peers. Other updates pass unchanged.
    pub(super) fn shared_out(&self, update: Update) -> Vec<Update> {
        match update {
            Update::Mailbox(MailboxId::Hub(secret, number), event) => {
                let Some(hub) = self.hub(&secret, number) else { return vec![] };
                let mailboxes = hub.parts.values().map(|part| &*part.mailbox);
                let mut updates = Vec::new();
                for (mailbox, event) in event.split(mailboxes) {
                    let readers = hub.parts.iter().filter(|(_, part)| part.mailbox == mailbox);
                    updates.extend(readers.map(|one| Update::Mailbox(id(one), event.clone())));
                }
                updates
            }
            Update::Access(MailboxId::Hub(secret, number), problem) => {
                let parts = self.hub(&secret, number).into_iter().flat_map(|hub| &hub.parts);
                parts.map(|part| Update::Access(id(part), problem.clone())).collect()
            }
            other => vec![other],
        }
    }

    /// The control task has taken an update of this mailbox.
    pub(super) fn note_taken(&self, id: &MailboxId) {
        let connection = match id {
            MailboxId::Own => None,
            MailboxId::Peer(name, _) => self.peers.get(name).map(|one| &one.connection),
            MailboxId::Hub(secret, number) => self.hub(secret, *number).map(|hub| &hub.connection),
        };
        connection.into_iter().for_each(Connection::note_taken);
    }

    /// The number of connections to single mailboxes, and to hubs.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.peers.len(), self.hubs.len())
    }

    #[cfg(test)]
    pub(super) fn hub_ids(&self) -> Vec<MailboxId> {
        let ids = self.hubs.iter().map(|(secret, hub)| MailboxId::Hub(secret.clone(), hub.number));
        ids.collect()
    }

    fn hub(&self, secret: &SecretReference, number: u64) -> Option<&Hub> {
        self.hubs.get(secret).filter(|hub| hub.number == number)
    }
}

fn id((name, part): (&PeerName, &Part)) -> MailboxId {
    MailboxId::Peer(Arc::clone(name), part.number)
}

impl Control {
    /// Lists mailboxes again if other objects may fit now.
    pub(super) fn read_again(&mut self, now: Instant) {
        let peers = self.core.state.peers.all();
        let is_over_limit = |peer: &Peer| peer.view.over_limit().is_some();
        let Connections { peers: connected, again, .. } = &mut self.connections;
        again.retain(|name| peers.get(name).is_some_and(is_over_limit));
        let mut is_outdated = |name: &PeerName, connected: &Connected| {
            let Some(peer) = peers.get(name) else { return false };
            let may_fit = peer.view.may_fit();
            connected.limits != peer.object.limits
                || is_over_limit(peer) && again.is_due(name, may_fit, now)
        };
        let own = connected.iter().filter(|(name, one)| is_outdated(name, one));
        let mut outdated: Vec<_> = own.map(|(name, _)| Arc::clone(name)).collect();
        let (mut apart, mut has_changed) = (Vec::new(), false);
        for (name, part) in self.connections.hubs.values().flat_map(|hub| &hub.parts) {
            let Some(peer) = peers.get(name) else { continue };
            if peer.view.over_limit().is_some() {
                apart.push((Arc::clone(name), Part::of(peer)));
            }
            has_changed |= *part != Part::of(peer);
        }
        self.connections.is_hub_change_due |= has_changed;
        outdated.extend(apart.iter().map(|(name, _)| Arc::clone(name)));
        self.connections.apart.extend(apart);
        for name in outdated {
            self.connections.peers.remove(&name);
            self.connect(&name);
        }
    }

    /// Makes, changes or ends the connection to a peer.
    pub(super) fn connect(&mut self, name: &PeerName) {
        self.connections.is_hub_change_due = true;
        let Some(peer) = self.core.state.peers.all().get(name) else {
            self.connections.peers.remove(name);
            self.connections.apart.remove(name);
            return;
        };
        let (secret, part) = (peer.object.secret.clone(), Part::of(peer));
        let number = part.number;
        let Some(kubeconfig) = self.kubeconfig(name, number, &secret) else { return };
        if self.is_on_hub(name, &secret, &part) {
            self.connections.peers.remove(name);
            // Other connections report whether their kubeconfig is usable.
            if self.outbox.secret() == Some(&secret) {
                self.core.state.peers.note_access(name, number, None);
            }
            return;
        }
        if let Some(former) = self.connections.peers.get(name)
            && former.number == number
            && former.connection.replace(&kubeconfig)
        {
            tracing::info!("peer {name} has other credentials");
            return;
        }
        let id = MailboxId::Peer(Arc::clone(name), number);
        let Part { mailbox, limits, .. } = part;
        let scope = Scope::One(mailbox, Room::Total(limits.bytes));
        let updates = self.updates.clone();
        let connection = Connection::with_kubeconfig(kubeconfig, secret.name, scope, id, updates);
        let connected = Connected { number, connection, limits };
        self.connections.peers.insert(Arc::clone(name), connected);
    }

    /// The kubeconfig for a peer. If there is none, records the reason in the peer.
    fn kubeconfig(
        &mut self,
        name: &PeerName,
        number: u64,
        secret: &SecretReference,
    ) -> Option<Arc<str>> {
        let namespace = &self.core.state.settings.namespace;
        let kubeconfig = self.core.state.peers.kubeconfig(secret).cloned();
        if kubeconfig.is_none() && self.core.state.peers.are_listed() {
            let (name_of_secret, key) = (&secret.name, &secret.key);
            let problem =
                format!("Secret {namespace}/{name_of_secret} has no key {key}, or is not there");
            self.connections.peers.remove(name);
            self.core.state.peers.note_no_secret(name, number, problem);
        }
        kubeconfig
    }

    /// Whether a peer is read by the shared connection to a hub.
    fn is_on_hub(&self, name: &PeerName, secret: &SecretReference, part: &Part) -> bool {
        self.core.state.peers.reads_all(secret)
            && self.connections.apart.get(name).is_none_or(|apart| apart != part)
    }

    /// Adapts the connections to hubs to the present peers.
    pub(super) fn connect_hubs(&mut self, now: Instant) {
        if !take(&mut self.connections.is_hub_change_due) {
            return;
        }
        let mut wanted: BTreeMap<SecretReference, BTreeMap<PeerName, Part>> = BTreeMap::new();
        for (name, peer) in self.core.state.peers.all() {
            let (secret, part) = (&peer.object.secret, Part::of(peer));
            if self.is_on_hub(name, secret, &part) {
                wanted.entry(secret.clone()).or_default().insert(Arc::clone(name), part);
            }
        }
        self.connections.hubs.retain(|secret, _| wanted.contains_key(secret));
        for (secret, parts) in wanted {
            if let Some(kubeconfig) = self.core.state.peers.kubeconfig(&secret).cloned() {
                self.read_hub(secret, parts, kubeconfig, now);
            }
        }
    }

    fn read_hub(
        &mut self,
        secret: SecretReference,
        parts: BTreeMap<PeerName, Part>,
        kubeconfig: Arc<str>,
        now: Instant,
    ) {
        if let Some(hub) = self.connections.hubs.get_mut(&secret) {
            hub.connection.replace(&kubeconfig);
            if parts.iter().all(|(name, part)| hub.parts.get(name) == Some(part)) {
                hub.parts = parts;
                return;
            }
            if now < hub.since + PAUSE {
                self.connections.is_hub_change_due = true;
                return;
            }
        }
        let mut rooms = BTreeMap::new();
        for Part { mailbox, limits, .. } in parts.values() {
            let room = rooms.entry(mailbox.clone()).or_default();
            *room = limits.bytes.max(*room);
        }
        self.connections.number += 1;
        let number = self.connections.number;
        let (id, scope) = (MailboxId::Hub(secret.clone(), number), Scope::Hub(rooms));
        let updates = self.updates.clone();
        let connection = if self.outbox.secret() == Some(&secret) {
            Connection::with_access(Arc::clone(&self.outbox.access), scope, id, updates)
        } else {
            Connection::with_kubeconfig(kubeconfig, secret.name.clone(), scope, id, updates)
        };
        self.connections.hubs.insert(secret, Hub { number, connection, parts, since: now });
    }
}
