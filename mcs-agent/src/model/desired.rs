use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{ObjectKey, Rejection};

/// The protocols that the dataplane translates.
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

    /// The protocol with that number.
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

/// What a client connects to. Displays as `10.0.0.1:80/TCP`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FrontendId {
    /// The ClusterSetIP.
    pub ip: IpAddr,
    /// Never 0.
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

impl fmt::Display for FrontendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.ip, self.port), self.protocol)
    }
}

/// A place that a frontend sends clients to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Backend {
    /// The pod's address and port, of the frontend's family.
    pub address: SocketAddr,
    /// The cluster the endpoint was exported from; empty if its slice does not say.
    pub cluster: Arc<str>,
}

/// What the dataplane must do for one frontend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontend {
    /// The ServiceImport that owns it.
    pub import: ObjectKey,
    /// The port's name; empty if unnamed.
    pub port_name: String,
    /// Seconds of ClientIP affinity, 1 to 86400.
    pub affinity_seconds: Option<u32>,
    /// Sorted, without two of one address. Empty: every client is refused.
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

/// What the rules want of the dataplane, and what they turned down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredState {
    /// Every address that is ours on all its ports.
    pub vips: BTreeSet<IpAddr>,
    /// Every frontend; the address of each is in `vips`.
    pub frontends: BTreeMap<FrontendId, Frontend>,
    /// One per ServiceImport, sorted by name.
    pub imports: Vec<Arc<ImportReport>>,
    /// What was turned down, sorted by object.
    pub rejections: Vec<Rejection>,
}

impl DesiredState {
    /// The report of an import.
    pub fn report(&self, import: &ObjectKey) -> Option<&ImportReport> {
        Some(&self.imports[self.report_index(import)?])
    }

    pub(crate) fn report_mut(&mut self, import: &ObjectKey) -> Option<&mut Arc<ImportReport>> {
        let index = self.report_index(import)?;
        Some(&mut self.imports[index])
    }

    fn report_index(&self, import: &ObjectKey) -> Option<usize> {
        self.imports.binary_search_by(|report| report.import.cmp(import)).ok()
    }
}

/// Which part of what is desired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DesiredChanges {
    /// All of it, maybe.
    Everything,
    /// The backends of these frontends at most.
    Backends(BTreeSet<FrontendId>),
}

impl Default for DesiredChanges {
    fn default() -> Self {
        Self::Backends(BTreeSet::new())
    }
}

impl DesiredChanges {
    /// Adds another part.
    pub fn extend(&mut self, more: Self) {
        match (self, more) {
            (Self::Backends(ids), Self::Backends(more)) => ids.extend(more),
            (whole, _) => *whole = Self::Everything,
        }
    }
}

/// What became of a ServiceImport.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportReport {
    /// Which.
    pub import: ObjectKey,
    /// What became of it.
    pub state: ImportState,
    /// Why, where `state` alone does not say; empty otherwise.
    pub message: String,
}

/// What became of a ServiceImport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ImportState {
    /// Every frontend has a usable backend.
    Ready,
    /// Some frontends have no usable backend, and refuse.
    Partial,
    /// No frontend has a usable backend: every client is refused.
    Refusing,
    /// Not ours: headless, without an address yet, without endpoints to consume, or served by a
    /// derived Service.
    LeftAlone,
    /// Nothing of it could be used.
    Rejected,
}

impl ImportState {
    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Ready, Self::Partial, Self::Refusing, Self::LeftAlone, Self::Rejected];
}

impl fmt::Display for ImportState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Partial => "Partial",
            Self::Refusing => "Refusing",
            Self::LeftAlone => "LeftAlone",
            Self::Rejected => "Rejected",
        })
    }
}
