//! Borders: what the operator of this cluster adds to the owner's wish.
//!
//! Where no cluster that the selectors match has a ready endpoint, clients are refused, and the import says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcs_kube::{
    Tiers,
    reasons::Reason,
    wish::{self, Border},
};

use crate::core::clusterset::{
    ClusterId, Condition, ConditionStatus, ConditionType, EndpointCount, ImportStatus, in_import,
};

/// Who serves whom no selector matches; `None`: everybody. A value that is unknown is a wish for a border, as it is for agents.
pub(super) fn wanted(text: Option<&str>) -> Option<Border> {
    Border::read(text?).unwrap_or(Some(Border::Ends))
}

/// The border that the annotations of an import ask for.
pub(super) fn written(annotations: &BTreeMap<Arc<str>, Arc<str>>) -> Option<Border> {
    wanted(annotations.get(wish::SELECTORS_FALLBACK).map(|text| &**text))
}

/// Adds what the operator of this cluster wants: the stricter border counts. Returns it.
pub(super) fn add(
    annotations: &mut BTreeMap<Arc<str>, Arc<str>>,
    of_operator: Option<Border>,
) -> Option<Border> {
    let of_owner = written(annotations);
    let stricter = of_operator.filter(|_| of_operator > of_owner);
    if let Some(border) = stricter {
        annotations.insert(wish::SELECTORS_FALLBACK.into(), border.name().into());
    }
    stricter.or(of_owner)
}

/// Says in the conditions of an import that nobody inside of the border is ready.
pub(super) fn judge(
    status: &mut ImportStatus,
    endpoints: &BTreeMap<ClusterId, EndpointCount>,
    tiers: &Tiers,
) {
    let inside: BTreeSet<&str> =
        tiers.0.iter().flat_map(|tier| &tier.clusters).map(|one| &**one).collect();
    let is_served =
        endpoints.iter().any(|(id, count)| inside.contains(id.as_str()) && count.ready > 0);
    let Some(counted) = of(status, ConditionType::EndpointsReady) else { return };
    if is_served || counted.status != ConditionStatus::True {
        return;
    }
    let inside = if inside.is_empty() {
        "nobody".to_owned()
    } else {
        inside.into_iter().collect::<Vec<_>>().join(", ")
    };
    let message = in_import(format!(
        "no endpoint is ready inside the border ({inside}): {}",
        counted.message
    ));
    (counted.status, counted.reason) =
        (ConditionStatus::False, Reason::NoneInsideBorder.to_string());
    counted.message.clone_from(&message);
    if let Some(accepted) =
        of(status, ConditionType::Accepted).filter(|one| one.status == ConditionStatus::True)
    {
        (accepted.status, accepted.reason) =
            (ConditionStatus::False, Reason::NoneInsideBorder.to_string());
        accepted.message = in_import(format!("clients are refused: {message}"));
    }
}

fn of(status: &mut ImportStatus, kind: ConditionType) -> Option<&mut Condition> {
    status.conditions.iter_mut().find(|one| one.condition_type == kind)
}
