//! Whether this node serves an import at all, by its fields and by which of its slices are here.

use std::{collections::BTreeSet, fmt::Write as _, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use mcs_kube::reasons::Coded as _;

use super::fields::IpFamily;
use crate::core::model::{
    EndpointAddress, EndpointSlice, LeftAloneReason, NodeContext, ServiceImport, ServiceType,
};

/// How many missing clusters a message names.
const NAMED_CLUSTERS: usize = 3;

/// An import that this node does not serve on purpose. It then claims nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeftAlone {
    pub(super) reason: LeftAloneReason,
    /// Why, and what to do to hand it to the agent.
    pub(super) message: String,
}

/// The reason why this node does not serve a ServiceImport, whatever its addresses are.
///
/// `endpointSliceObjects: Absent` says that the endpoints are not in slices here (KEP-1645,
/// "EndpointSlice"). kube-proxy serves an import that has a derived Service and no imported slices.
/// Some controllers mirror the slices of their own cluster alone and do not write that status. The derived
/// Service leads to all clusters then.
pub(super) fn why_left_alone(import: &ServiceImport, coverage: &Coverage) -> Option<LeftAlone> {
    let left = |reason, message| Some(LeftAlone { reason, message });
    let remedy = &import.remedy;
    if let Some(service) = import.record_of.as_deref() {
        let message = format!(
            "a record of the service {service}, which its controller keeps; nothing to do: the agent serves \
             the ServiceImport of that name"
        );
        return left(LeftAloneReason::Record, message);
    }
    if import.service_type == ServiceType::Headless {
        let reason = LeftAloneReason::Headless;
        return left(reason, format!("headless: left to DNS; {}", reason.advice()));
    }
    if import.endpoint_slice_objects.as_deref() == Some("Absent") {
        let message = format!(
            "status.endpointSliceObjects is Absent: its endpoints are not published here; {remedy}"
        );
        return left(LeftAloneReason::NotPublished, message);
    }
    if let Some(derived) = import.derived_service() {
        match coverage {
            Coverage::NoSlices => {
                let message =
                    format!("no EndpointSlice: left to the derived Service {derived:?}; {remedy}");
                return left(LeftAloneReason::DerivedService, message);
            }
            Coverage::Missing(clusters) => {
                let message = format!(
                    "no EndpointSlice of {}, which status.clusters names: left to the derived Service \
                     {derived:?}; {remedy}",
                    named(clusters)
                );
                return left(LeftAloneReason::SlicesIncomplete, message);
            }
            Coverage::MissingFamily(family)
                if import.endpoint_slice_objects.as_deref() != Some("Present") =>
            {
                let message = format!(
                    "no {} EndpointSlice for a ClusterSetIP of that family: left to the derived Service \
                     {derived:?}; {remedy}",
                    family.name()
                );
                return left(LeftAloneReason::SlicesIncomplete, message);
            }
            Coverage::OfServices(ip) => {
                let remedy = import.pod_remedy.unwrap_or(remedy);
                let message = format!(
                    "its endpoint {ip} is in the Service range: left to the derived Service {derived:?}; {remedy}"
                );
                return left(LeftAloneReason::ClusterIpEndpoints, message);
            }
            Coverage::MissingFamily(_) | Coverage::Complete => {}
        }
    }
    if import.ips.is_empty() {
        let message = "no ClusterSetIP yet: spec.ips is empty; nothing to do if its controller assigns \
                       one";
        return left(LeftAloneReason::NoClusterSetIp, message.to_owned());
    }
    None
}

/// Whether an import claims only the VIPs that no Service of the cluster can have.
///
/// Some controllers write imports without imported slices. A Service of the cluster has
/// the VIP, and kube-proxy serves it, refusals included. Nothing in the import says so.
pub(super) fn yields_to_services(import: &ServiceImport, has_slices: bool) -> bool {
    !has_slices && import.endpoint_slice_objects.as_deref() != Some("Present")
}

