//! A release of helm that somebody has interrupted: helm refuses every upgrade of it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    cluster::{Cluster, SECRETS},
    progress,
};

/// How old a pending record is whose helm is taken for dead.
const DEAD_AFTER: i64 = 60;
const PAUSE: Duration = Duration::from_secs(2);

/// Removes the record of an interrupted helm, once nobody can be at work any more. The revision before it counts then, and
/// helm takes objects that it has made for the release.
///
/// # Errors
/// The records cannot be read or deleted.
pub(super) async fn clear(cluster: &Cluster, namespace: &str, release: &str) -> anyhow::Result<()> {
    let selector = format!("owner=helm,name={release}");
    let mut is_told = false;
    loop {
        let records = cluster.list_in(SECRETS, Some(namespace), &selector).await?;
        let Some((record, age)) = pending(&records, Timestamp::now()) else { return Ok(()) };
        if age >= DEAD_AFTER {
            return cluster.delete(SECRETS, Some(namespace), &record).await;
        }
        if !is_told {
            is_told = true;
            let what = format!(
                "helm has not finished what began {age} s ago; it is taken for dead after {DEAD_AFTER} s"
            );
            progress::say(cluster.id.as_str(), &what)?;
        }
        sleep(PAUSE).await;
    }
}

/// The latest record, if it is pending, and its age in seconds.
fn pending(records: &[Value], now: Timestamp) -> Option<(String, i64)> {
    let label =
        |record: &Value, name: &str| record["metadata"]["labels"][name].as_str().map(str::to_owned);
    let version =
        |record: &&Value| label(record, "version").and_then(|text| text.parse::<u64>().ok());
    let latest = records.iter().max_by_key(version)?;
    let metadata = &latest["metadata"];
    let is_pending = label(latest, "status")?.starts_with("pending-");
    let created: Option<Timestamp> = metadata["creationTimestamp"].as_str()?.parse().ok();
    let age = now.as_second() - created?.as_second();
    is_pending.then(|| (metadata["name"].as_str().unwrap_or_default().to_owned(), age))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_latest_record_can_be_in_the_way() {
        let record = |version: &str, status: &str| {
            let labels = json!({"version": version, "status": status});
            let name = format!("v{version}");
            json!({"metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-01-02T03:04:05Z"}})
        };
        let now = "2026-01-02T03:05:05Z".parse().unwrap();
        let deployed = [record("9", "superseded"), record("10", "deployed")];
        assert_eq!(pending(&deployed, now), None);
        let interrupted = [record("9", "deployed"), record("10", "pending-upgrade")];
        assert_eq!(pending(&interrupted, now), Some(("v10".to_owned(), 60)));
        assert_eq!(pending(&[], now), None);
    }
}
