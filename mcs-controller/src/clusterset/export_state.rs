//! The state of an export in one word, for monitoring.

use super::{Condition, ConditionStatus, ConditionType};

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
}

impl ExportState {
    /// Every state.
    pub const ALL: [Self; 4] =
        [Self::Exported, Self::NotImported, Self::Unpublished, Self::Invalid];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::NotImported => "not_imported",
            Self::Unpublished => "unpublished",
            Self::Invalid => "invalid",
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
        // Peers get an export of which a part is unusable, such as its cluster selectors.
        if lacks(ConditionType::Valid) && !is_ready {
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
