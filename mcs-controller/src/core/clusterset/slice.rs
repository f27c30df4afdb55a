//! EndpointSlices: those of a source cluster, and their copies in an importing one.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher as _},
    net::IpAddr,
    sync::Arc,
};

use super::{
    ActualSlice, Addresses, ClusterId, EndpointConditions, EndpointCount, IpFamily, Memo, Protocol,
    ServiceName, Stamp,
};

/// A slice of an exported Service in its source cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSlice {
    /// `metadata.name` in the source cluster.
    pub name: Arc<str>,
    /// `metadata.generation` in the source cluster.
    pub generation: i64,
    /// `addressType`. Slices of names are not exported.
    pub family: IpFamily,
    /// `ports`.
    pub ports: Vec<SlicePort>,
    /// `endpoints`. A service can have thousands.
    pub endpoints: Vec<Endpoint>,
    /// Annotation `endpoints.kubernetes.io/last-change-trigger-time`, as written.
    pub trigger_time: Option<Arc<str>>,
    /// For a copy in a mailbox: when it was written.
    pub stamp: Stamp,
    /// Cached results. Once they exist, the slice must not change.
    pub memo: Memo,
}

impl SourceSlice {
    /// Whether `copy`, in a mailbox, has the same content.
    pub fn is_copied_by(&self, copy: &Self) -> bool {
        self.content() == copy.content()
    }

    /// The count of its endpoints if the import does not use the slice.
    pub const fn unused_endpoints(&self) -> EndpointCount {
        EndpointCount { all: self.endpoints.len(), ready: 0 }
    }

    /// A hash of the content that its copy in a mailbox has.
    fn content(&self) -> u64 {
        let Self { name, generation, family, ports, endpoints, trigger_time, stamp: _, memo } =
            self;
        memo.content(|| {
            let mut hasher = DefaultHasher::new();
            (name, generation, family, ports, trigger_time, endpoints.len()).hash(&mut hasher);
            for Endpoint { address, conditions, hostname, zone, node: _ } in endpoints {
                (address, conditions, hostname, zone).hash(&mut hasher);
            }
            hasher.finish()
        })
    }
}

/// The copy of a slice in this cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportedSlice {
    /// The import that it belongs to; the slice is in its namespace.
    pub service: ServiceName,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Label `multicluster.kubernetes.io/source-cluster`.
    pub cluster: ClusterId,
    /// Annotation `clusterset.mcs-agent.io/source-slice`.
    pub source_name: Arc<str>,
    /// Annotation `clusterset.mcs-agent.io/source-generation`.
    pub source_generation: i64,
    /// `addressType`.
    pub family: IpFamily,
    /// `ports`, without ports that lost a conflict.
    pub ports: Vec<SlicePort>,
    /// `endpoints`, without rejected ones.
    pub endpoints: Vec<Endpoint>,
    /// Whether each endpoint has the hint `forZones` with its own zone.
    pub has_zone_hints: bool,
    /// Whether the slice is also one of the derived Service.
    pub has_derived_service: bool,
    /// Annotation `endpoints.kubernetes.io/last-change-trigger-time`.
    pub trigger_time: Option<Arc<str>>,
    /// When the original was written to the mailbox. It is no content: a publisher that rewrites equal content changes no
    /// import.
    pub stamp: Stamp,
}

impl ImportedSlice {
    /// The part that the controller remembers after the write.
    pub fn actual(&self) -> ActualSlice {
        let addresses = self.endpoints.iter().map(|endpoint| endpoint.address);
        ActualSlice {
            cluster: self.cluster.clone(),
            fingerprint: self.fingerprint(),
            family: self.family,
            stamp: self.stamp,
            addresses: Addresses::of(addresses),
        }
    }

    /// The endpoints of the source slice; those that the copy has can be ready.
    pub fn count_endpoints(&self, source: &SourceSlice) -> EndpointCount {
        let is_ready = |endpoint: &&Endpoint| endpoint.conditions.ready.unwrap_or(true);
        let ready = self.endpoints.iter().filter(is_ready).count();
        EndpointCount { all: source.endpoints.len(), ready }
    }

    /// The same while the API server refuses this content and the cluster's slices have these addresses.
    pub fn count_present(&self, source: &SourceSlice, present: &BTreeSet<IpAddr>) -> EndpointCount {
        let is_there = |endpoint: &&Endpoint| present.contains(&endpoint.address);
        let endpoints = self.endpoints.iter().filter(is_there).cloned().collect();
        Self { endpoints, ..self.clone() }.count_endpoints(source)
    }

    /// A hash of the content. Equal slices have the same hash within one process.
    pub fn fingerprint(&self) -> u64 {
        let Self {
            service,
            name,
            cluster,
            source_name,
            source_generation,
            family,
            ports,
            endpoints,
            has_zone_hints,
            has_derived_service,
            trigger_time,
            stamp: _,
        } = self;
        let mut hasher = DefaultHasher::new();
        (service, name, cluster, source_name, source_generation, family).hash(&mut hasher);
        (ports, endpoints, has_zone_hints, has_derived_service, trigger_time).hash(&mut hasher);
        hasher.finish()
    }
}

/// An entry of `ports` of a slice.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SlicePort {
    /// Empty if unnamed.
    pub name: Arc<str>,
    /// TCP if absent.
    pub protocol: Protocol,
    /// The port of the pod; absent means all.
    pub port: Option<u16>,
    /// The application protocol.
    pub app_protocol: Option<Arc<str>>,
}

/// An entry of `endpoints` of a slice.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// The first of `addresses`. As kube-proxy does, this project ignores the others.
    pub address: IpAddr,
    /// `conditions`.
    pub conditions: EndpointConditions,
    /// `hostname`: the pod's name below a headless service.
    pub hostname: Option<Arc<str>>,
    /// `zone`.
    pub zone: Option<Arc<str>>,
    /// `nodeName`, a node of the source cluster.
    pub node: Option<Arc<str>>,
}

impl Endpoint {
    /// The endpoint as other clusters see it: names of nodes repeat across clusters.
    #[must_use]
    pub fn without_node(&self) -> Self {
        Self { node: None, ..self.clone() }
    }
}
