use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Capacity;

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
    /// What there is room for at most.
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
