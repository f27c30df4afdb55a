//! The claim of one import: the VIPs and ports that it asks for, checked by its own fields alone.

use std::net::IpAddr;

use super::{
    affinity,
    coverage::Coverage,
    eligibility::{self, LeftAlone},
    name,
    port::{self, Port},
    problem::ObjectProblem,
    traffic_policy::{LocalNode, TrafficPolicy},
    vip,
};
use crate::model::{FrontendId, NodeContext, ServiceImport};

/// The valid part of what an import asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// Never empty; in the import's order, like `ports`.
    pub(super) vips: Vec<IpAddr>,
    pub(super) ports: Vec<Port>,
    pub(super) affinity_seconds: Option<u32>,
    pub(super) policy: TrafficPolicy,
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
) -> (ClaimResult, Vec<ObjectProblem>) {
    if let Some(why) = eligibility::why_left_alone(import, coverage) {
        return (ClaimResult::LeftAlone(why), vec![]);
    }
    let checks = name::check_import(&import.key)
        .and_then(|()| Ok((affinity::seconds(import)?, TrafficPolicy::of(import)?)));
    let (affinity_seconds, policy) = match checks {
        Ok(checked) => checked,
        Err(problem) => return (ClaimResult::Rejected, vec![problem]),
    };
    let (vips, mut problems) = vip::vips(&import.ips, node);
    if vips.is_empty() {
        return (ClaimResult::Rejected, problems);
    }
    let (ports, port_problems) = port::ports(&import.ports);
    problems.extend(port_problems);
    if policy == TrafficPolicy::Local {
        problems.extend(LocalNode::of(node).err());
    }
    (ClaimResult::Claimed(Claim { vips, ports, affinity_seconds, policy }), problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RejectionReason, fixture::import};

    fn evaluated(import: &ServiceImport) -> (ClaimResult, Vec<RejectionReason>) {
        let (result, problems) = evaluate(import, &Coverage::Complete, &NodeContext::default());
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
            matches!(result, ClaimResult::Claimed(claim) if claim.policy == TrafficPolicy::Local)
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
