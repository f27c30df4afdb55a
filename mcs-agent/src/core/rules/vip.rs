//! The VIPs of an import.

use std::{collections::BTreeSet, net::IpAddr};

use super::fields::{ObjectProblem, forbidden, ipv4_mapped};
use crate::core::model::{DesiredState, NodeContext, RejectionReason, ServiceImport};

/// The addresses of `spec.ips` that can be VIPs on this node, in their order. Each other address is
/// rejected alone.
///
/// An address outside the ranges of ClusterSetIPs stays a VIP of an import that has it in force: a wrong flag takes no VIP away.
pub(super) fn vips(
    import: &ServiceImport,
    node: &NodeContext,
    in_force: &DesiredState,
) -> (Vec<IpAddr>, Vec<ObjectProblem>) {
    let ServiceImport { key, ips, .. } = import;
    let mut seen = BTreeSet::new();
    let mut vips = Vec::with_capacity(ips.len());
    let mut problems = Vec::new();
    for text in ips {
        let accepted = parse(text).and_then(|ip| {
            if seen.insert(ip) {
                check(ip, node, |ip| in_force.serves(key, ip))
            } else {
                Err(problem(RejectionReason::VipDuplicate, ip, "is listed twice"))
            }
        });
        match accepted {
            Ok(ip) => vips.push(ip),
            Err(problem) => problems.push(problem),
        }
    }
    (vips, problems)
}

fn parse(text: &str) -> Result<IpAddr, ObjectProblem> {
    let reason = RejectionReason::VipInvalid;
    let what = || format!("spec.ips entry {text:?} is not an IP address");
    let ip = text.parse().map_err(|_| ObjectProblem::advised(reason, what()))?;
    match ipv4_mapped(ip) {
        Some(v4) => Err(ObjectProblem::new(reason, format!("{}; write it as {v4}", what()))),
        None => Ok(ip),
    }
}

/// Whether the address can be a VIP on this node.
pub(super) fn is_allowed(ip: IpAddr, node: &NodeContext) -> bool {
    check(ip, node, |_| false).is_ok()
}

fn check(
    ip: IpAddr,
    node: &NodeContext,
    is_served: impl Fn(IpAddr) -> bool,
) -> Result<IpAddr, ObjectProblem> {
    if let Some(class) = forbidden(ip) {
        let why = format!("is {class}");
        return Err(problem(RejectionReason::VipForbidden, ip, &why));
    }
    if node.node_addresses.contains(&ip) {
        return Err(problem(RejectionReason::VipIsNode, ip, "is an address of this node"));
    }
    if node.facts.api_servers.contains(&ip) {
        let why = "is an address of the API server";
        return Err(problem(RejectionReason::VipIsApiServer, ip, why));
    }
    if let Some(range) = node.facts.pod_ranges.iter().find(|range| range.contains(&ip)) {
        let why = format!("is in the range {range} of pods");
        return Err(problem(RejectionReason::VipIsPod, ip, &why));
    }
    if let Some(accepted) = node.accepted_vips().filter(|accepted| !accepted.contains(ip))
        && !is_served(ip)
    {
        let why = format!("is outside {accepted}");
        return Err(problem(RejectionReason::VipOutsideCidr, ip, &why));
    }
    Ok(ip)
}

