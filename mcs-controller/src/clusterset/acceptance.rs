//! The condition `Accepted` of a ServiceImport, for people who have rights in its namespace alone: what the controller knows
//! that keeps agents from serving it. What agents refuse by their own rules is in their reports.

use super::{Condition, ConditionStatus, ConditionType, Import, ServiceType, VipRanges, VipsInUse};

/// That of an import of this controller, which tells agents the ranges of its addresses. `ready` and `counted` are its
/// other conditions.
pub(super) fn of_own(ready: &Condition, counted: Option<&Condition>) -> Condition {
    if ready.status != ConditionStatus::True {
        return refused(&ready.reason, ready.message.clone());
    }
    if let Some(counted) = counted.filter(|counted| counted.status == ConditionStatus::False) {
        let message = "clients are refused, as no endpoint is ready: see condition EndpointsReady";
        return refused(&counted.reason, message.to_owned());
    }
    nothing_known()
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
    if let Some(ip) = import.ips.iter().find(|ip| !ranges.contains(**ip)) {
        let message = format!(
            "{ip} is outside of {} and {}, the ranges of ClusterSetIPs of this controller: agents that accept these alone \
             reject it (`mcs-agent status`)",
            ranges.v4, ranges.v6
        );
        // Agents can have other ranges by a flag.
        return accepted(ConditionStatus::Unknown, "AddressOutsideRanges", message);
    }
    nothing_known()
}

fn nothing_known() -> Condition {
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
        let name = name("shop/web");
        Import { name, ips, spec: spec(), has_derived_service: false, tiers: None }
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
        let condition = |kind, status, reason: &str| Condition::new(kind, status, reason, "why");
        let ready = condition(ConditionType::Ready, ConditionStatus::True, "Ready");
        let shared = condition(ConditionType::Ready, ConditionStatus::False, "AddressShared");
        let none = condition(ConditionType::EndpointsReady, ConditionStatus::False, "NoneReady");
        assert_eq!(of_own(&ready, None).status, ConditionStatus::True);
        assert_eq!(of_own(&shared, None).message, "why");
        assert_eq!(of_own(&ready, Some(&none)).reason, "NoneReady");
    }
}
