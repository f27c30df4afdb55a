//! A ServiceImport as this cluster should have it, its derived Service for Gateway implementations that lead to Services
//! alone, and its state in one word.

use std::{collections::BTreeSet, net::IpAddr};

use mcs_kube::{
    Tiers,
    reasons::{ImportState, Reason},
};
use sha2::{Digest as _, Sha256};

use super::{
    ClusterId, Condition, ConditionStatus, ConditionType, ServiceName, ServiceObject, ServicePort,
    ServiceSpec, Wanted, WantedImport, condition::differ_in_words,
};

/// A ServiceImport without its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// `metadata`.
    pub name: ServiceName,
    /// `spec.ips`, one for each entry of `spec.ip_families` and in the same order. A headless import has none.
    pub ips: Vec<IpAddr>,
    /// What the exports agree on.
    pub spec: ServiceSpec,
    /// Whether an annotation names the derived Service.
    pub has_derived_service: bool,
    /// The results of the cluster selectors, if there are any: an annotation, whatever fields the definition has.
    pub tiers: Option<Tiers>,
}

/// `status` of a ServiceImport. It has no times: a change of an import costs every node of the cluster a full
/// evaluation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportStatus {
    /// `clusters`.
    pub clusters: BTreeSet<ClusterId>,
    /// `endpointSliceObjects`; absent until all slices are written.
    pub endpoint_slice_objects: Option<EndpointSliceObjects>,
    /// `conditions`.
    pub conditions: Vec<Condition>,
    /// `clusterSelectorResults`, if the definition has it (KEP-5939).
    pub tiers: Option<Tiers>,
}

impl ImportStatus {
    /// The condition of this type.
    pub fn condition(&self, condition_type: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.condition_type == condition_type)
    }

    /// Whether only the words of conditions differ.
    pub fn differs_in_words(&self, other: &Self) -> bool {
        self.clusters == other.clusters
            && self.endpoint_slice_objects == other.endpoint_slice_objects
            && self.tiers == other.tiers
            && differ_in_words(&self.conditions, &other.conditions)
    }
}

/// `status.endpointSliceObjects` of a ServiceImport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointSliceObjects {
    /// The cluster holds slices of the service.
    Present,
}

impl EndpointSliceObjects {
    /// The value of the field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "Present",
        }
    }
}

impl Wanted {
    /// The state of the service. `None`: there is nothing to import.
    pub fn state(&self) -> Option<ImportState> {
        let status = match &self.import {
            // The clusters that export it are told.
            WantedImport::Absent if self.lacks_namespace => return Some(ImportState::NoNamespace),
            _ if self.refused.told(ServiceObject::is_of_import).is_some() => {
                return Some(ImportState::Refused);
            }
            WantedImport::Absent => return None,
            WantedImport::LeftAlone => return Some(ImportState::LeftAlone),
            WantedImport::Present(_, status) => status,
        };
        let failing = status.conditions.iter().find(|one| {
            one.condition_type == ConditionType::Ready && one.status != ConditionStatus::True
        });
        Some(match failing.map(|ready| &ready.reason) {
            None if self.conflicts.is_empty() => ImportState::Ready,
            None if self.loses_endpoints() => ImportState::EndpointsUnused,
            None => ImportState::Conflict,
            Some(why) if *why == Reason::AddressShared => ImportState::AddressShared,
            Some(why) if *why == Reason::AddressInServiceRange => {
                ImportState::AddressInServiceRange
            }
            Some(why) if *why == Reason::IPFamilyNotSupported => ImportState::FamilyNotSupported,
            Some(_) => ImportState::Pending,
        })
    }
}

/// The name by the convention of the reference implementation of KEP-1645 (`controllers/common.go` of mcs-api).
pub fn derived_name(import: &ServiceName) -> String {
    let hash = Sha256::digest(format!("{}/{}", import.namespace(), import.name()).as_bytes());
    let bits = hash.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let digits = (1..=10).map(|place| bits >> (64 - 5 * place) & 31);
    let digits = digits.filter_map(|digit| char::from_digit(u32::try_from(digit).ok()?, 32));
    "derived-".chars().chain(digits).collect()
}

/// The ports of the derived Service. A Service with several ports names each.
pub fn derived_ports(import: &Import) -> Vec<ServicePort> {
    let ports = &import.spec.ports;
    let is_possible = |port: &&ServicePort| ports.len() == 1 || !port.name.is_empty();
    ports.iter().filter(is_possible).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::{name, port, spec};

    #[test]
    fn the_name_is_that_of_the_reference_implementation() {
        assert_eq!(derived_name(&name("shop/cart")), "derived-bsqa4s8pq5");
    }

    #[test]
    fn one_of_several_ports_needs_a_name() {
        let ports = |ports: Vec<ServicePort>| {
            let import = Import {
                name: name("shop/web"),
                ips: vec![],
                spec: super::super::ServiceSpec { ports, ..spec() },
                has_derived_service: true,
                tiers: None,
            };
            derived_ports(&import).len()
        };
        assert_eq!(ports(vec![port("", 80)]), 1);
        assert_eq!(ports(vec![port("", 80), port("https", 443)]), 1);
    }
}
