//! The condition `Accepted` of a ServiceImport, for people who have rights in its namespace alone: what the controller knows
//! that keeps agents from serving it. What agents refuse by their own rules is in their reports.

use super::{Condition, ConditionStatus, ConditionType, Import, ServiceType, VipRanges, VipsInUse};

/// That of an import of this controller. `ready` and `counted` are its other conditions.
pub(super) fn of_own(
    import: &Import,
    ready: &Condition,
    counted: Option<&Condition>,
    ranges: &VipRanges,
) -> Condition {
    if ready.status != ConditionStatus::True {
        return refused(&ready.reason, ready.message.clone());
    }
    if let Some(counted) = counted.filter(|counted| counted.status == ConditionStatus::False) {
        let message = "clients are refused, as no endpoint is ready: see condition EndpointsReady";
        return refused(&counted.reason, message.to_owned());
    }
    of_addresses(import, ranges)
}

/// That of an import which another controller writes.
pub(super) fn of_another(import: &Import, in_use: &VipsInUse, ranges: &VipRanges) -> Condition {
    let shared =
        import.ips.iter().find_map(|ip| Some((ip, in_use.other_owner(&import.name, *ip)?)));
    if let Some((ip, other)) = shared {
        let message = format!(
            "ServiceImport {other} has {ip} too, and agents serve one of the two there: let their controllers give them \
             addresses of their own"
        );
        return refused("AddressShared", message);
    }
    if import.spec.service_type == ServiceType::ClusterSetIp && import.ips.is_empty() {
        return refused(
            "NoAddress",
            "it has no ClusterSetIP: its controller gives it one".to_owned(),
        );
    }
    if import.spec.service_type == ServiceType::ClusterSetIp && import.spec.ports.is_empty() {
        return refused("NoPorts", "it has no port that agents know (TCP, UDP)".to_owned());
    }
    of_addresses(import, ranges)
}

/// Agents need not have the ranges of this controller.
fn of_addresses(import: &Import, ranges: &VipRanges) -> Condition {
    if let Some(ip) = import.ips.iter().find(|ip| !ranges.contains(**ip)) {
        let message = format!(
            "{ip} is outside of {} and {}, the ranges of ClusterSetIPs: agents that have these ranges (chart: vipCidrs) \
             reject it",
            ranges.v4, ranges.v6
        );
        return accepted(ConditionStatus::Unknown, "AddressOutsideRanges", message);
    }
    let message = "the controller knows of nothing that keeps agents from serving it";
    accepted(ConditionStatus::True, "Accepted", message.to_owned())
}

fn refused(reason: &str, message: String) -> Condition {
    accepted(ConditionStatus::False, reason, message)
}

fn accepted(status: ConditionStatus, reason: &str, message: String) -> Condition {
    Condition::new(ConditionType::Accepted, status, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::fixture::{name, spec};

    fn import(ips: &[&str]) -> Import {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Import { name: name("shop/web"), ips, spec: spec(), has_derived_service: false }
    }

    #[test]
    fn an_import_of_another_controller_is_judged_by_its_addresses_and_ports() {
        let ranges = VipRanges::for_clusterset("test");
        let mut in_use = VipsInUse::default();
        in_use.add(&name("shop/other"), ["241.0.0.9".parse().unwrap()]);
        in_use.add(&name("shop/web"), ["241.0.0.1".parse().unwrap()]);
        let judged = |import: &Import| {
            let found = of_another(import, &in_use, &ranges);
            (found.status, found.reason)
        };
        let said = |status, reason: &str| (status, reason.to_owned());
        let [yes, no, unknown] =
            [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
        assert_eq!(judged(&import(&["241.0.0.1"])), said(yes, "Accepted"));
        assert_eq!(judged(&import(&["241.0.0.9"])), said(no, "AddressShared"));
        assert_eq!(judged(&import(&["10.96.0.1"])), said(unknown, "AddressOutsideRanges"));
        assert_eq!(judged(&import(&[])), said(no, "NoAddress"));
        let mut bare = import(&["241.0.0.1"]);
        bare.spec.ports.clear();
        assert_eq!(judged(&bare), said(no, "NoPorts"));
    }

    #[test]
    fn an_own_import_says_what_its_other_conditions_do() {
        let ranges = VipRanges::for_clusterset("test");
        let condition = |kind, status, reason: &str| Condition::new(kind, status, reason, "why");
        let ready = condition(ConditionType::Ready, ConditionStatus::True, "Ready");
        let shared = condition(ConditionType::Ready, ConditionStatus::False, "AddressShared");
        let none = condition(ConditionType::EndpointsReady, ConditionStatus::False, "NoneReady");
        let web = import(&["241.0.0.1"]);
        assert_eq!(of_own(&web, &ready, None, &ranges).status, ConditionStatus::True);
        assert_eq!(of_own(&web, &shared, None, &ranges).message, "why");
        assert_eq!(of_own(&web, &ready, Some(&none), &ranges).reason, "NoneReady");
    }
}
