//! Copies the slices of a source cluster for this one: one copy for each slice, so that one change costs one write.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use mcs_kube::reasons::Rejection;
use sha2::{Digest as _, Sha256};

use super::{
    ClusterId, Contribution, CopyRules, Endpoint, EndpointRules, ImportedSlice, Merged,
    ServiceName, ServiceType, SourceSlice, Stamp,
};

/// What the copies of one cluster's slices of one service have in common.
#[derive(Clone, Copy, Debug)]
pub struct SliceCopier<'a> {
    /// The service.
    pub name: &'a ServiceName,
    /// The cluster whose slices are copied.
    pub source: &'a ClusterId,
    /// The cluster that imports.
    pub importer: &'a ClusterId,
    /// The merged exports.
    pub merged: &'a Merged,
    /// The addresses that endpoints of the cluster can have.
    pub rules: &'a Arc<EndpointRules>,
    /// Whether the import has a derived Service.
    pub has_derived_service: bool,
    /// The mailbox that the slices are from.
    pub mailbox: u32,
}

impl SliceCopier<'_> {
    /// The rules that decide the content of all copies.
    pub fn rules(&self) -> CopyRules {
        CopyRules {
            name: self.name.clone(),
            source: self.source.clone(),
            importer: self.importer.clone(),
            has_derived_service: self.has_derived_service,
            has_zone_hints: self.has_zone_hints(),
            is_headless: self.is_headless(),
            ports: self.contribution().map(|of| of.ports.clone()).unwrap_or_default(),
            endpoints: Arc::clone(self.rules),
        }
    }

    /// The stamp of the copy of a slice.
    pub const fn stamp(&self, slice: &SourceSlice) -> Stamp {
        slice.stamp.of(self.mailbox)
    }

    /// Whether the import has the slice's family, and the cluster contributes to it.
    pub fn takes(&self, slice: &SourceSlice) -> bool {
        self.contribution().is_some() && self.merged.spec.ip_families.contains(&slice.family)
    }

    /// Whether conflicts have taken all ports of a slice: its copy leads nobody to its endpoints.
    pub fn leads_nowhere(&self, slice: &SourceSlice) -> bool {
        let has_none = self.contribution().is_none_or(|of| of.ports.is_empty());
        has_none && !(self.is_headless() && slice.ports.is_empty())
    }

    fn contribution(&self) -> Option<&Contribution> {
        self.merged.contributions.get(self.source)
    }

    fn has_zone_hints(&self) -> bool {
        self.merged.spec.prefers_same_zone()
    }

    fn is_headless(&self) -> bool {
        self.merged.spec.service_type == ServiceType::Headless
    }

    /// The copy of one slice, and the number of rejected endpoints by reason.
    pub fn copy(&self, slice: &SourceSlice) -> (ImportedSlice, BTreeMap<Rejection, usize>) {
        let mut rejected = BTreeMap::new();
        let endpoints =
            slice.endpoints.iter().filter(|endpoint| self.accepts(endpoint, slice, &mut rejected));
        let copy = ImportedSlice {
            service: self.name.clone(),
            name: slice_name(self.name, self.source, &slice.name),
            cluster: self.source.clone(),
            source_name: Arc::clone(&slice.name),
            source_generation: slice.generation,
            family: slice.family,
            ports: self.reached_ports(slice),
            endpoints: endpoints.map(|endpoint| self.copy_endpoint(endpoint)).collect(),
            has_zone_hints: self.has_zone_hints(),
            has_derived_service: self.has_derived_service,
            trigger_time: slice.trigger_time.clone(),
            stamp: self.stamp(slice),
        };
        (copy, rejected)
    }

    fn accepts(
        &self,
        endpoint: &Endpoint,
        slice: &SourceSlice,
        rejected: &mut BTreeMap<Rejection, usize>,
    ) -> bool {
        let is_of_family = super::IpFamily::of(endpoint.address) == slice.family;
        let rejection = if is_of_family {
            self.rules.rejection(endpoint.address)
        } else {
            Some(Rejection::NoPodAddress)
        };
        rejection.inspect(|rejection| *rejected.entry(*rejection).or_default() += 1).is_none()
    }

    /// Host names have a meaning for headless services alone.
    fn copy_endpoint(&self, endpoint: &Endpoint) -> Endpoint {
        let is_own = self.source == self.importer;
        let endpoint = if is_own { endpoint.clone() } else { endpoint.without_node() };
        Endpoint { hostname: endpoint.hostname.filter(|_| self.is_headless()), ..endpoint }
    }

    /// The ports that clients reach. A port that lost a conflict shares its name or number with another port, whose clients
    /// would reach it.
    fn reached_ports(&self, slice: &SourceSlice) -> Vec<super::SlicePort> {
        let is_reached = |port: &&super::SlicePort| {
            self.contribution().is_some_and(|of| of.ports.contains(&port.name))
        };
        slice.ports.iter().filter(is_reached).cloned().collect()
    }
}

/// `<service>-<cluster>-<hash>`: at most 63 + 63 + 10 characters and two dashes. It depends on names alone, so
/// a copy keeps its name when the controller restarts.
pub fn slice_name(service: &ServiceName, source: &ClusterId, slice: &str) -> Arc<str> {
    // A `/` is in none of the names. Without it, a-b of c would be a of b-c.
    let hash = Sha256::digest(format!("{}/{source}/{slice}", service.name()).as_bytes());
    let mut name = format!("{}-{source}-", service.name());
    for byte in hash.iter().take(5) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_stable_and_distinct() {
        let long = "x".repeat(63);
        let copy = |service: &str, cluster: &str, slice: &str| {
            let service = ServiceName::new("shop", service).expect("a name");
            slice_name(&service, &cluster.parse().expect("an id"), slice)
        };
        // The names are in clusters: another one would replace every slice.
        assert_eq!(&*copy("web", "c1", "web-abcde"), "web-c1-e76973f8ab");
        assert!(copy(&long, &long, &"y".repeat(253)).len() <= 253);
        assert_ne!(copy("a-b", "c", "s"), copy("a", "b-c", "s"));
        assert_ne!(copy("web", "c1", "s"), copy("web", "c1", "t"));
    }
}
