//! Whether this node serves an import at all.

use std::{fmt::Write as _, net::IpAddr, sync::Arc};

use super::coverage::Coverage;
use crate::model::{LeftAloneReason, NodeContext, ServiceImport, ServiceType};

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
        let message = "headless: left to DNS; to get a ClusterSetIP, export a Service that has a \
                       ClusterIP";
        return left(LeftAloneReason::Headless, message.to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{desired::ip_family::IpFamily, model::fixture::import};

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
            DerivedService, Headless, NoClusterSetIp, NotPublished, Record, SlicesIncomplete,
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
}
