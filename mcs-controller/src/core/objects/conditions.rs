//! Conditions of the API, with the time at which their status last changed.

use jiff::Timestamp;
use mcs_kube::objects;

use crate::core::clusterset::{Condition, ConditionStatus, ConditionType};

/// The conditions of known types, in the order of the types.
pub(super) fn decode(conditions: &[objects::Condition]) -> Vec<Condition> {
    let mut known: Vec<_> = conditions.iter().filter_map(decode_one).collect();
    known.sort_by_key(|condition| condition.condition_type);
    known
}

fn decode_one(condition: &objects::Condition) -> Option<Condition> {
    let is_named = |one: &ConditionType| one.name() == condition.condition_type;
    let condition_type = ConditionType::ALL.into_iter().find(is_named)?;
    let status = match &*condition.status {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    let (reason, message) = (condition.reason.clone(), condition.message.clone());
    Some(Condition {
        condition_type,
        status,
        reason,
        message,
        generation: condition.observed_generation,
    })
}

/// The conditions as written. A time stays while the status of its condition does.
pub(super) fn encode(
    conditions: &[Condition],
    former: &[objects::Condition],
    now: Timestamp,
) -> Vec<objects::Condition> {
    let encoded = conditions.iter().map(|condition| {
        let (name, status) = (condition.condition_type.to_string(), condition.status.to_string());
        let is_same =
            |one: &&objects::Condition| one.condition_type == name && one.status == status;
        let same = former.iter().find(is_same);
        objects::Condition {
            last_transition_time: same
                .map_or_else(|| seconds(now), |same| same.last_transition_time.clone()),
            condition_type: name,
            status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            observed_generation: condition.generation,
        }
    });
    encoded.collect()
}

/// The API has times in seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
