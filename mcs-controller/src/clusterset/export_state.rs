//! The state of an export in one word, for monitoring.

use super::{Condition, ConditionStatus, ConditionType, export_status::OVER_LIMIT};

/// The state of an export.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExportState {
    /// Peers can read it.
    Exported,
    /// Peers can read it, and one of them lacks its namespace.
    NotImported,
    /// It is not in the mailbox, or the Lease of the mailbox is not renewed.
    Unpublished,
    /// There is nothing to export.
    Invalid,
    /// It is more than its namespace may export.
    OverLimit,
}

impl ExportState {
    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Exported, Self::NotImported, Self::Unpublished, Self::Invalid, Self::OverLimit];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::NotImported => "not_imported",
            Self::Unpublished => "unpublished",
            Self::Invalid => "invalid",
            Self::OverLimit => "over_limit",
        }
    }

    /// The state of an export with these conditions.
    pub fn of(conditions: &[Condition]) -> Self {
        let is_true = |condition_type| {
            let condition = conditions.iter().find(|one| one.condition_type == condition_type);
            condition.map(|one| one.status == ConditionStatus::True)
        };
        let lacks = |condition_type| is_true(condition_type) == Some(false);
        let is_ready = is_true(ConditionType::Ready) == Some(true);
        let is_beyond = |one: &Condition| {
            one.condition_type == ConditionType::Valid && one.reason == OVER_LIMIT
        };
        // Peers get an export of which a part is unusable, such as its cluster selectors.
        if conditions.iter().any(is_beyond) {
            Self::OverLimit
        } else if lacks(ConditionType::Valid) && !is_ready {
            Self::Invalid
        } else if lacks(ConditionType::Ready) {
            Self::Unpublished
        } else if lacks(ConditionType::Imported) {
            Self::NotImported
        } else {
            Self::Exported
        }
    }
}
