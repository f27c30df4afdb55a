//! The record of a helm that has not finished. helm refuses every upgrade of its release.

use anyhow::bail;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    cluster::{Cluster, SECRETS},
    kubeconfig::KubeconfigArg,
};

/// How old a pending record is whose helm is taken for dead, in seconds. A helm that waits writes nothing, and gives up after its
/// time limit: 5 minutes by default, in helm, in Flux and in `mcs up`. Hooks and the wait have it one after the other.
const DEAD_AFTER: i64 = 1800;

/// The latest record of a release, if it is pending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    record: String,
    status: String,
    /// Its age in seconds.
    age: i64,
}

impl Pending {
    /// Whether both are one record. It is older the second time.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        (&self.record, &self.status) == (&other.record, &other.status)
    }

    /// Deletes the record. The revision before it counts then, and helm takes objects that it has made for the release.
    pub(super) async fn clear(&self, cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
        cluster.delete(SECRETS, Some(namespace), &self.record).await
    }
}

/// The pending record of a release whose helm is dead, if there is one.
///
/// # Errors
/// The records cannot be read, or a helm may be at work.
pub(super) async fn dead(
    cluster: &Cluster,
    kubeconfig: &KubeconfigArg,
    namespace: &str,
    release: &str,
) -> anyhow::Result<Option<Pending>> {
    let selector = format!("owner=helm,name={release}");
    let records = cluster.list_in(SECRETS, Some(namespace), &selector).await?;
    let Some(pending) = pending(&records, Timestamp::now()) else { return Ok(None) };
    if pending.age >= DEAD_AFTER {
        return Ok(Some(pending));
    }
    let Pending { record, status, age } = pending;
    bail!(
        "helm has worked on the release {release} for {age} s ({status}): wait until it is done. If that helm is gone, run: kubectl \
         delete secret {record} --namespace {namespace} {}. After {} minutes `mcs` takes it for gone by itself",
        kubeconfig.flags()?,
        DEAD_AFTER / 60
    )
}

/// The latest record, if it is pending.
fn pending(records: &[Value], now: Timestamp) -> Option<Pending> {
    let label =
        |record: &Value, name: &str| record["metadata"]["labels"][name].as_str().map(str::to_owned);
    let version =
        |record: &&Value| label(record, "version").and_then(|text| text.parse::<u64>().ok());
    let latest = records.iter().max_by_key(version)?;
    let metadata = &latest["metadata"];
    let status = label(latest, "status").filter(|status| status.starts_with("pending-"))?;
    let created: Option<Timestamp> = metadata["creationTimestamp"].as_str()?.parse().ok();
    let age = now.as_second() - created?.as_second();
    Some(Pending { record: metadata["name"].as_str().unwrap_or_default().to_owned(), status, age })
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
        let found = pending(&interrupted, now).unwrap();
        assert_eq!((&*found.record, found.age), ("v10", 60));
        let later = "2026-01-02T04:05:05Z".parse().unwrap();
        assert!(pending(&interrupted, later).unwrap().is_of(&found));
        let anew = [record("10", "failed"), record("11", "pending-upgrade")];
        assert!(!pending(&anew, later).unwrap().is_of(&found));
        assert_eq!(pending(&[], now), None);
    }
}
