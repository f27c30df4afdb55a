//! Whether what a status says is known, and of now.

use jiff::Timestamp;
use serde_json::Value;

use super::{condition, text};

/// The conditions of a ClusterPeer that is read.
pub(crate) const READ: [&str; 4] = ["Accepted", "Connected", "Synced", "Fresh"];
/// The greatest age of the last contact with a connected peer, in seconds. Controllers write it each minute; clocks differ.
const OLDEST_CONTACT: i64 = 180;

/// Says if conditions are of an earlier spec.
pub(crate) fn older(object: &Value) -> Option<String> {
    let generation = object["metadata"]["generation"].as_i64()?;
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    let is_older = conditions.any(|one| {
        one["observedGeneration"].as_i64().is_some_and(|observed| observed < generation)
    });
    is_older.then(|| "its status is older than its spec: ask again in 10 s".to_owned())
}

/// Why it is not known whether a ClusterPeer is read now. A condition that is false is a problem, and not among these.
pub(crate) fn unknown(peer: &Value, now: Timestamp) -> Vec<String> {
    if !peer["status"]["conditions"].is_array() {
        return vec![];
    }
    let unknown = READ.into_iter().filter_map(|name| {
        let found = condition(peer, name);
        let message = match found.map(|one| &one["status"]) {
            Some(status) if *status == "True" || *status == "False" => return None,
            Some(_) => found.map(|one| text(&one["message"])).unwrap_or_default(),
            None => "no controller has told it".to_owned(),
        };
        Some(format!("{name} is not known yet: {message}"))
    });
    older(peer).into_iter().chain(unknown).chain(as_of(peer, now)).collect()
}

/// Says if nobody can have written the status of a connected peer since its last contact.
fn as_of(peer: &Value, now: Timestamp) -> Option<String> {
    let contact: Timestamp = peer["status"]["lastContact"].as_str()?.parse().ok()?;
    let is_connected = condition(peer, "Connected").is_some_and(|one| one["status"] == "True");
    let is_old = now.as_second() - contact.as_second() > OLDEST_CONTACT;
    (is_connected && is_old).then(|| {
        format!(
            "its status is as of {contact}: since then no controller writes it, or the peer's API server says nothing"
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// The conditions of a peer that is read, but for one with another status.
    pub(crate) fn conditions(but: &str, status: &str) -> Value {
        let one = |name: &str| {
            let status = if name == but { status } else { "True" };
            json!({"type": name, "status": status, "message": "why", "observedGeneration": 2})
        };
        READ.map(one).into_iter().collect()
    }

    #[test]
    fn what_is_unknown_or_of_another_time_is_told() {
        let peer = |conditions: Value| {
            json!({
                "metadata": {"generation": 2},
                "status": {"conditions": conditions, "lastContact": "2026-01-02T03:04:00Z"},
            })
        };
        let at = |time: &str| format!("2026-01-02T03:{time}Z").parse().unwrap();
        let said = |peer: &Value| unknown(peer, at("05:10"));
        let fine = peer(conditions("", ""));
        assert_eq!(said(&fine), [""; 0]);
        for name in READ {
            let expected = [format!("{name} is not known yet: why")];
            assert_eq!(said(&peer(conditions(name, "Unknown"))), expected);
            assert_eq!(said(&peer(conditions(name, "False"))), [""; 0], "it is a problem");
        }
        assert_eq!(said(&peer(json!([]))).len(), 4);
        assert_eq!(said(&json!({})), [""; 0], "no controller has looked at it");

        let mut edited = fine.clone();
        edited["metadata"]["generation"] = json!(3);
        assert!(said(&edited)[0].starts_with("its status is older than its spec"));
        assert_eq!(older(&fine), None);

        let dead = unknown(&fine, at("07:10"));
        assert!(dead[0].starts_with("its status is as of 2026-01-02T03:04:00Z: "), "{dead:?}");
        let silent = unknown(&peer(conditions("Connected", "False")), at("07:10"));
        assert_eq!(silent, [""; 0], "it says so itself");
    }
}