fn problem(reason: RejectionReason, ip: IpAddr, why: &str) -> ObjectProblem {
    ObjectProblem::advised(reason, format_args!("ClusterSetIP {ip} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        model::{
            NodeFacts,
            fixture::{import, plain_node, snapshot},
        },
        rules::compute,
    };

    /// What becomes of these addresses of an import that has none in force.
    fn vips(ips: &[String], node: &NodeContext) -> (Vec<IpAddr>, Vec<ObjectProblem>) {
        let import = ServiceImport { ips: ips.to_vec(), ..import("shop/web") };
        super::vips(&import, node, &DesiredState::default())
    }

    fn node() -> NodeContext {
        NodeContext {
            node_addresses: ["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()].into(),
            facts: NodeFacts {
                api_servers: ["10.0.0.1".parse().unwrap()].into(),
                pod_ranges: ["10.0.8.0/24".parse().unwrap()].into(),
                ..NodeFacts::default()
            },
            vip_cidrs: vec!["10.0.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()],
            ..NodeContext::default()
        }
    }

    #[test]
    fn each_address_is_rejected_alone() {
        for (ip, reason) in [
            ("10.0.0.2", None),
            ("fd00::2", None),
            ("10.0.0", Some(RejectionReason::VipInvalid)),
            ("010.0.0.2", Some(RejectionReason::VipInvalid)),
            (" 10.0.0.2", Some(RejectionReason::VipInvalid)),
            ("10.0.0.2:80", Some(RejectionReason::VipInvalid)),
            ("fd00::2%eth0", Some(RejectionReason::VipInvalid)),
            ("", Some(RejectionReason::VipInvalid)),
            ("::ffff:10.0.0.2", Some(RejectionReason::VipInvalid)),
            ("127.0.0.1", Some(RejectionReason::VipForbidden)),
            ("0.0.0.0", Some(RejectionReason::VipForbidden)),
            ("169.254.169.254", Some(RejectionReason::VipForbidden)),
            ("224.0.0.1", Some(RejectionReason::VipForbidden)),
            ("255.255.255.255", Some(RejectionReason::VipForbidden)),
            ("::1", Some(RejectionReason::VipForbidden)),
            ("::127.0.0.1", Some(RejectionReason::VipForbidden)),
            ("fe80::1", Some(RejectionReason::VipForbidden)),
            ("ff02::1", Some(RejectionReason::VipForbidden)),
            ("10.0.0.7", Some(RejectionReason::VipIsNode)),
            ("fd00::7", Some(RejectionReason::VipIsNode)),
            ("10.0.0.1", Some(RejectionReason::VipIsApiServer)),
            ("10.0.8.1", Some(RejectionReason::VipIsPod)),
            ("10.1.0.1", Some(RejectionReason::VipOutsideCidr)),
            ("fd01::1", Some(RejectionReason::VipOutsideCidr)),
        ] {
            let listed = ["10.0.9.1", ip, "10.0.9.2"].map(str::to_owned);
            let (vips, problems) = vips(&listed, &node());
            let rejected: Vec<RejectionReason> = problems.iter().map(|r| r.reason).collect();
            assert_eq!(rejected, reason.into_iter().collect::<Vec<_>>(), "{ip:?}");
            assert_eq!(vips.len(), 3 - rejected.len(), "{ip:?}");
        }
    }

    #[test]
    fn any_address_is_inside_when_no_range_is_set() {
        let listed = ["203.0.113.9".to_owned()];
        assert_eq!(vips(&listed, &NodeContext::default()).1, []);
    }

    #[test]
    fn an_address_outside_the_ranges_stays_with_the_import_that_has_it_in_force() {
        let any = plain_node();
        let served = import("shop/web").ip("10.1.0.1").ip("10.0.0.2").port("http", 80);
        let in_force = compute(&snapshot([served.clone()]), &any, &DesiredState::default());
        let other = import("shop/api").ip("10.1.0.1");
        for (import, in_force, accepted) in [
            (&served, &in_force, true),
            (&served, &DesiredState::default(), false),
            (&other, &in_force, false),
            (&served.clone().ip("10.1.0.2"), &in_force, false),
        ] {
            let (_, problems) = super::vips(import, &node(), in_force);
            assert_eq!(problems.is_empty(), accepted, "{import:?}: {problems:?}");
        }
        let forbidden =
            NodeContext { node_addresses: ["10.1.0.1".parse().unwrap()].into(), ..node() };
        let (_, problems) = super::vips(&served, &forbidden, &in_force);
        assert_eq!(problems[0].reason, RejectionReason::VipIsNode, "{problems:?}");
    }

    #[test]
    fn an_address_listed_twice_counts_once() {
        let listed = ["fd00::2", "10.0.0.2", "fd00:0::2"].map(str::to_owned);
        let (vips, problems) = vips(&listed, &node());
        assert_eq!(vips, ["fd00::2", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap()));
        assert_eq!(
            problems,
            [ObjectProblem::new(
                RejectionReason::VipDuplicate,
                "ClusterSetIP fd00::2 is listed twice; remove one"
            )]
        );
    }

    #[test]
    fn an_address_listed_twice_is_rejected_for_itself_once() {
        let (vips, problems) = vips(&["127.0.0.1", "127.0.0.1"].map(str::to_owned), &node());
        assert_eq!(vips, [] as [IpAddr; 0]);
        let reasons: Vec<RejectionReason> = problems.iter().map(|problem| problem.reason).collect();
        assert_eq!(reasons, [RejectionReason::VipForbidden, RejectionReason::VipDuplicate]);
    }

    #[test]
    fn a_problem_names_value_and_remedy() {
        for (ip, message) in [
            (
                "::ffff:10.0.0.2",
                "spec.ips entry \"::ffff:10.0.0.2\" is not an IP address; write it as 10.0.0.2",
            ),
            ("127.0.0.1", "ClusterSetIP 127.0.0.1 is loopback; assign a unicast address"),
            (
                "10.1.0.1",
                "ClusterSetIP 10.1.0.1 is outside --vip-cidr 10.0.0.0/16,fd00::/64; assign one \
                 inside, or allow its range",
            ),
        ] {
            assert_eq!(vips(&[ip.to_owned()], &node()).1[0].message, message);
        }
    }
}
