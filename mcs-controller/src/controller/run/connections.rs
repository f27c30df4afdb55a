//! The connections to the mailboxes of peers.

use std::sync::Arc;

use super::Control;
use crate::peers::{PeerName, connection::Connection};

impl Control {
    /// Makes, changes or ends the connection to a peer.
    pub(super) fn connect(&mut self, name: &PeerName) {
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
}
