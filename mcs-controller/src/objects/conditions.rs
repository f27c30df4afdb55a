//! Conditions of the API, with the time at which their status last changed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use serde_json::{Value, json};

use crate::clusterset::{Condition, ConditionStatus, ConditionType};

/// The conditions of known types, in the order of the types.
pub(super) fn decode(conditions: &[v1::Condition]) -> Vec<Condition> {
    let mut known: Vec<_> = conditions.iter().filter_map(decode_one).collect();
    known.sort_by_key(|condition| condition.condition_type);
    known
}

fn decode_one(condition: &v1::Condition) -> Option<Condition> {
    let is_named = |one: &ConditionType| one.name() == condition.type_;
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
pub(super) fn encode(conditions: &[Condition], former: &[v1::Condition], now: Timestamp) -> Value {
    let encoded = conditions.iter().map(|condition| {
        let Condition { condition_type, status, reason, message, generation } = condition;
        let (name, status) = (condition_type.to_string(), status.to_string());
        let same = former.iter().find(|former| former.type_ == name && former.status == status);
        let since = same.map_or_else(|| seconds(now), |same| seconds(same.last_transition_time.0));
        let mut encoded = json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since,
        });
        // An API server takes no null.
        if let Some(generation) = generation {
            encoded["observedGeneration"] = json!(generation);
        }
        encoded
    });
    encoded.collect()
}

/// The API has times in seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
