//! Facts about the node that the agent runs on, and the backends that do not answer its clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Capacity, NodeFacts, ObjectKey, VIP_RANGES_PROPERTY};

/// Everything about the node and its cluster that the rules use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeContext {
    /// `--node-name`.
    pub node_name: Option<String>,
    /// What flags and the source say.
    pub facts: NodeFacts,
    /// `--vip-cidr`; empty leaves it to the facts.
    pub vip_cidrs: Vec<IpNet>,
    /// The addresses of the node's interfaces. None of them can be a VIP.
    pub node_addresses: BTreeSet<IpAddr>,
    /// `--stale-tcp=destroy`: which endpoints serve matters for TCP too.
    pub stale_tcp: bool,
    /// The backends that do not answer clients of this node.
    pub ejections: Ejections,
    /// The limit of `--max-memory`.
    pub capacity: Capacity,
}

impl NodeContext {
    /// The ranges that ClusterSetIPs have to be in, and where they come from; none if any address can be one.
    pub fn accepted_vips(&self) -> Option<AcceptedVips<'_>> {
        AcceptedVips::new(&self.vip_cidrs, &self.facts.vip_ranges)
    }

    /// Whether the address is in a range of ClusterSetIPs.
    pub fn is_in_vip_ranges(&self, ip: IpAddr) -> bool {
        self.accepted_vips().is_none_or(|accepted| accepted.contains(ip))
    }

    /// Whether a Service of this cluster can have this address. It can while the ranges are unknown.
    pub fn may_be_service(&self, ip: IpAddr) -> bool {
        self.facts.service_ranges.is_none() || self.facts.is_service(ip)
    }
}

/// The ranges that ClusterSetIPs have to be in.
#[derive(Clone, Copy, Debug)]
pub struct AcceptedVips<'a> {
    /// At least one.
    pub ranges: &'a [IpNet],
    /// Whether `--vip-cidr` has them, and not the cluster.
    pub by_flag: bool,
}

impl<'a> AcceptedVips<'a> {
    /// How many ranges a message names.
    const NAMED: usize = 8;

    /// The flag goes before what the cluster says; none if neither has a range.
    pub fn new(flag: &'a [IpNet], cluster: &'a [IpNet]) -> Option<Self> {
        let by_flag = !flag.is_empty();
        let ranges = if by_flag { flag } else { cluster };
        (!ranges.is_empty()).then_some(Self { ranges, by_flag })
    }

    /// Whether the address is in one of the ranges.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&ip))
    }
}

impl fmt::Display for AcceptedVips<'_> {
    /// `--vip-cidr 241.0.0.0/8,fd00::/96`, or the same of a ClusterProperty. Many ranges are cut short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by_flag {
            f.write_str("--vip-cidr")?;
        } else {
            write!(f, "ClusterProperty {VIP_RANGES_PROPERTY}")?;
        }
        let ranges: Vec<_> =
            self.ranges.iter().take(Self::NAMED).map(ToString::to_string).collect();
        let more = if self.ranges.len() > Self::NAMED { ",..." } else { "" };
        write!(f, " {}{more}", ranges.join(","))
    }
}

/// Whether new clients get a backend that was found dead. The serialised names are stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EjectionState {
    /// New clients get other backends.
    Ejected,
    /// The backend has one slot, until it answers a client.
    HalfOpen,
    /// New clients get it: it answers the agent, and no client of this node.
    AnswersAgent,
    /// A state of a later version, which this one reads in a report.
    #[serde(other)]
    Unknown,
}

/// Connects that have failed since they were told last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedConnects {
    /// The import that they were for.
    pub import: ObjectKey,
    /// The source cluster of their backend.
    pub cluster: Arc<str>,
    /// How many.
    pub count: u64,
}

/// The verdicts of this node, by import and address. The rules decide which of them count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ejections(Arc<BTreeMap<ObjectKey, BTreeMap<SocketAddr, EjectionState>>>);

impl Ejections {
    /// The state of a backend that was found dead.
    pub fn state(&self, import: &ObjectKey, address: SocketAddr) -> Option<EjectionState> {
        self.0.get(import)?.get(&address).copied()
    }

    /// The imports about which the two differ.
    pub fn differing(&self, other: &Self) -> BTreeSet<ObjectKey> {
        let imports = self.0.keys().chain(other.0.keys());
        imports.filter(|import| self.0.get(import) != other.0.get(import)).cloned().collect()
    }
}

impl<'a> FromIterator<&'a Ejection> for Ejections {
    fn from_iter<I: IntoIterator<Item = &'a Ejection>>(ejections: I) -> Self {
        let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let acted_on = |one: &&Ejection| one.state != EjectionState::AnswersAgent;
        for Ejection { import, backend, state, .. } in ejections.into_iter().filter(acted_on) {
            all.entry(import.clone()).or_default().insert(*backend, *state);
        }
        Self(Arc::new(all))
    }
}

/// A backend that was found dead. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ejection {
    /// The ServiceImport.
    pub import: ObjectKey,
    /// Its address.
    pub backend: SocketAddr,
    /// The source cluster; empty if its slice does not say.
    pub cluster: Arc<str>,
    /// Whether new clients get it.
    pub state: EjectionState,
    /// How often it was ejected lately.
    pub times: u32,
    /// New clients get it although it is ejected: half of the service's backends are ejected already, or it is the last one.
    #[serde(default)]
    pub used: bool,
}

impl Ejection {
    /// Whether new clients do not get it.
    pub fn is_out(&self) -> bool {
        self.state == EjectionState::Ejected && !self.used
    }
}

impl fmt::Display for Ejection {
    /// `10.2.0.1:80 (west) ejected, for the 2nd time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, cluster, state, times, used, .. } = self;
        write!(f, "{backend}")?;
        if !cluster.is_empty() {
            write!(f, " ({cluster})")?;
        }
        f.write_str(match state {
            EjectionState::Ejected if *used => " does not answer, and is needed",
            EjectionState::Ejected => " ejected",
            EjectionState::HalfOpen => " half open",
            EjectionState::AnswersAgent => " answers the agent, and no client of this node",
            EjectionState::Unknown => " in a state that this version does not know",
        })?;
        if *times > 1 { write!(f, ", {times} times lately") } else { Ok(()) }
    }
}