/// The reason why an import without slices is left alone: a Service can have each of its VIPs, of which this is
/// the first.
pub(super) fn service_range(vip: IpAddr, node: &NodeContext) -> LeftAlone {
    let (place, flag) = match node.facts.service_ranges {
        Some(_) => ("is in the Service range", ""),
        None => ("can be in the Service range, which is unknown", "set --service-cidr; or "),
    };
    let message = format!(
        "no EndpointSlice, and ClusterSetIP {vip} {place}: left to the Service with that address; to hand it \
         to the agent, {flag}let its controller publish EndpointSlices with the label \
         multicluster.kubernetes.io/service-name"
    );
    LeftAlone { reason: LeftAloneReason::ServiceRange, message }
}

/// `cluster "west"`, or several, of which a few are named.
fn named(clusters: &[Arc<str>]) -> String {
    let mut text = String::from(if clusters.len() == 1 { "cluster " } else { "clusters " });
    for (index, cluster) in clusters.iter().take(NAMED_CLUSTERS).enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{cluster:?}");
    }
    let others = clusters.len().saturating_sub(NAMED_CLUSTERS);
    if others > 0 {
        let _ = write!(text, " and {others} more");
    }
    text
}

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
    use crate::core::model::fixture::{import, slice};

    fn web() -> ServiceImport {
        import("shop/web").ip("10.0.0.1")
    }

    fn derived(name: &str) -> ServiceImport {
        ServiceImport { derived_service: Some(name.to_owned()), ..web() }
    }

    fn missing(clusters: &[&str]) -> Coverage {
        Coverage::Missing(clusters.iter().copied().map(Arc::from).collect())
    }

    #[test]
    fn leaves_alone_what_others_serve() {
        use LeftAloneReason::{
            ClusterIpEndpoints, DerivedService, Headless, NoClusterSetIp, NotPublished, Record,
            SlicesIncomplete,
        };
        let headless = ServiceImport { service_type: ServiceType::Headless, ..web() };
        let published =
            |value: &str| ServiceImport { endpoint_slice_objects: Some(value.to_owned()), ..web() };
        let record = ServiceImport { record_of: Some("nginx".into()), ..web() };
        for (import, coverage, expected) in [
            (web(), Coverage::Complete, None),
            (web(), Coverage::NoSlices, None),
            (record.clone(), Coverage::Complete, Some(Record)),
            (record, Coverage::NoSlices, Some(Record)),
            (headless, Coverage::Complete, Some(Headless)),
            (published("Absent"), Coverage::Complete, Some(NotPublished)),
            (published("Present"), Coverage::NoSlices, None),
            (derived("derived-abc"), Coverage::NoSlices, Some(DerivedService)),
            (derived("derived-abc"), Coverage::Complete, None),
            (derived("derived-abc"), missing(&["west"]), Some(SlicesIncomplete)),
            (
                derived("derived-abc"),
                Coverage::OfServices("10.96.0.9".parse().unwrap()),
                Some(ClusterIpEndpoints),
            ),
            (derived(""), Coverage::NoSlices, None),
            (derived(""), missing(&["west"]), None),
            (derived("derived-abc"), Coverage::MissingFamily(IpFamily::V6), Some(SlicesIncomplete)),
            (web(), Coverage::MissingFamily(IpFamily::V6), None),
            (import("shop/web"), Coverage::Complete, Some(NoClusterSetIp)),
        ] {
            let why = why_left_alone(&import, &coverage);
            assert_eq!(why.as_ref().map(|why| why.reason), expected, "{import:?}");
            if let Some(why) = why {
                assert!(why.message.contains("; "), "it says what to do: {}", why.message);
            }
        }
    }

    #[test]
    fn names_a_few_of_the_missing_clusters() {
        for (clusters, expected) in [
            (vec!["c2"], "no EndpointSlice of cluster \"c2\", "),
            (vec!["c2", "c3", "c4"], "no EndpointSlice of clusters \"c2\", \"c3\", \"c4\", "),
            (vec!["c2", "c3", "c4", "c5"], "clusters \"c2\", \"c3\", \"c4\" and 1 more, "),
        ] {
            let why = why_left_alone(&derived("derived-abc"), &missing(&clusters)).unwrap();
            assert!(why.message.contains(expected), "{}", why.message);
        }
    }

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
