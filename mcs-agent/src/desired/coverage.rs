//! Which of an import's slices are here.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::ip_family::IpFamily;
use crate::model::{EndpointAddress, EndpointSlice, NodeContext, ServiceImport};

/// Which of an import's slices are here. A slice without endpoints counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Coverage {
    /// None.
    NoSlices,
    /// All, as far as the import and its slices tell.
    Complete,
    /// None of this family, which a VIP has.
    MissingFamily(IpFamily),
    /// Not those of these clusters, which `status.clusters` names. Never empty.
    Missing(Vec<Arc<str>>),
    /// They lead to Services instead of pods: this endpoint is the ClusterIP of one.
    OfServices(IpAddr),
}

impl Coverage {
    /// Compares the source clusters of the slices with [`ServiceImport::clusters`], and their families with
    /// those of the VIPs.
    ///
    /// A slice without a source cluster can be of any, and one of a cluster that the import does not
    /// name shows that its status lags. Then no cluster counts as missing.
    pub(super) fn of<'a>(
        import: &ServiceImport,
        slices: impl Iterator<Item = &'a EndpointSlice>,
        node: &NodeContext,
    ) -> Self {
        let (mut some, mut families, mut here) = (false, Families::default(), BTreeSet::new());
        let service_ranges =
            node.facts.service_ranges.as_ref().filter(|_| import.pod_remedy.is_some());
        let mut clusters_are_known = !import.clusters.is_empty();
        for slice in slices {
            some = true;
            if let Some(ip) = service_ranges.and_then(|ranges| first_within(slice, ranges)) {
                return Self::OfServices(ip);
            }
            families.insert(&slice.address_type);
            clusters_are_known &= import.clusters.binary_search(&slice.source_cluster).is_ok();
            if clusters_are_known {
                here.insert(&*slice.source_cluster);
            }
        }
        if !some {
            return Self::NoSlices;
        }
        if clusters_are_known {
            let missing = import.clusters.iter().filter(|cluster| !here.contains(&***cluster));
            let missing: Vec<Arc<str>> = missing.cloned().collect();
            if !missing.is_empty() {
                return Self::Missing(missing);
            }
        }
        families.missing(import).map_or(Self::Complete, Self::MissingFamily)
    }

    /// Whether the import has slices.
    pub(super) fn has_slices(&self) -> bool {
        *self != Self::NoSlices
    }
}

/// The first endpoint in one of the ranges.
fn first_within(slice: &EndpointSlice, ranges: &BTreeSet<IpNet>) -> Option<IpAddr> {
    let mut ips = slice.endpoints.iter().filter_map(|endpoint| match endpoint.address {
        EndpointAddress::Ip(ip) => Some(ip),
        EndpointAddress::Absent | EndpointAddress::Other(_) => None,
    });
    ips.find(|ip| ranges.iter().any(|range| range.contains(ip)))
}

/// The families of slices.
#[derive(Clone, Copy, Default)]
struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    fn insert(&mut self, address_type: &str) {
        match IpFamily::of_slice(address_type) {
            Ok(IpFamily::V4) => self.v4 = true,
            Ok(IpFamily::V6) => self.v6 = true,
            Err(_) => {}
        }
    }

    /// The family of a VIP that no slice has.
    fn missing(self, import: &ServiceImport) -> Option<IpFamily> {
        if self.v4 && self.v6 {
            return None;
        }
        let mut vips = import.ips.iter().filter_map(|ip| ip.parse().ok()).map(IpFamily::of);
        vips.find(|family| match family {
            IpFamily::V4 => !self.v4,
            IpFamily::V6 => !self.v6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{import, slice};

    #[test]
    fn clusters_without_a_slice_are_missing() {
        let missing =
            |names: &[&str]| Coverage::Missing(names.iter().copied().map(Arc::from).collect());
        for (clusters, slices, expected) in [
            (vec![], vec![], Coverage::NoSlices),
            (vec!["a", "b"], vec![], Coverage::NoSlices),
            (vec![], vec!["a"], Coverage::Complete),
            (vec!["a", "b"], vec!["a"], missing(&["b"])),
            (vec!["a", "b", "c"], vec!["b", "b"], missing(&["a", "c"])),
            (vec!["a", "b"], vec!["b", "a"], Coverage::Complete),
            (vec!["a", "b"], vec!["", ""], Coverage::Complete),
            (vec!["a", "b"], vec!["a", ""], Coverage::Complete),
            (vec!["a", "b"], vec!["a", "c"], Coverage::Complete),
        ] {
            let import = ServiceImport {
                clusters: clusters.iter().copied().map(Arc::from).collect(),
                ..import("shop/web")
            };
            let slices: Vec<EndpointSlice> = slices
                .into_iter()
                .map(|cluster| slice("shop/web-a", "web").cluster(cluster))
                .collect();
            assert_eq!(
                Coverage::of(&import, slices.iter(), &NodeContext::default()),
                expected,
                "{clusters:?} {slices:?}"
            );
        }
    }
    #[test]
    fn a_family_of_a_vip_without_a_slice_is_missing() {
        let of = |families: &[&str]| {
            let import = import("shop/web").ip("10.0.0.1").ip("fd00::1");
            let slices: Vec<EndpointSlice> = families
                .iter()
                .map(|family| EndpointSlice {
                    address_type: (*family).to_owned(),
                    ..slice("shop/web-a", "web")
                })
                .collect();
            Coverage::of(&import, slices.iter(), &NodeContext::default())
        };
        assert_eq!(of(&["IPv4"]), Coverage::MissingFamily(IpFamily::V6));
        assert_eq!(of(&["IPv6", "FQDN"]), Coverage::MissingFamily(IpFamily::V4));
        assert_eq!(of(&["IPv6", "IPv4"]), Coverage::Complete);
    }
}
