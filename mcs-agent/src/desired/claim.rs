use std::net::IpAddr;

use super::{
    affinity, name,
    policy::{Identity, TrafficPolicy},
    port::{self, Port},
    refusal::Refusal,
    scope, vip,
};
use crate::model::{NodeContext, ServiceImport};

/// What an import asks of this node, as far as it may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// Never empty; in the import's order, like `ports`.
    pub(super) vips: Vec<IpAddr>,
    pub(super) ports: Vec<Port>,
    pub(super) affinity_seconds: Option<u32>,
    pub(super) policy: TrafficPolicy,
}

/// What an import is to this node, before others and its endpoints are looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Not ours, and why.
    LeftAlone(String),
    /// Nothing of it can be used.
    Rejected,
    Claimed(Claim),
}

/// Judges an import by what it says itself.
///
/// An import whose name, affinity or traffic policy is invalid is rejected as a whole: served any
/// other way than its author asked for, it would break silently. Everything else stands or falls
/// alone.
pub(super) fn judge(
    import: &ServiceImport,
    has_slices: bool,
    node: &NodeContext,
) -> (Verdict, Vec<Refusal>) {
    if let Some(why) = scope::left_alone(import, has_slices) {
        return (Verdict::LeftAlone(why), vec![]);
    }
    let checks = name::check_import(&import.key)
        .and_then(|()| Ok((affinity::seconds(import)?, TrafficPolicy::of(import)?)));
    let (affinity_seconds, policy) = match checks {
        Ok(checked) => checked,
        Err(refusal) => return (Verdict::Rejected, vec![refusal]),
    };
    let (vips, mut refusals) = vip::vips(&import.ips, node);
    if vips.is_empty() {
        return (Verdict::Rejected, refusals);
    }
    let (ports, refused) = port::ports(&import.ports);
    refusals.extend(refused);
    if policy == TrafficPolicy::Local {
        refusals.extend(Identity::of(node).err());
    }
    (Verdict::Claimed(Claim { vips, ports, affinity_seconds, policy }), refusals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RejectionReason, fixture::import};

    fn judged(import: &ServiceImport) -> (Verdict, Vec<RejectionReason>) {
        let (verdict, refusals) = judge(import, true, &NodeContext::default());
        (verdict, refusals.iter().map(|r| r.reason).collect())
    }

    fn web() -> ServiceImport {
        import("shop/web").ip("10.0.0.1").port("http", 80)
    }

    #[test]
    fn what_is_invalid_as_a_whole_claims_nothing() {
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
            assert_eq!(judged(&import), (Verdict::Rejected, vec![reason]));
        }
    }

    #[test]
    fn what_is_invalid_alone_leaves_the_rest() {
        let import = web().ip("127.0.0.1").port("none", 0);
        let (verdict, reasons) = judged(&import);
        assert_eq!(verdict, judged(&web()).0);
        assert_eq!(reasons, [RejectionReason::VipForbidden, RejectionReason::PortInvalid]);
    }

    #[test]
    fn a_vip_is_claimed_without_a_port() {
        let (verdict, reasons) = judged(&import("shop/web").ip("10.0.0.1"));
        assert!(matches!(verdict, Verdict::Claimed(claim) if claim.vips.len() == 1));
        assert_eq!(reasons, []);
    }

    #[test]
    fn local_without_identity_is_claimed_all_the_same() {
        let local = Some("Local".to_owned());
        let (verdict, reasons) = judged(&ServiceImport { internal_traffic_policy: local, ..web() });
        assert!(matches!(verdict, Verdict::Claimed(claim) if claim.policy == TrafficPolicy::Local));
        assert_eq!(reasons, [RejectionReason::TrafficPolicyNeedsIdentity]);
    }

    #[test]
    fn what_is_left_alone_is_not_judged() {
        let affinity = Some("Sometimes".to_owned());
        let absent = Some("Absent".to_owned());
        let (verdict, reasons) = judged(&ServiceImport {
            session_affinity: affinity,
            endpoint_slice_objects: absent,
            ..web()
        });
        assert!(matches!(verdict, Verdict::LeftAlone(_)));
        assert_eq!(reasons, []);
    }
}
