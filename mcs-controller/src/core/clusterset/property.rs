//! Properties of a service that the clusters have to agree on.

use std::{fmt, net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};

/// `protocol` of a port.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// The protocol of a port that names none.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An entry of `spec.ports` of a Service or ServiceImport.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Empty if unnamed.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// TCP if absent.
    #[serde(default)]
    pub protocol: Protocol,
    /// The port of the VIP.
    pub port: u16,
    /// The application protocol, a hint for implementations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Arc<str>>,
}

impl ServicePort {
    /// The port in a message.
    pub fn label(&self) -> String {
        if self.name.is_empty() {
            format!("{}/{}", self.port, self.protocol)
        } else {
            self.name.to_string()
        }
    }
}

impl fmt::Display for ServicePort {
    /// For example `http 80/TCP`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{} ", self.name)?;
        }
        write!(f, "{}/{}", self.port, self.protocol)?;
        match &self.app_protocol {
            Some(protocol) => write!(f, " ({protocol})"),
            None => Ok(()),
        }
    }
}

/// `spec.sessionAffinity` and `spec.sessionAffinityConfig`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SessionAffinity {
    /// No affinity.
    #[default]
    None,
    /// A client returns to the endpoint that it had.
    ClientIp {
        /// `clientIP.timeoutSeconds`; [`SessionAffinity::DEFAULT_TIMEOUT_SECONDS`] if absent.
        timeout_seconds: i32,
    },
}

impl SessionAffinity {
    /// The default of the Service API.
    pub const DEFAULT_TIMEOUT_SECONDS: i32 = 10_800;

    /// The value of `sessionAffinity`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::ClientIp { .. } => "ClientIP",
        }
    }

    /// `clientIP.timeoutSeconds`; absent without affinity.
    pub const fn timeout_seconds(self) -> Option<i32> {
        match self {
            Self::None => None,
            Self::ClientIp { timeout_seconds } => Some(timeout_seconds),
        }
    }
}

/// `spec.internalTrafficPolicy`.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub enum InternalTrafficPolicy {
    /// All endpoints. The default.
    #[default]
    Cluster,
    /// Endpoints on the client's node alone.
    Local,
}

impl fmt::Display for InternalTrafficPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An entry of `spec.ipFamilies`, and `addressType` of a slice with IP addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum IpFamily {
    /// IPv4.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

impl IpFamily {
    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
