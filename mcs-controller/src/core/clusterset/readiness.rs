//! The condition `Ready` of a ServiceImport of this controller.

use std::collections::BTreeSet;

use mcs_kube::reasons::Reason;

use super::{
    ClusterId, Condition, ConditionStatus, ConditionType, LostVip, NoFreeVip, ServiceSpec,
    vips::SharedVip,
};

/// How many silent clusters a message names.
const NAMED: usize = 3;

/// What the addresses of the import say.
pub(super) fn readiness(
    spec: &ServiceSpec,
    supported: bool,
    problem: Option<NoFreeVip>,
    lost: Option<LostVip>,
    shared: Option<SharedVip>,
) -> Condition {
    let (status, reason, message) = if !supported {
        let families: Vec<_> = spec.ip_families.iter().map(ToString::to_string).collect();
        let message =
            format!("the Services of this cluster have no addresses of {}", families.join(", "));
        (ConditionStatus::False, Reason::IPFamilyNotSupported, message)
    } else if let Some(problem) = problem {
        (ConditionStatus::False, Reason::Pending, problem.to_string())
    } else if let Some(lost) = lost {
        (ConditionStatus::False, Reason::AddressInServiceRange, lost.to_string())
    } else if let Some(shared) = shared {
        (ConditionStatus::False, Reason::AddressShared, shared.to_string())
    } else {
        let message =
            "the import has its addresses, and all slices that its clusters have published"
                .to_owned();
        (ConditionStatus::True, Reason::Ready, message)
    };
    Condition::new(ConditionType::Ready, status, reason, message)
}

/// A usable import says which of its clusters give no sign of life.
pub(super) fn of_silent(
    mut ready: Condition,
    clusters: &BTreeSet<ClusterId>,
    silent: &BTreeSet<ClusterId>,
) -> Condition {
    let silent: Vec<_> = clusters.intersection(silent).map(ClusterId::as_str).collect();
    if ready.status == ConditionStatus::True && !silent.is_empty() {
        let (named, more) = silent.split_at(silent.len().min(NAMED));
        let more = if more.is_empty() { "" } else { " and more" };
        let named = named.join(", ");
        ready.message = format!("{}, as of the last sign of life of {named}{more}", ready.message);
    }
    ready
}

/// A usable import without endpoints says so in `Ready`, where people look first.
pub(super) fn with_endpoints(mut ready: Condition, counted: Option<&Condition>) -> Condition {
    let is_fault = |counted: &&Condition| counted.status == ConditionStatus::False;
    let Some(counted) = counted.filter(is_fault) else { return ready };
    if ready.status == ConditionStatus::True {
        let is_of_port = counted.reason == Reason::PortNotReady;
        ready.message += ", but no endpoint is ready";
        ready.message += if is_of_port { " for one of its ports" } else { "" };
        ready.message += ": see condition EndpointsReady";
    }
    ready
}
