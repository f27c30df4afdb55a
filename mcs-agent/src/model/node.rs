use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// What the rules know about the node they run for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeContext {
    /// `--node-name`.
    pub node_name: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// The id of its cluster.
    pub cluster_id: Option<String>,
    /// `--vip-cidr`; empty allows any.
    pub vip_cidrs: Vec<IpNet>,
    /// The addresses of this node's interfaces.
    pub node_addresses: BTreeSet<IpAddr>,
    /// Where the API server is reached.
    pub api_servers: BTreeSet<IpAddr>,
    /// What the maps hold.
    pub capacity: Capacity,
}

/// What a source, or a flag, says of the node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Its zone.
    pub zone: Option<String>,
    /// The id of its cluster.
    pub cluster_id: Option<String>,
    /// Where the API server is reached.
    pub api_servers: BTreeSet<IpAddr>,
}

impl NodeFacts {
    /// With what another says where this says nothing. Addresses of the API server add up.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.api_servers.extend(other.api_servers);
        Self {
            zone: self.zone.or(other.zone),
            cluster_id: self.cluster_id.or(other.cluster_id),
            api_servers: self.api_servers,
        }
    }
}

impl NodeContext {
    /// Takes over what is known of the node now.
    pub fn learn(&mut self, facts: NodeFacts) {
        let NodeFacts { zone, cluster_id, api_servers } = facts;
        *self = Self { zone, cluster_id, api_servers, ..std::mem::take(self) };
    }

    /// What is known of the node.
    pub fn facts(&self) -> NodeFacts {
        NodeFacts {
            zone: self.zone.clone(),
            cluster_id: self.cluster_id.clone(),
            api_servers: self.api_servers.clone(),
        }
    }
}

/// How much the maps hold. Config maps are allocated whole when they are created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// `--max-frontends`: bounds frontends, VIPs and ServiceImports, each.
    pub frontends: u32,
    /// `--max-endpoints`: bounds the backends of all frontends together.
    pub endpoints: u32,
    /// `--max-clusters`: bounds source clusters.
    pub clusters: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { frontends: 16_384, endpoints: 65_536, clusters: 1_024 }
    }
}

impl Capacity {
    /// Entries of `states`: index 0 is never used.
    pub const fn state_entries(self) -> u32 {
        self.frontends.saturating_add(1)
    }

    /// Entries of `backends`: a whole set can be replaced while the old one is still in use, and
    /// id 0 is never used.
    pub const fn backend_entries(self) -> u32 {
        self.endpoints.saturating_mul(2).saturating_add(1)
    }

    /// Entries of `slots`: the old and the new block of every frontend, and as much again since
    /// blocks are contiguous.
    pub const fn slot_entries(self) -> u32 {
        self.endpoints.saturating_mul(4)
    }

    /// Entries of `services`: a frontend can change hands while the former name is still in use, and
    /// index 0 is never used.
    pub const fn service_entries(self) -> u32 {
        self.frontends.saturating_mul(2).saturating_add(1)
    }

    /// Entries of `clusters`: every cluster can be replaced while the former ones are still in use,
    /// and index 0 is never used.
    pub const fn cluster_entries(self) -> u32 {
        self.clusters.saturating_mul(2).saturating_add(1)
    }
}
