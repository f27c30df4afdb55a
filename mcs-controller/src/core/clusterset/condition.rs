//! Conditions of ServiceExports and ServiceImports, with the types and reasons of the API.

use std::fmt;

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
    /// `observedGeneration` of a ServiceExport: the spec that was judged.
    pub generation: Option<i64>,
}

/// `type` of a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConditionType {
    /// The ServiceExport names a Service that can be exported.
    Valid,
    /// The Service is exported; or the ServiceImport can be used.
    Ready,
    /// Of a ServiceExport: the clusters that export the service disagree.
    Conflict,
    /// Of a ServiceImport: the same, absent while they agree.
    ImportConflict,
    /// Of a ServiceImport: an endpoint is ready.
    EndpointsReady,
    /// Of a ServiceExport: false if a cluster does not import it, else absent.
    Imported,
    /// Of a ServiceImport: false if its cluster selectors cannot be resolved, else absent.
    SelectorsResolved,
    /// Of a ServiceImport, whoever writes it: false if the controller knows why agents do not serve it.
    Accepted,
}

impl ConditionType {
    /// All types, in their order.
    pub const ALL: [Self; 8] = [
        Self::Valid,
        Self::Ready,
        Self::Conflict,
        Self::ImportConflict,
        Self::EndpointsReady,
        Self::Imported,
        Self::SelectorsResolved,
        Self::Accepted,
    ];

    /// `type` of the condition. A type that the API does not define for the object has the domain of this project, because
    /// other controllers write conditions of the same object.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "Valid",
            Self::Ready => "Ready",
            Self::Conflict => "Conflict",
            Self::ImportConflict => "clusterset.mcs-agent.io/Conflict",
            Self::EndpointsReady => "clusterset.mcs-agent.io/EndpointsReady",
            Self::Imported => "clusterset.mcs-agent.io/Imported",
            Self::SelectorsResolved => "clusterset.mcs-agent.io/SelectorsResolved",
            Self::Accepted => "clusterset.mcs-agent.io/Accepted",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

/// Whether two lists of conditions differ only in messages, counts and generations.
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
    #[expect(clippy::needless_pass_by_value, reason = "a code, or words")]
    pub(crate) fn new(
        condition_type: ConditionType,
        status: ConditionStatus,
        reason: impl ToString,
        message: impl Into<String>,
    ) -> Self {
        let (reason, message) = (reason.to_string(), message.into());
        Self { condition_type, status, reason, message, generation: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_is_not_of_the_api_has_the_domain() {
        // The types of ServiceExport and ServiceImport in sigs.k8s.io/mcs-api.
        let of_the_api = ["Valid", "Ready", "Conflict"];
        for one in ConditionType::ALL {
            let is_own = one.name().starts_with("clusterset.mcs-agent.io/");
            assert!(is_own != of_the_api.contains(&one.name()), "{one}");
        }
    }
}
