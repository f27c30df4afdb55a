//! The control task: it waits for events, asks the rules, and carries out what they plan.

mod acceptances;
mod causes;
mod connection;
mod contests;
mod outbox;
mod propagation;
mod queue;
mod run;
mod state;
mod states;

use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use mcs_kube::{KubeconfigFile, ResourceEvent};

pub use self::run::run;
use crate::{
    clusterset::{ClusterId, NamespaceRules},
    mailbox::MailboxEvent,
    objects::{PeerDecoder, SecretDecoder, SecretReference},
    own_cluster::OwnEvent,
    peers::PeerName,
};

/// The settings from the command line.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct Settings {
    /// Leads to this cluster's API server; `None` uses the service account of the pod.
    pub kubeconfig: Option<KubeconfigFile>,
    /// This cluster's id; `None`: as its ClusterProperty says.
    pub cluster: Option<ClusterId>,
    /// The name of the clusterset; `None`: as the ClusterProperty says.
    pub clusterset: Option<String>,
    /// The controller's own namespace, with the Secrets of its peers.
    pub namespace: String,
    /// The namespace in which it publishes.
    pub mailbox: String,
    /// The API server with that namespace; `None`: that of the Secret below, or else this cluster's.
    pub mailbox_kubeconfig: Option<KubeconfigFile>,
    /// The Secret with the kubeconfig for that API server, in the controller's own namespace.
    pub mailbox_secret: Option<SecretReference>,
    /// The namespaces that can be exported.
    pub exports: NamespaceRules,
    /// The range of new IPv4 VIPs, if it is not the default one.
    pub vips_v4: Option<Ipv4Net>,
    /// The range of new IPv6 VIPs, if it is not the default one.
    pub vips_v6: Option<Ipv6Net>,
    /// The ranges of this cluster's Services; empty: as its ServiceCIDRs say.
    pub service_ranges: Vec<IpNet>,
    /// The ranges of this cluster's pods; empty: as its Nodes say.
    pub pod_ranges: Vec<IpNet>,
    /// Whether ServiceImports of other controllers become this one's.
    pub adopt: bool,
    /// Whether namespaces are created for services of peers.
    pub create_namespaces: bool,
    /// Whether imports get derived Services.
    pub derived_services: bool,
    /// How many writes of 32 KiB a peer may cause a second.
    pub peer_writes: u32,
    /// How often pods of peers are connected to; `None`: never.
    pub probe_period: Option<Duration>,
    /// Whether agents are told the ranges of VIPs.
    pub tells_vip_ranges: bool,
    /// The name of this replica, if it takes part in an election.
    pub identity: Option<String>,
}

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
