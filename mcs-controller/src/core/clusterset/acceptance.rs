//! The condition `Accepted` of a ServiceImport: the reasons known to the controller why agents do not serve it. It is for
//! people with rights in that namespace alone. Agents report their own rejections.

use std::net::IpAddr;

use ipnet::IpNet;
use mcs_kube::reasons::Reason;

use super::{
    Condition, ConditionStatus, ConditionType, Import, ServiceType, VipsInUse,
    export_status::in_import,
};

/// The condition of an import of this controller, which tells agents the ranges of its addresses. `ready` and `counted` are
/// the conditions `Ready` and `EndpointsReady`.
pub(super) fn of_own(ready: &Condition, counted: Option<&Condition>) -> Condition {
    if ready.status != ConditionStatus::True {
        return not_accepted(&ready.reason, ready.message.clone());
    }
    if let Some(counted) = counted.filter(|counted| counted.status == ConditionStatus::False) {
        let message = if counted.reason == Reason::PortNotReady {
            // An event has the message, and is to name the port.
            format!("clients of a port are refused. Endpoints: {}", counted.message)
        } else {
            "clients are refused, as no endpoint is ready: see condition EndpointsReady".into()
        };
        return not_accepted(&counted.reason, in_import(message));
    }
    nothing_known()
}

/// The condition of an import that another controller writes; none without ClusterSetIP, because agents do not serve such
/// an import. `told`: the ranges that agents were told; empty means any.
pub(super) fn of_another(import: &Import, in_use: &VipsInUse, told: &[IpNet]) -> Option<Condition> {
    if import.spec.service_type != ServiceType::ClusterSetIp || import.ips.is_empty() {
        return None;
    }
    if import.spec.ports.is_empty() {
        let message = "it has no port that agents know (TCP, UDP)";
        return Some(not_accepted(Reason::NoPorts, message.to_owned()));
    }
    let shared =
        import.ips.iter().find_map(|ip| Some((ip, in_use.other_owner(&import.name, *ip)?)));
    if let Some((ip, other)) = shared {
        let message = format!(
            "ServiceImport {other} has {ip} too, and agents serve one of the two there (`mcs-agent status`)"
        );
        return Some(accepted(ConditionStatus::Unknown, Reason::AddressShared, message));
    }
    let is_inside = |ip: &IpAddr| told.is_empty() || told.iter().any(|range| range.contains(ip));
    if let Some(ip) = import.ips.iter().find(|ip| !is_inside(ip)) {
        let message = format!(
            "{ip} is outside of the ranges of ClusterSetIPs that agents of this cluster are told: those without ranges of their own \
             reject it (`mcs-agent status`)"
        );
        return Some(accepted(ConditionStatus::Unknown, Reason::AddressOutsideRanges, message));
    }
    Some(nothing_known())
}

fn nothing_known() -> Condition {
    let message = "the controller knows of nothing that keeps agents from serving it";
    accepted(ConditionStatus::True, Reason::Accepted, message.to_owned())
}

fn not_accepted(reason: impl ToString, message: String) -> Condition {
    accepted(ConditionStatus::False, reason, message)
}

fn accepted(status: ConditionStatus, reason: impl ToString, message: String) -> Condition {
    Condition::new(ConditionType::Accepted, status, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::{name, spec};

    fn import(ips: &[&str]) -> Import {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let name = name("shop/web");
        Import { name, ips, spec: spec(), has_derived_service: false, tiers: None }
    }

    #[test]
    fn an_import_of_another_controller_is_judged_by_its_addresses_and_ports() {
        let told: Vec<IpNet> = vec!["241.0.0.0/8".parse().unwrap()];
        let mut in_use = VipsInUse::default();
        in_use.add(&name("shop/other"), ["241.0.0.9".parse().unwrap()]);
        in_use.add(&name("shop/web"), ["241.0.0.1".parse().unwrap()]);
        let judged = |import: &Import| {
            let found = of_another(import, &in_use, &told).unwrap();
            (found.status, found.reason)
        };
        let said = |status, reason: &str| (status, reason.to_owned());
        let [yes, no, unknown] =
            [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
        assert_eq!(judged(&import(&["241.0.0.1"])), said(yes, "Accepted"));
        assert_eq!(judged(&import(&["241.0.0.9"])), said(unknown, "AddressShared"));
        assert_eq!(judged(&import(&["10.96.0.1"])), said(unknown, "AddressOutsideRanges"));
        let accepted = of_another(&import(&["10.96.0.1"]), &in_use, &[]).unwrap();
        assert_eq!(accepted.status, yes, "agents that are told no ranges accept any");
        assert_eq!(of_another(&import(&[]), &in_use, &told), None);
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
