//! The state of an export in one word, for monitoring.

use mcs_kube::reasons::{ExportState, Reason};

use super::{Condition, ConditionStatus, ConditionType};

/// The state of an export with these conditions.
pub fn export_state(conditions: &[Condition]) -> ExportState {
    let is_true = |condition_type| {
        let condition = conditions.iter().find(|one| one.condition_type == condition_type);
        condition.map(|one| one.status == ConditionStatus::True)
    };
    let lacks = |condition_type| is_true(condition_type) == Some(false);
    let is_ready = is_true(ConditionType::Ready) == Some(true);
    let is_beyond = |one: &Condition| {
        one.condition_type == ConditionType::Valid && one.reason == Reason::OverLimit
    };
    // Peers get an export of which a part is unusable, such as its cluster selectors.
    if conditions.iter().any(is_beyond) {
        ExportState::OverLimit
    } else if lacks(ConditionType::Valid) && !is_ready {
        ExportState::Invalid
    } else if lacks(ConditionType::Ready) {
        ExportState::Unpublished
    } else if lacks(ConditionType::Imported) {
        ExportState::NotImported
    } else {
        ExportState::Exported
    }
}
