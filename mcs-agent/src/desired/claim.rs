//! The claim of one import: the VIPs and ports that it asks for, checked by its own fields alone.

use std::net::IpAddr;

use super::{
    affinity,
    coverage::Coverage,
    eligibility::{self, LeftAlone},
    name,
    port::{self, Port},
    preference::Preferences,
    problem::ObjectProblem,
    vip,
};
use crate::model::{DesiredState, FrontendId, NodeContext, ServiceImport};

/// The valid part of what an import asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// Never empty; in the import's order, like `ports`.
    pub(super) vips: Vec<IpAddr>,
    /// Valid VIPs that are left to the Services of the cluster, since the import has no slices.
    pub(super) left_vips: Vec<IpAddr>,
    /// Whether the import has slices.
    pub(super) has_slices: bool,
    pub(super) ports: Vec<Port>,
    pub(super) affinity_seconds: Option<u32>,
    pub(super) preferences: Preferences,
}

/// A frontend and the port of the import that asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClaimedFrontend {
    pub(super) id: FrontendId,
    /// Index into [`Claim::ports`].
    pub(super) port: usize,
}

impl Claim {
    /// Every frontend, in the import's order.
    pub(super) fn frontends(&self) -> impl Iterator<Item = ClaimedFrontend> {
        self.vips.iter().flat_map(|ip| self.frontends_of(*ip))
    }

    /// The frontends of one VIP, in the import's order.
    pub(super) fn frontends_of(&self, ip: IpAddr) -> impl Iterator<Item = ClaimedFrontend> {
        self.ports.iter().enumerate().map(move |(index, port)| {
            let id = FrontendId { ip, port: port.number, protocol: port.protocol };
            ClaimedFrontend { id, port: index }
        })
    }
}

/// The result for one import, before the other imports and its endpoints count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ClaimResult {
    /// This node does not serve it, for this reason.
    LeftAlone(LeftAlone),
    /// Nothing of it can be used.
    Rejected,
    Claimed(Claim),
}

