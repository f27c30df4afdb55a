//! The connections to the mailboxes of peers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Control;
use crate::{
    objects::Limits,
    peers::{Peer, PeerName, connection::Connection},
};

/// How long to wait before a mailbox is read again of which there was too much.
const READ_AGAIN: Duration = Duration::from_mins(1);

/// The connection to the mailbox of a peer.
pub(super) struct Connected {
    number: u64,
    connection: Connection,
    limits: Limits,
    since: Instant,
}

impl Connected {
    /// Whether the mailbox has to be read again: of what was left out, more may fit now.
    fn is_outdated(&self, peer: &Peer, now: Instant) -> bool {
        self.limits != peer.object.limits
            || peer.view.over_limit().is_some() && now >= self.since + READ_AGAIN
    }
}

impl Control {
    /// Reads mailboxes again of which there may be other parts to keep.
    pub(super) fn read_again(&mut self, now: Instant) {
        let peers = self.state.peers.all();
        let is_outdated = |name: &PeerName, connected: &Connected| {
            peers.get(name).is_some_and(|peer| connected.is_outdated(peer, now))
        };
        let outdated = self.connections.iter().filter(|(name, one)| is_outdated(name, one));
        let outdated: Vec<_> = outdated.map(|(name, _)| Arc::clone(name)).collect();
        for name in outdated {
            self.connections.remove(&name);
            self.connect(&name);
        }
    }

    /// Makes, changes or ends the connection to a peer.
    pub(super) fn connect(&mut self, name: &PeerName) {
        let Some(peer) = self.state.peers.all().get(name) else {
            self.connections.remove(name);
            return;
        };
        let (number, limits) = (peer.number, peer.object.limits);
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
        if let Some(former) = self.connections.get(name)
            && former.number == number
            && former.connection.replace(&kubeconfig)
        {
            tracing::info!("peer {name} has other credentials");
            self.state.peers.note_access(name, number, None);
            return;
        }
        let id = (Arc::clone(name), number);
        let (secret, updates) = (secret.name.clone(), self.updates.clone());
        let most = limits.bytes;
        let connection =
            Connection::with_kubeconfig(kubeconfig, secret, mailbox, most, id, updates);
        let connected = Connected { number, connection, limits, since: Instant::now() };
        self.connections.insert(Arc::clone(name), connected);
    }
}
