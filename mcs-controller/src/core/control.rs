//! The control task: it waits for events, asks the rules, and carries out what they plan.

mod connection;
mod outbox;
mod queue;
mod read_again;
mod run;
mod settings;
pub(crate) mod state;
mod states;

use mcs_kube::ResourceEvent;

pub use self::settings::Settings;
pub(crate) use self::{
    run::{control, run},
    state::{Planned, State},
};
use crate::core::{
    mailbox::MailboxEvent,
    objects::{PeerDecoder, SecretDecoder, SecretReference},
    own_cluster::OwnEvent,
    peers::PeerName,
};

/// A mailbox that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MailboxId {
    /// That of this cluster.
    Own,
    /// That of a peer, with the number of its connection.
    Peer(PeerName, u64),
    /// Those of a hub that this Secret leads to, with the number of the connection.
    Hub(SecretReference, u64),
}

/// An event of one of the watches.
#[derive(Clone, Debug)]
pub enum Update {
    /// In this cluster.
    Own(OwnEvent),
    /// Of the ClusterPeers.
    Peers(ResourceEvent<PeerDecoder>),
    /// Of the Secrets of peers.
    Secrets(ResourceEvent<SecretDecoder>),
    /// In a mailbox.
    Mailbox(MailboxId, MailboxEvent),
    /// Why the kubeconfig of a peer or a hub cannot be used, if so.
    Access(MailboxId, Option<String>),
}