/// Checks an import by its own fields.
///
/// An invalid name, affinity or traffic policy rejects the import: clients would get something else
/// than its author asked for, and nobody would notice. An invalid VIP or port is rejected alone.
pub(super) fn evaluate(
    import: &ServiceImport,
    coverage: &Coverage,
    node: &NodeContext,
    in_force: &DesiredState,
) -> (ClaimResult, Vec<ObjectProblem>) {
    if let Some(why) = eligibility::why_left_alone(import, coverage) {
        return (ClaimResult::LeftAlone(why), vec![]);
    }
    let checks = name::check_import(&import.key)
        .and_then(|()| Ok((affinity::seconds(import)?, Preferences::of(import, node)?)));
    let (affinity_seconds, (preferences, preference_problems)) = match checks {
        Ok(checked) => checked,
        Err(problem) => return (ClaimResult::Rejected, vec![problem]),
    };
    let (vips, mut problems) = vip::vips(import, node, in_force);
    let has_slices = coverage.has_slices();
    let (left_vips, vips) = if eligibility::yields_to_services(import, has_slices) {
        vips.into_iter().partition(|ip| node.may_be_service(*ip))
    } else {
        (vec![], vips)
    };
    if vips.is_empty() {
        let result = left_vips.first().map_or(ClaimResult::Rejected, |vip| {
            ClaimResult::LeftAlone(eligibility::service_range(*vip, node))
        });
        return (result, problems);
    }
    let (ports, port_problems) = port::ports(&import.ports);
    problems.extend(port_problems);
    problems.extend(preference_problems);
    let claim = Claim { vips, left_vips, has_slices, ports, affinity_seconds, preferences };
    (ClaimResult::Claimed(claim), problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        desired::traffic_policy::TrafficPolicy,
        model::{
            LeftAloneReason, RejectionReason,
            fixture::{import, knowing},
        },
    };

    fn evaluated_on(
        import: &ServiceImport,
        coverage: &Coverage,
        node: &NodeContext,
    ) -> (ClaimResult, Vec<ObjectProblem>) {
        evaluate(import, coverage, node, &DesiredState::default())
    }

    fn evaluated(import: &ServiceImport) -> (ClaimResult, Vec<RejectionReason>) {
        let (result, problems) = evaluated_on(import, &Coverage::Complete, &NodeContext::default());
        (result, problems.iter().map(|r| r.reason).collect())
    }

    fn web() -> ServiceImport {
        import("shop/web").ip("10.0.0.1").port("http", 80)
    }

    #[test]
    fn an_invalid_import_claims_nothing() {
        let affinity = Some("Sometimes".to_owned());
        let policy = Some("Nearby".to_owned());
        let long = "n".repeat(64);
        for (import, reason) in [
            (
                ServiceImport { session_affinity: affinity, ..web() },
                RejectionReason::AffinityInvalid,
            ),
            (
                ServiceImport { internal_traffic_policy: policy, ..web() },
                RejectionReason::TrafficPolicyInvalid,
            ),
            (import(&format!("shop/{long}")).ip("10.0.0.1"), RejectionReason::NameTooLong),
            (import("shop/web").ip("127.0.0.1").port("http", 80), RejectionReason::VipForbidden),
        ] {
            assert_eq!(evaluated(&import), (ClaimResult::Rejected, vec![reason]));
        }
    }

    #[test]
    fn what_is_invalid_alone_leaves_the_rest() {
        let import = web().ip("127.0.0.1").port("none", 0);
        let (result, reasons) = evaluated(&import);
        assert_eq!(result, evaluated(&web()).0);
        assert_eq!(reasons, [RejectionReason::VipForbidden, RejectionReason::PortInvalid]);
    }

    /// The VIPs that are claimed and those that are left to Services, or `None` if the import is left alone.
    fn vips_without_slices(
        import: &ServiceImport,
        ranges: Option<&[&str]>,
    ) -> Option<(usize, usize)> {
        let ranges = ranges.map(|ranges| ranges.iter().map(|one| one.parse().unwrap()).collect());
        let node = knowing(NodeContext::default(), |facts| facts.service_ranges = ranges);
        match evaluated_on(import, &Coverage::NoSlices, &node).0 {
            ClaimResult::Claimed(claim) => Some((claim.vips.len(), claim.left_vips.len())),
            ClaimResult::LeftAlone(why) => {
                assert_eq!(why.reason, LeftAloneReason::ServiceRange);
                assert_eq!(
                    why.message.contains("--service-cidr"),
                    node.facts.service_ranges.is_none()
                );
                None
            }
            ClaimResult::Rejected => Some((0, 0)),
        }
    }

    #[test]
    fn a_vip_without_slices_is_claimed_only_where_no_service_can_have_it() {
        let outside: &[&str] = &["10.96.0.0/16", "fd00::/108"];
        let present = Some("Present".to_owned());
        for (import, ranges, expected) in [
            (web(), None, None),
            (web(), Some(outside), Some((1, 0))),
            (web(), Some(&["10.0.0.0/24"][..]), None),
            (web().ip("10.96.0.1"), Some(outside), Some((1, 1))),
            (web().ip("fd00::1"), Some(outside), Some((1, 1))),
            (ServiceImport { endpoint_slice_objects: present, ..web() }, None, Some((1, 0))),
            (import("shop/web").ip("127.0.0.1"), None, Some((0, 0))),
        ] {
            assert_eq!(vips_without_slices(&import, ranges), expected, "{import:?} {ranges:?}");
        }
    }

    #[test]
    fn with_slices_a_vip_in_the_service_range_is_claimed() {
        let range = ["10.0.0.0/24".parse().unwrap()].into();
        let node = knowing(NodeContext::default(), |facts| facts.service_ranges = Some(range));
        let (result, _) = evaluated_on(&web(), &Coverage::Complete, &node);
        assert!(matches!(result, ClaimResult::Claimed(claim) if claim.left_vips.is_empty()));
    }

    #[test]
    fn a_vip_is_claimed_without_a_port() {
        let (result, reasons) = evaluated(&import("shop/web").ip("10.0.0.1"));
        assert!(matches!(result, ClaimResult::Claimed(claim) if claim.vips.len() == 1));
        assert_eq!(reasons, []);
    }

    #[test]
    fn local_without_identity_is_claimed_all_the_same() {
        let local = Some("Local".to_owned());
        let (result, reasons) =
            evaluated(&ServiceImport { internal_traffic_policy: local, ..web() });
        assert!(
            matches!(result, ClaimResult::Claimed(claim) if claim.preferences == TrafficPolicy::Local.into())
        );
        assert_eq!(reasons, [RejectionReason::TrafficPolicyNeedsIdentity]);
    }

    #[test]
    fn what_is_left_alone_is_not_checked() {
        let affinity = Some("Sometimes".to_owned());
        let absent = Some("Absent".to_owned());
        let (result, reasons) = evaluated(&ServiceImport {
            session_affinity: affinity,
            endpoint_slice_objects: absent,
            ..web()
        });
        assert!(matches!(result, ClaimResult::LeftAlone(_)));
        assert_eq!(reasons, []);
    }
}
