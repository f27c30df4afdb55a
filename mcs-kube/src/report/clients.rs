//! The clients of backends: sockets, and flows of the packet path.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

use crate::ObjectKey;

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
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
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

/// The sockets of one VIP and one backend. `mcs-agent sockets -o json` is a list of them: fields are added, never renamed.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct SocketCount {
    /// The ServiceImport; absent if it was removed, or the backend was.
    #[serde(flatten)]
    pub import: Option<ObjectKey>,
    /// The ClusterSetIP, port and protocol.
    #[serde(flatten)]
    pub frontend: FrontendId,
    /// The pod's address and port.
    pub backend: SocketAddr,
    /// The backend's source cluster; null if its slice names none, or the backend was removed.
    pub cluster: Option<String>,
    /// Those that are connected to it.
    pub sockets: u64,
    /// UDP sockets that send to it without connecting.
    pub unconnected: u64,
}

/// A flow. `mcs-agent flows -o json` is a list of them: fields are added, never renamed.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct FlowView {
    /// The ServiceImport; absent if it was removed.
    #[serde(flatten)]
    pub import: Option<ObjectKey>,
    /// The ClusterSetIP, port and protocol.
    #[serde(flatten)]
    pub frontend: FrontendId,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The pod's address and port.
    pub backend: SocketAddr,
    /// The backend's source cluster; null if its slice names none, or the backend was removed.
    pub cluster: Option<String>,
    /// How far its conversation is.
    pub state: Cow<'static, str>,
    /// Seconds since its last packet.
    pub idle_seconds: u64,
    /// As the help text of `mcs-agent flows` describes.
    pub flags: Vec<Cow<'static, str>>,
}
