//! The claim of one import: the VIPs and ports that it asks for, checked by its own fields alone.

use std::net::IpAddr;

use super::{
    eligibility::{self, Coverage, LeftAlone},
    fields::{self, ObjectProblem, Port},
    preference::{Preferences, Wishes},
    vip,
};
use crate::core::model::{DesiredState, FrontendId, NodeContext, ServiceImport};

/// The valid part of what an import asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// Never empty; in the import's order, like `ports`.
    pub(super) vips: Vec<IpAddr>,
    /// Valid VIPs that are left to the Services of the cluster, since the import has no slices.
    pub(super) left_vips: Vec<IpAddr>,
    /// Whether the import has slices.
    pub(super) has_slices: bool,
    pub(super) ports: Vec<Port>,
    pub(super) affinity_seconds: Option<u32>,
    pub(super) wishes: Wishes,
    /// Whether the import names a derived Service.
    pub(super) has_derived_service: bool,
    /// Of the import itself, its slices aside.
    pub(super) problems: Vec<ObjectProblem>,
    /// What the import gets of its claim. Empty until the claims of all imports are known.
    pub(super) assigned: Assignment,
}

/// The frontends that one import gets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Assignment {
    pub(super) frontends: Vec<ClaimedFrontend>,
    /// Whether a VIP is served because of this import. A VIP does not count if other imports hold
    /// every frontend that this import claims on it: it would be served without this import too.
    pub(super) has_vip: bool,
    /// Whether other imports claim one of its frontends too. Who gets it depends on who has slices.
    pub(super) is_contested: bool,
    /// Whether other imports claim one of its VIPs too.
    pub(super) shares_vips: bool,
}

/// An import and its claim.
pub(super) type Claimant<'a> = (&'a ServiceImport, Claim);

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

/// An import that claims nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unclaimed {
    /// Why the agent does not serve it on purpose. `None`: nothing of it can be used.
    pub(super) left_alone: Option<LeftAlone>,
    pub(super) problems: Vec<ObjectProblem>,
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
    preferences: &Preferences,
) -> Result<Claim, Unclaimed> {
    if let Some(why) = eligibility::why_left_alone(import, coverage) {
        return Err(Unclaimed { left_alone: Some(why), problems: vec![] });
    }
    let (affinity_seconds, (wishes, wish_problems)) = fields::check_names(&import.key)
        .and_then(|()| {
            Ok((fields::affinity_seconds(import)?, Wishes::of(import, node, preferences)?))
        })
        .map_err(|problem| Unclaimed { left_alone: None, problems: vec![problem] })?;
    let (vips, mut problems) = vip::vips(import, node, in_force);
    let has_slices = coverage.has_slices();
    let (left_vips, vips): (Vec<_>, Vec<_>) = if eligibility::yields_to_services(import, has_slices)
    {
        vips.into_iter().partition(|ip| node.may_be_service(*ip))
    } else {
        (vec![], vips)
    };
    if vips.is_empty() {
        let left_alone = left_vips.first().map(|vip| eligibility::service_range(*vip, node));
        return Err(Unclaimed { left_alone, problems });
    }
    let (ports, port_problems) = fields::ports(&import.ports);
    problems.extend(port_problems);
    problems.extend(wish_problems);
    Ok(Claim {
        vips,
        left_vips,
        has_slices,
        ports,
        affinity_seconds,
        wishes,
        has_derived_service: import.derived_service().is_some(),
        problems,
        assigned: Assignment::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        model::{
            LeftAloneReason, RejectionReason,
            fixture::{import, knowing},
        },
        rules::topology::TrafficPolicy,
    };

    fn evaluated_on(
        import: &ServiceImport,
        coverage: &Coverage,
        node: &NodeContext,
    ) -> Result<Claim, Unclaimed> {
        let preferences = Preferences::default();
        evaluate(import, coverage, node, &DesiredState::default(), &preferences)
    }

    fn evaluated(import: &ServiceImport) -> Result<Claim, Unclaimed> {
        evaluated_on(import, &Coverage::Complete, &NodeContext::default())
    }

    fn reasons(problems: &[ObjectProblem]) -> Vec<RejectionReason> {
        problems.iter().map(|problem| problem.reason).collect()
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
            let unclaimed = evaluated(&import).unwrap_err();
            assert_eq!(unclaimed.left_alone, None);
            assert_eq!(reasons(&unclaimed.problems), [reason]);
        }
    }

    #[test]
    fn what_is_invalid_alone_leaves_the_rest() {
        let import = web().ip("127.0.0.1").port("none", 0);
        let claim = evaluated(&import).unwrap();
        let expected = [RejectionReason::VipForbidden, RejectionReason::PortInvalid];
        assert_eq!(reasons(&claim.problems), expected);
        assert_eq!(Claim { problems: vec![], ..claim }, evaluated(&web()).unwrap());
    }

    /// How many VIPs are claimed, and how many are left to Services, or `None` if the import is left alone.
    fn vips_without_slices(
        import: &ServiceImport,
        ranges: Option<&[&str]>,
    ) -> Option<(usize, usize)> {
        let ranges = ranges.map(|ranges| ranges.iter().map(|one| one.parse().unwrap()).collect());
        let node = knowing(NodeContext::default(), |facts| facts.service_ranges = ranges);
        match evaluated_on(import, &Coverage::NoSlices, &node) {
            Ok(claim) => Some((claim.vips.len(), claim.left_vips.len())),
            Err(Unclaimed { left_alone: Some(why), .. }) => {
                assert_eq!(why.reason, LeftAloneReason::ServiceRange);
                assert_eq!(
                    why.message.contains("--service-cidr"),
                    node.facts.service_ranges.is_none()
                );
                None
            }
            Err(Unclaimed { left_alone: None, .. }) => Some((0, 0)),
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
        let claim = evaluated_on(&web(), &Coverage::Complete, &node).unwrap();
        assert!(claim.left_vips.is_empty());
    }

    #[test]
    fn a_vip_is_claimed_without_a_port() {
        let claim = evaluated(&import("shop/web").ip("10.0.0.1")).unwrap();
        assert_eq!(claim.vips.len(), 1);
        assert_eq!(claim.problems, []);
    }

    #[test]
    fn local_without_identity_is_claimed_all_the_same() {
        let local = Some("Local".to_owned());
        let claim = evaluated(&ServiceImport { internal_traffic_policy: local, ..web() }).unwrap();
        assert_eq!(claim.wishes, TrafficPolicy::Local.into());
        assert_eq!(reasons(&claim.problems), [RejectionReason::TrafficPolicyNeedsIdentity]);
    }

    #[test]
    fn what_is_left_alone_is_not_checked() {
        let affinity = Some("Sometimes".to_owned());
        let absent = Some("Absent".to_owned());
        let unclaimed = evaluated(&ServiceImport {
            session_affinity: affinity,
            endpoint_slice_objects: absent,
            ..web()
        })
        .unwrap_err();
        assert!(unclaimed.left_alone.is_some());
        assert_eq!(unclaimed.problems, []);
    }
}
