//! Conditions of ServiceExports and ServiceImports, with the types and reasons of the API.

use std::fmt;

use super::well_known;

/// An entry of `status.conditions`, without times: the writer keeps `lastTransitionTime` while `status` stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// `type`.
    pub condition_type: ConditionType,
    /// `status`.
    pub status: ConditionStatus,
    /// `reason`: one word of the API, or several separated by commas.
    pub reason: String,
    /// `message`.
    pub message: String,
}

/// `type` of a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConditionType {
    /// The ServiceExport names a Service that can be exported.
    Valid,
    /// The Service is exported; or the ServiceImport can be used.
    Ready,
    /// The clusters that export the service disagree.
    Conflict,
    /// Of a ServiceImport: an endpoint is ready. Not a type of the API.
    EndpointsReady,
    /// Of a ServiceExport: false if a cluster does not import it, else absent. Not a type of the API.
    Imported,
    /// Of a ServiceImport: false if its cluster selectors cannot be resolved, else absent. Not a type of the API.
    SelectorsResolved,
    /// Of a ServiceImport, whoever writes it: false if the controller knows why agents do not serve it. Not a type of the
    /// API.
    Accepted,
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Other controllers write conditions of the same object.
            Self::Accepted => f.write_str(well_known::ACCEPTED),
            _ => fmt::Debug::fmt(self, f),
        }
    }
}

/// `status` of a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet.
    Unknown,
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Whether two lists of conditions differ only in messages and counts.
pub fn differ_in_words(one: &[Condition], other: &[Condition]) -> bool {
    let turns = |all: &[Condition]| -> Vec<_> {
        // `Accepted` follows `EndpointsReady` and `Ready`.
        let counts = [ConditionType::EndpointsReady, ConditionType::Accepted];
        let turns = all.iter().filter(|one| !counts.contains(&one.condition_type));
        turns.map(|one| (one.condition_type, one.status, one.reason.clone())).collect()
    };
    one != other && turns(one) == turns(other)
}

impl Condition {
    pub(super) fn new(
        condition_type: ConditionType,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { condition_type, status, reason: reason.into(), message: message.into() }
    }
}
