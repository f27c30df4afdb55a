//! Frontends and their backends, as the rules want them.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::ObjectKey;

/// The protocols that the programs translate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
}

impl Protocol {
    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The protocol with an IP protocol number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// The VIP, port and protocol that a client connects to. Displays as `10.0.0.1:80/TCP`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FrontendId {
    /// The VIP.
    pub ip: IpAddr,
    /// Never 0.
    pub port: u16,
    /// A TCP and a UDP frontend can share a port.
    pub protocol: Protocol,
}

impl fmt::Display for FrontendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.ip, self.port), self.protocol)
    }
}

/// An address and port that a frontend leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Backend {
    /// The pod's address and port. The address is of the frontend's IP family.
    pub address: SocketAddr,
    /// The source cluster; empty if the slice names none.
    pub cluster: Arc<str>,
}

/// The wanted contents of one frontend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontend {
    /// The ServiceImport that holds the frontend.
    pub import: ObjectKey,
    /// The port's name; empty if unnamed.
    pub port_name: String,
    /// Seconds of ClientIP affinity, 1 to 86400. `None`: no affinity.
    pub affinity_seconds: Option<u32>,
    /// Sorted; each address comes once. If there are none, every client is refused.
    pub backends: Vec<Backend>,
}

impl Frontend {
    /// The source clusters of its backends, in the order of the backends.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterRun<'_>> {
        let runs = self.backends.chunk_by(|one, next| one.cluster == next.cluster);
        runs.map(|run| ClusterRun { cluster: &run[0].cluster, backends: run.len() })
    }
}

/// Consecutive backends of one source cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterRun<'a> {
    /// Empty if the slice names none.
    pub cluster: &'a Arc<str>,
    /// How many there are.
    pub backends: usize,
}
