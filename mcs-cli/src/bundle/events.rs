//! The Events that say something of a clusterset: those of agents, controllers and DNS servers, and those about their pods.

use serde_json::Value;

use crate::{
    cluster::{Cluster, EVENTS},
    dns::SYSTEM,
};

/// The newest ones that are kept of a cluster.
const MOST: usize = 2000;
/// The beginnings of the names of this project's namespaces and components, and of the DNS servers of a cluster.
const OURS: &str = "mcs-";
const DNS: [&str; 4] = ["coredns", "kube-dns", "node-local-dns", "nodelocaldns"];

/// The Events of a cluster, the newest last.
pub(super) async fn of(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    Ok(kept(cluster.list(EVENTS).await?))
}

fn kept(mut events: Vec<Value>) -> Vec<Value> {
    events.retain(is_meant);
    events.sort_by_cached_key(|event| time(event).to_owned());
    let old = events.len().saturating_sub(MOST);
    events.split_off(old)
}

fn is_meant(event: &Value) -> bool {
    let about = &event["involvedObject"];
    let begins =
        |value: &Value, with: &str| value.as_str().is_some_and(|text| text.starts_with(with));
    let is_ours =
        [&event["reportingComponent"], &event["source"]["component"], &about["namespace"]]
            .into_iter()
            .any(|value| begins(value, OURS));
    let is_of_dns =
        about["namespace"] == SYSTEM && DNS.into_iter().any(|name| begins(&about["name"], name));
    is_ours || is_of_dns
}

/// When an Event was seen last. Texts of times sort, but for parts of a second.
fn time(event: &Value) -> &str {
    let times =
        [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    let created = &event["metadata"]["creationTimestamp"];
    times.into_iter().chain([created]).find_map(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_the_clusterset_are_kept_in_order() {
        let event = |component: &str, namespace: &str, name: &str, time: &str| {
            let about = json!({"namespace": namespace, "name": name});
            json!({"reportingComponent": component, "involvedObject": about, "lastTimestamp": time})
        };
        let all = vec![
            event("mcs-controller", "shop", "web", "2026-01-02T03:04:07Z"),
            event("kubelet", "shop", "web-1", "2026-01-02T03:04:06Z"),
            event("kubelet", "mcs-system", "mcs-mcs-agent-x", "2026-01-02T03:04:05Z"),
            event("kubelet", "kube-system", "coredns-7d", "2026-01-02T03:04:06Z"),
            event("kubelet", "kube-system", "etcd-1", "2026-01-02T03:04:06Z"),
        ];
        let kept = kept(all);
        let names: Vec<_> = kept.iter().map(|one| &one["involvedObject"]["name"]).collect();
        assert_eq!(names, ["mcs-mcs-agent-x", "coredns-7d", "web"]);
        let many = (0..MOST + 5).map(|n| event("mcs-agent", "", "n", &format!("{n:06}")));
        let kept = super::kept(many.collect());
        assert_eq!((kept.len(), &kept[0]["lastTimestamp"]), (MOST, &json!("000005")));
    }
}
